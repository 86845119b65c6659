"""Many clients at once, clients that leave, and clients that do not read."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest
import pytest_asyncio

from sidecar.ports import AudioChunk, Engine, Speaking, Utterance
from tests.e2e.chat_helpers import (
    CHAT,
    Answer,
    audio_in,
    body_of,
    last_seen,
    lines_of,
    rows_free,
    sse,
    streamed,
    until,
    upstream_of,
    whole,
)
from tests.e2e.conftest import KEY, Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Running]:
    """One server for all, whose engine speaks no faster than a human."""
    async with running(upstream=True, engine__tone_realtime_factor=1, chat__idle_flush_ms=100) as server:
        yield server


async def metric(server: Running, name: str) -> float:
    text = (await server.http.get("/metrics")).text
    return next(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name + " "))


async def all_is_quiet(server: Running) -> None:
    """The upstream saw the last client leave, and nothing of its answer is left here."""
    await upstream_of(server).until(lambda up: up.active == 0)
    assert last_seen(server).ended == "client_left"
    await rows_free(server)
    async with asyncio.timeout(10):
        while await metric(server, "sidecar_active_replies"):
            await asyncio.sleep(0.005)


async def raw_request(server: Running, body: dict[str, Any], *, receive_bytes: int | None = None) -> socket.socket:
    """A request on a bare socket; nothing of the answer is read."""
    where = urlsplit(server.url)
    sock = socket.socket()
    if receive_bytes is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, (where.hostname, where.port))
    content = json.dumps(body).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
    await loop.sock_sendall(sock, f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    return sock


def vanish(sock: socket.socket) -> None:
    """Reset the connection."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


class Counting:
    """An engine that counts the samples it gave."""

    def __init__(self, engine: Engine) -> None:
        self.samples = 0
        self._open = engine.open

    async def open(self, utterance: Utterance) -> Speaking:
        return _Counted(self, await self._open(utterance))


class _Counted:
    def __init__(self, counting: Counting, speaking: Speaking) -> None:
        self._counting = counting
        self._speaking = speaking
        self.language = speaking.language
        self.text_tokens = speaking.text_tokens

    async def chunks(self) -> AsyncIterator[AudioChunk]:
        async for chunk in self._speaking.chunks():
            self._counting.samples += len(chunk.pcm)
            yield chunk

    def append(self, text: str) -> None:
        self._speaking.append(text)

    def finish(self) -> None:
        self._speaking.finish()

    def cancel(self) -> None:
        self._speaking.cancel()


# ---------------------------------------------------------------- together
async def test_eight_at_once_each_hear_their_own_words(start: Any) -> None:
    async with start(upstream=True) as server:
        texts = [f"Caller {number} says {'so much ' * number}. Is that right? It is." for number in range(8)]
        listening = [asyncio.create_task(streamed(server, "echo", text, usage=True)) for text in texts]
        waiting = [asyncio.create_task(whole(server, "echo", text)) for text in texts]
        for text, stream, answer in zip(texts, listening, waiting, strict=True):
            assert (await stream).choices[0].transcript == text
            audio = (await answer).choices[0].message.audio
            assert audio is not None
            assert audio.transcript == text
        assert len({stream.result().choices[0].audio_id for stream in listening}) == 8
        await rows_free(server)


# ---------------------------------------------------------------- leaving
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("modalities", [["text"], ["text", "audio"]])
async def test_leaving_before_the_model_has_answered_at_all(
    shared: Running, stream: bool, modalities: list[str]
) -> None:
    create: Any = shared.openai.chat.completions.create
    task = asyncio.create_task(create(**body_of("gate_status", modalities=modalities, stream=stream)))
    await upstream_of(shared).until(lambda up: up.active == 1 and up.requests[-1].began.is_set())
    task.cancel()
    await all_is_quiet(shared)


async def test_cancelling_a_whole_answer_stops_model_and_engine(shared: Running) -> None:
    task = asyncio.create_task(whole(shared, "gate"))
    engine = shared.service.engine
    async with asyncio.timeout(20):
        while not (await engine.health()).active_rows:
            await asyncio.sleep(0.005)
    task.cancel()
    await all_is_quiet(shared)


@pytest.mark.parametrize("how", ["close", "break", "cancel"])
async def test_leaving_a_stream_stops_model_and_engine(shared: Running, how: str) -> None:
    heard = asyncio.Event()

    async def listen() -> None:
        create: Any = shared.openai.chat.completions.create
        stream = await create(**body_of("gate", stream=True))
        async for chunk in stream:
            if audio_in(chunk.to_dict(), "data"):
                heard.set()
                if how == "close":
                    await stream.close()
                if how == "break":
                    break
        if how == "break":
            await stream.response.aclose()

    task = asyncio.create_task(listen())
    await heard.wait()
    if how == "cancel":
        task.cancel()
    await all_is_quiet(shared)
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_vanishes_is_noticed(shared: Running, stream: bool) -> None:
    sock = await raw_request(shared, body_of("gate", stream=stream))
    async with asyncio.timeout(20):
        while not (await shared.service.engine.health()).active_rows:
            await asyncio.sleep(0.005)
    vanish(sock)
    await all_is_quiet(shared)


async def test_a_client_that_leaves_within_its_request_is_no_failure(
    shared: Running, caplog: pytest.LogCaptureFixture
) -> None:
    gone = await metric(shared, 'sidecar_faults_total{code="client_gone"}')
    where = urlsplit(shared.url)
    _, writer = await asyncio.open_connection(where.hostname, where.port)
    writer.write(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n".encode())
    writer.write(b'Content-Length: 1000\r\n\r\n{"model"')
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    await streamed(shared, "short")
    async with asyncio.timeout(10):
        while await metric(shared, 'sidecar_faults_total{code="client_gone"}') == gone:
            await asyncio.sleep(0.005)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def our_tasks() -> int:
    """Tasks that run code of the server's own."""
    codes = [getattr(task.get_coro(), "cr_code", None) for task in asyncio.all_tasks()]
    return sum("/sidecar/" in code.co_filename or "/adapters/" in code.co_filename for code in codes if code)


async def test_clients_leave_anywhere_and_nothing_stays(start: Any) -> None:
    """Wherever an answer is cut, its rows, its place and its tasks come back."""
    async with start(upstream=True, server__max_replies=8, server__queue_replies=0) as server:
        before = our_tasks()

        async def leave(after_chunks: int) -> None:
            async with sse(server, body_of("plain", stream=True)) as response:
                chunks = lines_of(response)
                for _ in range(after_chunks):
                    await anext(chunks)

        for first in range(0, 40, 8):
            await asyncio.gather(*(leave(first + at) for at in range(8)))
            await rows_free(server)
            async with asyncio.timeout(10):
                while await metric(server, "sidecar_active_replies"):
                    await asyncio.sleep(0.002)
        await upstream_of(server).until(lambda up: up.active == 0)
        await until(lambda: our_tasks() == before)


# ---------------------------------------------------------------- not reading
async def test_a_client_that_does_not_read_is_held_back_and_cut_off(start: Any, monkeypatch: Any) -> None:
    async with start(upstream=True, server__slow_consumer_s=1) as server:
        engine = Counting(server.service.engine)
        monkeypatch.setattr(server.service.engine, "open", engine.open)
        deaf = await raw_request(server, body_of("long", stream=True), receive_bytes=4_096)
        await until(lambda: engine.samples > 0)
        # Others are served meanwhile.
        text = "And I am heard."
        assert (await streamed(server, "echo", text)).choices[0].transcript == text
        await upstream_of(server).until(lambda up: up.requests[0].over.is_set(), timeout_s=30)
        await rows_free(server)
        # 20,000 words would be two hours of sound; what fits into the sockets is all that was made.
        assert engine.samples < 15 * 60 * 24_000
        raw = await read_to_the_end(deaf)
        assert raw.startswith(b"HTTP/1.1 200")
        assert b"[DONE]" not in raw
        assert not raw.endswith(b"0\r\n\r\n")
        assert await metric(server, "sidecar_active_replies") == 0


async def test_a_whole_answer_is_not_kept_for_a_client_that_does_not_read(
    start: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with start(upstream=True, server__slow_consumer_s=0.5) as server:
        deaf = await raw_request(server, body_of("long?tokens=300"), receive_bytes=4_096)
        await until(lambda: "a streamed answer broke off: slow_consumer" in caplog.messages)
        head, _, content = (await read_to_the_end(deaf)).partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split()[0])
        assert 0 < len(content) < length
        assert await metric(server, "sidecar_active_replies") == 0


async def read_to_the_end(sock: socket.socket) -> bytes:
    raw = bytearray()
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(20):
        try:
            while piece := await loop.sock_recv(sock, 1 << 16):
                raw += piece
        except ConnectionResetError:
            pass
    sock.close()
    return bytes(raw)


async def test_silence_is_filled_with_comments(start: Any) -> None:
    async with start(upstream=True, server__keep_alive_comment_s=0.1) as server:
        up = upstream_of(server)
        async with sse(server, body_of("gate_first", stream=True)) as response:
            comments = 0
            answer = Answer()
            async for line in response.aiter_lines():
                if line == ": keep-alive":
                    comments += 1
                    if comments == 3:
                        up.gate.set()
                elif line.startswith("data: {"):
                    answer.feed(json.loads(line[6:]))
            answer.finish()
            assert comments >= 3
        up.gate.clear()
        asked = asyncio.create_task(streamed(server, "gate_first"))
        await up.until(lambda up: up.active == 1)
        await asyncio.sleep(0.15)
        up.gate.set()
        assert (await asked).choices[0].transcript


# ---------------------------------------------------------------- too many
async def test_over_capacity_is_told_at_once(start: Any) -> None:
    async with start(upstream=True, server__max_replies=1, server__queue_replies=0) as server:
        up = upstream_of(server)
        first = asyncio.create_task(streamed(server, "gate"))
        await up.until(lambda up: up.active == 1)
        for stream in (False, True):
            with pytest.raises(openai.RateLimitError) as caught:
                await whole(server, "plain", stream=stream)
            assert (caught.value.code, caught.value.type) == ("overloaded", "rate_limit_error")
            assert int(caught.value.response.headers["retry-after"]) >= 1
            assert caught.value.response.headers["x-should-retry"] == "true"
        assert len(up.requests) == 1
        await whole_text(server)
        up.gate.set()
        await first
        await streamed(server, "plain")
        with pytest.raises(openai.RateLimitError):
            await whole(server, "plain", n=2)


async def whole_text(server: Running) -> None:
    """A text-only request needs no place."""
    answer = await server.http.post(CHAT, json=body_of("short", modalities=["text"]))
    assert answer.status_code == 200


async def test_a_place_in_the_queue_is_taken_when_it_comes_free(start: Any) -> None:
    async with start(
        upstream=True, server__max_replies=1, server__queue_replies=1, server__queue_wait_ms=60_000
    ) as server:
        up = upstream_of(server)
        first = asyncio.create_task(streamed(server, "gate"))
        await up.until(lambda up: up.active == 1)
        second = asyncio.create_task(streamed(server, "plain"))
        await until(lambda: len(server.service._admission.waiting) == 1)
        with pytest.raises(openai.RateLimitError):
            await whole(server, "plain")
        assert not second.done()
        assert len(up.requests) == 1
        up.gate.set()
        await first
        await second


async def test_who_leaves_the_queue_takes_no_place(start: Any) -> None:
    async with start(
        upstream=True, server__max_replies=1, server__queue_replies=1, server__queue_wait_ms=60_000
    ) as server:
        up = upstream_of(server)
        first = asyncio.create_task(streamed(server, "gate"))
        await up.until(lambda up: up.active == 1)
        for _ in range(3):
            sock = await raw_request(server, body_of("plain", stream=True))
            await until(lambda: len(server.service._admission.waiting) == 1)
            vanish(sock)
            await until(lambda: not server.service._admission.waiting)
        up.gate.set()
        await first
        assert len(up.requests) == 1
        await streamed(server, "plain")
