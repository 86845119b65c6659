from __future__ import annotations

import asyncio
import gc
import json
import warnings
from collections.abc import AsyncIterator
from typing import Any

import pytest

from adapters.llm.openai_chat import OpenAiChat, OpenAiChatSettings
from sidecar.faults import (
    BadRequest,
    ConfigError,
    UpstreamBroken,
    UpstreamFault,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from sidecar.ports import ChatDelta
from tests.adapters.llm.helpers import Taken, ask, refusing_port, take
from tests.upstream import Upstream
from tests.upstream_scripts import LETTERS, MARKDOWN, PLAIN, THINK, THOUGHT

BEGUN = "Hello there! Dr. Lee paid $12.50 for"
"""What scripts that break off have said before."""


@pytest.fixture
async def up() -> AsyncIterator[Upstream]:
    async with Upstream() as upstream:
        yield upstream


@pytest.fixture
async def llm(up: Upstream) -> AsyncIterator[OpenAiChat]:
    made = OpenAiChat(OpenAiChatSettings(up.base_url, api_key="sk-canary"))
    yield made
    await made.close()


async def answer(llm: OpenAiChat, script: str, **more: Any) -> Taken:
    return await take(await llm.stream(ask(f"fake-{script}", **more), {}))


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("plain", PLAIN),
        ("markdown", MARKDOWN),
        ("letters", LETTERS),
        ("think", THINK),
        ("think_noopen", "They say hi.</think>Hello to you."),
        ("nothing", ""),
        ("whitespace", "\n \t\n"),
        ("parts", PLAIN),
        ("sound", "Hello."),
        ("blank_finish", PLAIN),
        ("crlf", LETTERS),
        ("cr", LETTERS),
        ("whole", PLAIN),
        ("bytes", LETTERS),
        ("bytes_crlf", LETTERS),
        ("split", LETTERS),
        ("bom", PLAIN),
        ("empty", PLAIN),
        ("keepalive", PLAIN),
        ("fields", PLAIN),
        ("mislabelled", PLAIN),
        ("until_close", PLAIN),
        ("no_done", PLAIN),
        ("no_role", PLAIN),
        ("role_every", PLAIN),
        ("usage_always", PLAIN),
        ("usage_last", PLAIN),
        ("never_streams", PLAIN),
        ("cut_after_finish", PLAIN),
        ("plain?delay_ms=1&first_ms=5&header_ms=5", PLAIN),
    ],
)
async def test_every_way_of_writing_gives_the_text(llm: OpenAiChat, up: Upstream, script: str, text: str) -> None:
    taken = await answer(llm, script)
    assert taken.fault is None
    assert taken.text == text
    assert taken.finish == {0: "stop"}
    assert len(taken.usage) == (script != "cut_after_finish")
    assert (taken.opened.id, taken.opened.created) == ("chatcmpl-test", 1_700_000_000)


@pytest.mark.parametrize(
    ("script", "member", "text"),
    [("reasoning", "reasoning_content", "Hello to you."), ("reasoning_field", "reasoning", "Hello to you.")],
)
async def test_thoughts_pass_beside_the_text(llm: OpenAiChat, script: str, member: str, text: str) -> None:
    taken = await answer(llm, script)
    assert (taken.text, taken.joined(member), taken.fault) == (text, THOUGHT, None)


async def test_thoughts_in_parts_and_details_are_not_spoken(llm: OpenAiChat) -> None:
    assert (await answer(llm, "parts")).joined("reasoning_content") == THOUGHT
    details = await answer(llm, "reasoning_details")
    assert details.other == [{"reasoning_details": [{"type": "reasoning.text", "text": THOUGHT}]}]
    assert details.text == "Hello to you."


def calls_of(taken: Taken) -> dict[int, tuple[str, str]]:
    calls: dict[int, tuple[str, str]] = {}
    for other in taken.other:
        for call in other["tool_calls"]:
            name, arguments = calls.get(call["index"], ("", ""))
            function = call["function"]
            calls[call["index"]] = (name + function.get("name", ""), arguments + function.get("arguments", ""))
    return calls


@pytest.mark.parametrize(
    ("script", "text", "calls"),
    [
        ("tool", "", {0: ("get_weather", '{"city": "Paris", "unit": "c"}')}),
        ("tool_text", "Let me look.", {0: ("get_weather", '{"city": "Paris"}')}),
        ("tools2", "", {0: ("get_weather", '{"city": "Paris"}'), 1: ("get_time", '{"zone": "CET"}')}),
        ("tools_noindex", "", {0: ("get_weather", '{"city": "Rome"}'), 1: ("get_time", '{"zone": "CET"}')}),
        ("never_streams_tool", "Let me look.", {0: ("f", "{}"), 1: ("g", "{}")}),
    ],
)
async def test_tool_calls_pass(llm: OpenAiChat, script: str, text: str, calls: dict[int, tuple[str, str]]) -> None:
    taken = await answer(llm, script)
    assert (taken.text, calls_of(taken), taken.finish) == (text, calls, {0: "tool_calls"})


async def test_refusals_and_finish_reasons_are_told(llm: OpenAiChat) -> None:
    refusal = await answer(llm, "refusal")
    assert (refusal.text, refusal.refusal) == ("", "I cannot help with that.")
    assert (await answer(llm, "length")).finish == {0: "length"}
    assert (await answer(llm, "filter")).finish == {0: "content_filter"}
    assert (await answer(llm, "done_only")).fault is None
    assert (await answer(llm, "no_usage")).usage == []


async def test_choices_that_interleave_are_kept_apart(llm: OpenAiChat) -> None:
    taken = await answer(llm, "choices", n=3)
    assert taken.texts == {number: f"Answer {number} is about {number + 2} apples." for number in range(3)}
    assert taken.finish == {0: "stop", 1: "stop", 2: "stop"}


# ---------------------------------------------------------------- faults
@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("cut", "broke off"),
        ("reset", "broke off"),
        ("until_close_cut", "before it was finished"),
        ("malformed", "not a JSON object"),
        ("malformed_text", "not a JSON object"),
        ("malformed_array", "not a JSON object"),
        ("malformed_shape", "wrong shape"),
        ("error_object", "The server had an error."),
        ("error_string", "CUDA out of memory"),
        ("error_event", "overloaded"),
        ("endless_line", "bytes"),
        ("endless_event", "bytes"),
    ],
)
async def test_what_came_before_a_fault_comes_out(llm: OpenAiChat, up: Upstream, script: str, message: str) -> None:
    taken = await answer(llm, script)
    assert taken.text == BEGUN
    assert isinstance(taken.fault, UpstreamBroken)
    assert message in taken.fault.message
    assert taken.finish == {}
    await up.until(lambda up: up.active == 0)


async def test_a_line_without_a_field_is_read_over(llm: OpenAiChat) -> None:
    taken = await answer(llm, "stray_line")
    assert (taken.text, taken.fault) == (BEGUN + PLAIN, None)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("no_finish", "before it was finished"),
        ("error_first", "no t now"),
        ("http200text", "not JSON"),
        ("http200empty", "before it was finished"),
        ("http200error", "model is loading"),
        ("http200other", "not a chat completion"),
    ],
)
async def test_answers_that_are_none_break(llm: OpenAiChat, script: str, message: str) -> None:
    taken = await answer(llm, script)
    assert isinstance(taken.fault, UpstreamBroken)
    assert message in taken.fault.message


@pytest.mark.parametrize("how", ["rst", "fin"])
async def test_a_cut_at_any_byte_ends_and_loses_nothing_whole(llm: OpenAiChat, how: str) -> None:
    said = "Hi, you there."
    seen = ""
    for place in range(1, 1_700, 61):
        taken = await answer(llm, f"cut_at?how={how}&bytes={place}")
        assert said.startswith(taken.text)
        assert taken.text.startswith(seen)
        assert (taken.fault is None) == (taken.finish == {0: "stop"})
        seen = taken.text
    assert seen == said
    assert taken.finish == {0: "stop"}


@pytest.mark.parametrize(
    ("script", "status", "error"),
    [
        ("http400", 400, ("Maximum context length is 4096 tokens.", "invalid_request_error", None)),
        ("http401", 401, ("Incorrect API key provided: sk-***.", "invalid_request_error", None)),
        ("http403", 403, ("Country not supported", "request_forbidden", None)),
        ("http404", 404, ("The model `gone` does not exist", "invalid_request_error", None)),
        ("http422", 400, ("model: field required", "invalid_request_error", "model")),
        ("http429", 429, ("Rate limit reached.", "requests", None)),
        ("http500", 500, ("The server had an error.", "server_error", None)),
        ("http503", 503, ("Overloaded.", "server_error", None)),
    ],
)
async def test_refusals_are_handed_over(llm: OpenAiChat, script: str, status: int, error: tuple[Any, ...]) -> None:
    with pytest.raises(UpstreamRefused) as caught:
        await llm.stream(ask(f"fake-{script}"), {})
    told = caught.value.upstream_error
    assert caught.value.upstream_status == status
    assert (told["message"], told["type"], told["param"]) == error
    assert set(told) == {"message", "type", "param", "code"}
    assert caught.value.headers["x-request-id"] == "req_test"


async def test_quota_headers_travel_and_others_do_not(llm: OpenAiChat) -> None:
    with pytest.raises(UpstreamRefused) as caught:
        await llm.stream(ask("fake-http429"), {})
    expected = {"retry-after": "7", "x-ratelimit-remaining-requests": "0", "x-request-id": "req_test"}
    assert caught.value.headers == expected
    stream = await llm.stream(ask("fake-plain"), {})
    assert stream.headers == {"x-request-id": "req_test", "openai-processing-ms": "5"}
    await stream.aclose()


@pytest.mark.parametrize(
    ("script", "retry_after_s"),
    [("http502html", 3.0), ("http503empty", None), ("http500huge", None), ("http200html", None), ("redirect", None)],
)
async def test_junk_is_a_bad_gateway(llm: OpenAiChat, script: str, retry_after_s: float | None) -> None:
    with pytest.raises(UpstreamFault) as caught:
        await llm.stream(ask(f"fake-{script}"), {})
    assert not isinstance(caught.value, UpstreamRefused)
    assert caught.value.status == 502
    assert caught.value.retry_after_s == retry_after_s
    assert "<" not in caught.value.message


async def test_compressed_streams_are_not_unpacked(llm: OpenAiChat) -> None:
    with pytest.raises(UpstreamFault):
        await llm.stream(ask("fake-gzip"), {})


async def test_our_key_is_not_told_to_clients() -> None:
    async with Upstream(api_key="sk-right") as up:
        llm = OpenAiChat(OpenAiChatSettings(up.base_url, api_key="sk-canary"))
        with pytest.raises(UpstreamRefused) as caught:
            await llm.stream(ask("fake-plain"), {})
        assert caught.value.upstream_status == 401
        assert "sk-canary" not in str(caught.value.upstream_error)
        assert "sk-canary" not in repr(OpenAiChatSettings(up.base_url, api_key="sk-canary"))
        await llm.close()


async def test_text_is_capped(up: Upstream) -> None:
    llm = OpenAiChat(OpenAiChatSettings(up.base_url, max_chars=1_000))
    taken = await answer(llm, "long?tokens=100000")
    assert len(taken.text) == 1_000
    assert isinstance(taken.fault, UpstreamBroken)
    await up.until(lambda up: up.aborted == 1)
    await llm.close()


# ---------------------------------------------------------------- patience
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


# ---------------------------------------------------------------- request
async def test_what_is_sent(llm: OpenAiChat, up: Upstream) -> None:
    request = ask("fake-echo", "Grüße 👩‍👩‍👧", top_k=5, stream_options={"other": 1}, temperature=0.5)
    assert (await take(await llm.stream(request, {}))).text == "Grüße 👩‍👩‍👧"
    (seen,) = up.requests
    assert seen.path == "/v1/chat/completions"
    assert seen.body == {**request, "stream": True, "stream_options": {"other": 1, "include_usage": True}}
    assert seen.headers["content-type"] == "application/json"
    assert seen.headers["accept-encoding"] == "identity"
    assert seen.headers["authorization"] == "Bearer sk-canary"


async def test_usage_need_not_be_asked_for(up: Upstream) -> None:
    llm = OpenAiChat(OpenAiChatSettings(up.base_url, include_usage=False))
    assert (await answer(llm, "plain")).usage == []
    assert "stream_options" not in up.requests[0].body
    await llm.close()


GIVEN = {
    "openai-organization": "org",
    "OpenAI-Project": "proj",
    "idempotency-key": "k1",
    "X-Request-Id": "r1",
    "traceparent": "00-ab-cd-01",
    "Authorization": "Bearer client",
    "Cookie": "a=b",
    "X-Other": "x",
}


async def test_only_some_headers_travel(llm: OpenAiChat, up: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    await take(await llm.stream(ask("fake-short"), GIVEN))
    seen = up.requests[0].headers
    names = ("openai-organization", "openai-project", "idempotency-key", "x-request-id", "traceparent")
    assert [seen[name] for name in names] == ["org", "proj", "k1", "r1", "00-ab-cd-01"]
    assert seen["authorization"] == "Bearer sk-canary"
    assert not {"cookie", "x-other"} & set(seen)
    await take(await llm.stream(ask("fake-short"), {"x-request-id": "a\r\nX-Evil: 1", "traceparent": "x" * 5_000}))
    assert not {"x-request-id", "x-evil", "traceparent", "openai-organization"} & set(up.requests[1].headers)


async def test_the_environment_adds_nothing(up: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "canary")
    llm = OpenAiChat(OpenAiChatSettings(up.base_url))
    await take(await llm.stream(ask("fake-short"), GIVEN | {"openai-organization": "", "OpenAI-Project": ""}))
    assert "canary" not in str(up.requests[0].headers)
    assert not {"authorization", "openai-organization", "openai-project"} & set(up.requests[0].headers)
    await llm.close()


@pytest.mark.parametrize(("own", "sent"), [(None, "Bearer client"), ("sk-own", "Bearer sk-own")])
async def test_the_clients_key_travels_only_if_wanted(up: Upstream, own: str | None, sent: str) -> None:
    llm = OpenAiChat(OpenAiChatSettings(up.base_url, api_key=own, forward_authorization=True))
    await take(await llm.stream(ask("fake-short"), GIVEN))
    assert up.requests[0].headers["authorization"] == sent
    await llm.close()


@pytest.mark.parametrize("value", [float("nan"), object(), {1, 2}])
async def test_what_is_no_json_is_not_sent(llm: OpenAiChat, up: Upstream, value: Any) -> None:
    with pytest.raises(BadRequest):
        await llm.stream(ask("fake-plain", x=value), {})
    assert up.requests == []


@pytest.mark.parametrize(
    "settings",
    [
        {"base_url": "ftp://host/v1"},
        {"base_url": "host/v1"},
        {"base_url": "http://host/v1?a=b"},
        {"base_url": "http://[bad"},
        {"base_url": "http://host:port/v1"},
        {"base_url": "http://user:pass@host/v1"},
        {"base_url": None},
        {"base_url": "http://host/v1", "idle_timeout_s": 0},
        {"base_url": "http://host/v1", "api_key": "a\nb"},
        {"base_url": "http://host/v1", "max_chars": -1},
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        OpenAiChatSettings(**settings)


# ---------------------------------------------------------------- connections
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


# ---------------------------------------------------------------- models
class Listing:
    """A server whose GET /models answers with ``body``."""

    def __init__(self, body: bytes, status: int = 200) -> None:
        self._answer = b"HTTP/1.1 %d X\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (status, len(body)) + body

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self._answer)
        writer.close()


async def models(body: object, status: int = 200) -> Any:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    server = await asyncio.start_server(Listing(raw, status), "127.0.0.1", 0)
    async with server:
        llm = OpenAiChat(OpenAiChatSettings(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"))
        try:
            return await llm.models()
        finally:
            await llm.close()


async def test_models_in_every_form() -> None:
    card = {"id": "a", "object": "model"}
    assert await models({"object": "list", "data": [card]}) == [card]
    assert await models({"models": [card]}) == [card]
    assert await models([card]) == [card]
    assert await models({"models": [{"name": "b"}, {"name": "c", "model": "c:1"}, {}]}) == [
        {"id": "b", "name": "b"},
        {"id": "c:1", "name": "c", "model": "c:1"},
    ]


@pytest.mark.parametrize("body", [b"", b"<html>", {"data": 5}, {"data": [5]}, {}, 5, b"[" * 100_000])
async def test_other_listings_are_faults(body: object) -> None:
    with pytest.raises(UpstreamFault):
        await models(body)


async def test_a_refused_listing_is_told() -> None:
    with pytest.raises(UpstreamRefused) as caught:
        await models({"error": {"message": "no"}}, 403)
    assert (caught.value.upstream_status, caught.value.upstream_error["type"]) == (403, "permission_error")
