from __future__ import annotations

import asyncio
import gc
import warnings

import pytest

from adapters.llm.openai_chat import OpenAiChat, OpenAiChatSettings
from sidecar.faults import (
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from sidecar.ports import ChatDelta
from tests.adapters.llm.helpers import BEGUN, Taken, answer, ask, refusing_port, take
from tests.upstream import Upstream
from tests.upstream_scripts import PLAIN


async def wait_for_token(llm: OpenAiChat, script: str) -> None:
    async for event in await llm.stream(ask(f"fake-{script}"), {}):
        assert not isinstance(event, ChatDelta)


@pytest.mark.parametrize("script", ["gate_status", "stall_first", "only_comments", "gate_first"])
async def test_no_first_token_is_a_timeout(up: Upstream, script: str) -> None:
    llm = OpenAiChat(OpenAiChatSettings(up.base_url, first_token_timeout_s=0.1, idle_timeout_s=30))
    with pytest.raises(UpstreamTimeout) as caught:
        await wait_for_token(llm, script)
    assert caught.value.status == 504
    await up.until(lambda up: up.aborted == 1 and up.active == 0)
    await llm.close()


async def test_a_stall_is_a_timeout_after_what_came(up: Upstream) -> None:
    llm = OpenAiChat(OpenAiChatSettings(up.base_url, first_token_timeout_s=30, idle_timeout_s=0.1))
    taken = await answer(llm, "stall")
    assert taken.text == BEGUN
    assert isinstance(taken.fault, UpstreamTimeout)
    await up.until(lambda up: up.aborted == 1)
    await llm.close()


async def test_silence_after_the_finish_reason_is_an_end(up: Upstream) -> None:
    llm = OpenAiChat(OpenAiChatSettings(up.base_url, idle_timeout_s=0.1))
    taken = await answer(llm, "stall_after_finish")
    assert (taken.text, taken.finish, taken.fault) == (PLAIN, {0: "stop"}, None)
    await llm.close()


async def test_a_slow_reader_is_not_the_upstreams_silence(up: Upstream) -> None:
    llm = OpenAiChat(OpenAiChatSettings(up.base_url, first_token_timeout_s=0.2, idle_timeout_s=0.2))
    stream = await llm.stream(ask("fake-gate"), {})
    taken = Taken()
    async for event in stream:
        taken.add(event)
        if len(taken.events) == 2:
            await asyncio.sleep(0.4)
            up.gate.set()
    assert (taken.text, taken.fault) == (BEGUN + " And the rest.", None)
    await llm.close()


async def test_a_connection_that_cannot_be_made_is_tried_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("adapters.llm.upstream_http.asyncio.sleep", pause)
    with refusing_port() as port:
        llm = OpenAiChat(OpenAiChatSettings(f"http://127.0.0.1:{port}/v1"))
        with pytest.raises(UpstreamUnreachable):
            await llm.stream(ask("fake-plain"), {})
        await llm.close()
    assert len([seconds for seconds in pauses if 0 < seconds < 0.5]) == 1


async def test_a_server_that_hangs_up_without_an_answer_is_asked_once() -> None:
    asked = 0

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        llm = OpenAiChat(OpenAiChatSettings(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"))
        with pytest.raises(UpstreamUnreachable):
            await llm.stream(ask("fake-plain"), {})
        await llm.close()
    assert asked == 1


async def test_finished_answers_leave_their_connection_for_the_next(llm: OpenAiChat, up: Upstream) -> None:
    for script in ("plain", "no_done", "crlf", "http429", "never_streams", "whole"):
        try:
            await answer(llm, script)
        except UpstreamRefused:
            continue
    assert up.connections == 1


async def test_closing_is_seen_by_the_upstream_at_once(llm: OpenAiChat, up: Upstream) -> None:
    stream = await llm.stream(ask("fake-stall"), {})
    await anext(aiter(stream))
    assert (up.active, up.aborted) == (1, 0)
    await stream.aclose()
    await up.until(lambda up: up.aborted == 1 and up.active == 0, timeout_s=1)
    assert up.requests[0].ended == "client_left"


async def test_closing_all_ends_open_streams(llm: OpenAiChat, up: Upstream) -> None:
    streams = [await llm.stream(ask("fake-stall"), {}) for _ in range(5)]
    readers = [asyncio.create_task(take(stream)) for stream in streams]
    await up.until(lambda up: sum(seen.steps_sent > 5 for seen in up.requests) == 5)
    await llm.close()
    for taken in await asyncio.gather(*readers):
        assert taken.fault is None
    await up.until(lambda up: up.aborted == 5)


async def test_cancelled_readers_leave_nothing_behind(llm: OpenAiChat, up: Upstream) -> None:
    async def reading(script: str) -> None:
        stream = await llm.stream(ask(f"fake-{script}"), {})
        async for _ in stream:
            pass

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for script in ("stall", "gate_status", "stall_first", "gate"):
            before = up.aborted
            tasks = [asyncio.create_task(reading(script)) for _ in range(5)]
            await up.until(lambda up: up.active == 5 and all(seen.began.is_set() for seen in up.requests))
            await asyncio.sleep(0.02)
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(result, asyncio.CancelledError) for result in results)
            await up.until(lambda up, before=before: up.aborted == before + 5 and up.active == 0)  # type: ignore[misc]
        gc.collect()
        await asyncio.sleep(0)
    assert [str(warning.message) for warning in caught] == []
    assert (await answer(llm, "plain")).text == PLAIN


async def test_readers_cancelled_at_any_moment_free_their_connections(llm: OpenAiChat, up: Upstream) -> None:
    async def reading() -> None:
        stream = await llm.stream(ask("fake-plain?delay_ms=0.2"), {})
        try:
            async for _ in stream:
                pass
        finally:
            await stream.aclose()

    for turns in range(0, 120, 3):
        task = asyncio.create_task(reading())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled() or task.exception() is None
    await up.until(lambda up: up.active == 0)
    assert len(asyncio.all_tasks()) <= 2 + up.connections
    assert (await answer(llm, "plain")).text == PLAIN
