"""Answers that fail: before the first byte with a status, after it with an error event and a broken body."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest
import pytest_asyncio

from segmenter import SegmentStream
from tests.e2e.chat_helpers import (
    Answer,
    Wire,
    audio_in,
    body_of,
    last_seen,
    lines_of,
    rows_free,
    spoken_as,
    sse,
    upstream_of,
    whole,
    wire,
)
from tests.e2e.conftest import Running, running
from tests.upstream_scripts import PLAIN, pieces_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

BEFORE_THE_END = "".join(pieces_of(PLAIN)[:12])
"""What the scripts that break off have said by then."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Running]:
    """One server for all: a failure leaves nothing behind that another answer could notice."""
    async with running(upstream=True) as server:
        yield server


def broken(seen: Wire) -> tuple[dict[str, Any], Answer]:
    """The error object of a stream that failed, and what came before it, held to the rules."""
    assert seen.broken
    assert "[DONE]" not in seen.data
    error = seen.error
    assert error is not None
    assert set(error) == {"message", "type", "param", "code"}
    answer = Answer()
    for chunk in seen.chunks[:-1]:
        answer.feed(chunk)
    assert not any(choice.finish_reason for choice in answer.choices.values())
    return error, answer


# ---------------------------------------------------------------- the upstream's own errors
@pytest.mark.parametrize(
    ("script", "kind", "status", "code"),
    [
        ("http400", openai.BadRequestError, 400, "context_length_exceeded"),
        ("http401", openai.AuthenticationError, 401, "invalid_api_key"),
        ("http403", openai.PermissionDeniedError, 403, "unsupported_country"),
        ("http404", openai.NotFoundError, 404, "model_not_found"),
        ("http422", openai.BadRequestError, 400, None),
        ("http429", openai.RateLimitError, 429, "rate_limit_exceeded"),
        ("http500", openai.InternalServerError, 500, None),
        ("http502html", openai.InternalServerError, 502, "upstream_error"),
        ("http503", openai.InternalServerError, 503, None),
        ("http503empty", openai.InternalServerError, 502, "upstream_error"),
        ("http200html", openai.InternalServerError, 502, "upstream_error"),
        ("redirect", openai.InternalServerError, 502, "upstream_error"),
        ("gzip", openai.InternalServerError, 502, "upstream_error"),
        ("never_there", openai.NotFoundError, 404, "model_not_found"),
    ],
)
async def test_the_upstreams_errors_come_as_the_sdk_knows_them(
    shared: Running, script: str, kind: type[openai.APIStatusError], status: int, code: str | None
) -> None:
    for stream in (False, True):
        with pytest.raises(kind) as caught:
            await whole(shared, script, stream=stream)
        error = caught.value
        assert (error.status_code, error.code) == (status, code)
        assert error.type
        assert error.request_id
        assert isinstance(error.body, dict)
        assert set(error.body) == {"message", "type", "param", "code"}
        assert "<" not in error.message


async def test_what_a_client_needs_to_wait_for_is_passed_on(shared: Running) -> None:
    with pytest.raises(openai.RateLimitError) as caught:
        await whole(shared, "http429")
    headers = caught.value.response.headers
    assert headers["retry-after"] == "7"
    assert headers["x-ratelimit-remaining-requests"] == "0"
    assert "set-cookie" not in headers
    before = len(upstream_of(shared).requests)
    for script in ("http429", "http500", "http503"):
        with pytest.raises(openai.APIStatusError):
            await whole(shared, script)
    assert len(upstream_of(shared).requests) == before + 3, "an error is not tried again here"


async def test_an_upstream_that_wants_audio_in_writes_its_own_error(shared: Running) -> None:
    with pytest.raises(openai.BadRequestError, match="assistant message must have content"):
        await whole(shared, "plain", messages=[{"role": "assistant", "content": None}])
    with pytest.raises(openai.BadRequestError, match="model and messages are needed"):
        await whole(shared, "plain", messages=None)


# ---------------------------------------------------------------- the upstream breaks off
BREAKS = {
    "cut": "upstream_broken",
    "reset": "upstream_broken",
    "until_close_cut": "upstream_broken",
    "malformed": "upstream_broken",
    "malformed_text": "upstream_broken",
    "malformed_array": "upstream_broken",
    "malformed_shape": "upstream_broken",
    "error_object": "upstream_broken",
    "error_string": "upstream_broken",
    "error_event": "upstream_broken",
    "endless_line": "upstream_broken",
}


@pytest.mark.parametrize("script", BREAKS)
async def test_all_that_was_received_is_spoken_before_the_error(shared: Running, script: str) -> None:
    seen = await wire(shared, body_of(script, stream=True, **spoken_as("pcm16", segments=True)))
    error, answer = broken(seen)
    assert error["code"] == BREAKS[script]
    assert error["type"] == "upstream_error"
    choice = answer.choices[0]
    assert choice.transcript == BEFORE_THE_END
    started = [mark for mark in choice.marks if mark["type"] == "started"]
    assert "".join(mark["text"] for mark in started) == BEFORE_THE_END
    ended = [mark for mark in choice.marks if mark["type"] == "ended"]
    assert len(ended) == len(started)
    assert not any("error" in mark for mark in ended)
    assert choice.pieces
    with pytest.raises(openai.InternalServerError) as caught:
        await whole(shared, script)
    assert (caught.value.status_code, caught.value.code) == (502, BREAKS[script])
    await rows_free(shared)


async def test_an_error_of_the_upstream_before_any_word(shared: Running) -> None:
    for script in ("error_first", "no_finish", "http200error", "http200other", "http200empty", "http200text"):
        error, _ = broken(await wire(shared, body_of(script, stream=True)))
        assert error["code"] == "upstream_broken"
        assert error["message"].isprintable()
        with pytest.raises(openai.InternalServerError) as caught:
            await whole(shared, script)
        assert caught.value.status_code == 502


async def test_every_place_where_a_stream_can_be_cut_ends_in_an_error(shared: Running) -> None:
    """Never a tidy end, and never more than had come."""
    size = len(upstream_bytes())
    for at in range(1, size, 97):
        for how in ("fin", "rst"):
            seen = await wire(shared, body_of(f"cut_at?bytes={at}&how={how}", stream=True))
            if seen.data[-1] == "[DONE]":
                assert at > size - 250, "only behind the finish reason is nothing lost"
                continue
            error, answer = broken(seen)
            assert error["code"] == "upstream_broken"
            said = "".join(choice.transcript for choice in answer.choices.values())
            assert "Hi, you there.".startswith(said)


def upstream_bytes() -> bytes:
    """The stream that ``cut_at`` cuts, whole."""
    from tests.upstream_answer import Call, Script
    from tests.upstream_scripts import say

    frames = Call({"model": "m" * 20, "messages": []}, {}, Script(say("Hi, you there."), role="no")).frames()
    return b"".join(frame for frame in frames if isinstance(frame, bytes))


async def test_the_sdk_raises_what_a_broken_stream_says(shared: Running) -> None:
    create: Any = shared.openai.chat.completions.create
    for script in ("cut", "error_object"):
        stream = await create(**body_of(script, stream=True))
        answer = Answer()

        async def listen(stream: Any, answer: Answer) -> None:
            async for chunk in stream:
                answer.feed(chunk.to_dict())

        with pytest.raises(openai.APIError) as caught:
            await listen(stream, answer)
        assert answer.choices[0].transcript == BEFORE_THE_END
        assert answer.choices[0].finish_reason is None
        assert caught.value.code == "upstream_broken"


async def test_two_choices_break_off_together(shared: Running) -> None:
    error, answer = broken(await wire(shared, body_of("cut", stream=True, n=2)))
    assert error["code"] == "upstream_broken"
    assert answer.choices[0].transcript == BEFORE_THE_END


# ---------------------------------------------------------------- patience
async def test_a_silent_upstream_is_given_up(start: Any) -> None:
    async with start(upstream=True, llm__first_token_timeout_s=0.3, llm__idle_timeout_s=0.3) as server:
        for script in ("stall_first", "only_comments"):
            error, _ = broken(await wire(server, body_of(script, stream=True)))
            assert (error["code"], error["type"]) == ("upstream_timeout", "upstream_error")
        error, answer = broken(await wire(server, body_of("stall", stream=True)))
        assert error["code"] == "upstream_timeout"
        assert answer.choices[0].transcript == BEFORE_THE_END
        with pytest.raises(openai.InternalServerError) as caught:
            await whole(server, "gate_status")
        assert (caught.value.status_code, caught.value.code) == (504, "upstream_timeout")
        await upstream_of(server).until(lambda up: up.active == 0)
        await rows_free(server)


async def test_a_fragment_is_spoken_when_the_model_pauses(start: Any) -> None:
    async with start(upstream=True, chat__idle_flush_ms=50, chat__first_by_clause=False) as server:
        up = upstream_of(server)
        answer = Answer()
        text = "No end of this is in sight for anybody who listens"
        asked = body_of(f"gate?after=99&text={text}", stream=True, **spoken_as("pcm16", segments=True))
        async with sse(server, asked) as response:
            async for chunk in lines_of(response):
                answer.feed(chunk)
                if audio_in(chunk, "data") and not up.gate.is_set():
                    assert up.active == 1
                    up.gate.set()
        first = answer.finish().choices[0].marks[0]
        assert first["text"] == "No end of this is in sight for anybody who "


# ---------------------------------------------------------------- the engine breaks off
@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        ("open", 500, "engine_error"),
        ("first_chunk", 500, "engine_error"),
        ("mid", 500, "engine_error"),
        ("nan", 500, "engine_error"),
        ("hang", 503, "engine_lost"),
    ],
)
async def test_an_engine_that_fails(start: Any, fault: str, status: int, code: str) -> None:
    async with start(
        upstream=True, engine__tone_fault=fault, engine__chunk_timeout_s=0.2, engine__warm_up=False
    ) as server:
        up = upstream_of(server)
        error, answer = broken(await wire(server, body_of("gate", stream=True)))
        assert error["code"] == code
        assert error["type"] == "server_error"
        assert bool(answer.choices[0].pieces) == (fault in ("mid", "hang"))
        await up.until(lambda up: up.active == 0)
        assert last_seen(server).ended == "client_left"
        with pytest.raises(openai.InternalServerError) as caught:
            await whole(server, "gate")
        assert (caught.value.status_code, caught.value.code) == (status, code)
        assert caught.value.response.headers["x-should-retry"] == ("true" if status == 503 else "false")
        await up.until(lambda up: up.active == 0)
        await rows_free(server)
        text = body_of("short", modalities=["text"])
        assert (await server.http.post("/v1/chat/completions", json=text)).status_code == 200


async def test_a_later_segment_that_fails_keeps_what_was_heard(start: Any) -> None:
    async with start(upstream=True, engine__tone_fault="first_chunk", engine__tone_fault_every=3) as server:
        # The warm-up was the engine's first utterance: the second segment is its third.
        text = "The first of them is fine. The second of them will fail. The third is never heard."
        error, answer = broken(
            await wire(server, body_of("echo", text, stream=True, **spoken_as("pcm16", segments=True)))
        )
        assert error["code"] == "engine_error"
        marks = answer.choices[0].marks
        assert [mark["type"] for mark in marks if mark["index"] == 0] == ["started", "ended"]
        assert answer.choices[0].pieces
        assert not [mark for mark in marks if mark["index"] == 2]


async def test_what_nobody_foresaw_is_told_without_details(shared: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **more: Any) -> Any:
        raise RuntimeError("secret details")

    monkeypatch.setattr(shared.service.codec, "start", fail)
    error, _ = broken(await wire(shared, body_of("plain", stream=True)))
    assert error == {"message": "Internal error.", "type": "server_error", "param": None, "code": None}
    with pytest.raises(openai.InternalServerError) as caught:
        await whole(shared, "plain")
    assert caught.value.status_code == 500
    assert "secret" not in str(caught.value.body)
    await upstream_of(shared).until(lambda up: up.active == 0)
    await rows_free(shared)


@pytest.mark.parametrize("step", ["feed", "idle", "flush"])
async def test_a_segmenter_that_fails_leaves_nobody_waiting(
    shared: Running, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*args: Any, **more: Any) -> Any:
        raise RuntimeError("secret details")

    up = upstream_of(shared)
    up.gate.clear()
    monkeypatch.setattr(SegmentStream, step, fail)
    if step == "flush":
        up.gate.set()
    error, _ = broken(await wire(shared, body_of("gate", stream=True)))
    assert error["message"] == "Internal error."
    await up.until(lambda up: up.active == 0)
    await rows_free(shared)


async def test_a_reply_that_grows_too_long_ends_with_an_error_and_never_hangs(start: Any) -> None:
    """Also when its last piece is held back because it could be a tag."""
    async with start(upstream=True, chat__max_reply_chars=40, chat__max_segment_chars=40) as server:
        for text in ("This is a reply that is far too long for anybody.", "This is a reply which is far too long <th"):
            async with asyncio.timeout(30):
                error, answer = broken(await wire(server, body_of("echo", text, stream=True)))
            assert error["code"] == "request_too_large"
            assert text.startswith(answer.choices[0].transcript)
        await rows_free(server)


async def test_a_broken_body_is_an_error_for_a_plain_http_client(shared: Running) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        await shared.http.post("/v1/chat/completions", json=body_of("cut", stream=True))
