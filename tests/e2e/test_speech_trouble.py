"""POST /v1/audio/speech when something fails: the engine, the room, the client."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import httpx
import httpx2
import openai
import pytest

from tests.e2e.conftest import Running
from tests.e2e.speech_tools import SPEECH, events, metric, omni_error, openai_error, tone_s, wav

TEXT = "A sentence that takes the engine some chunks to say, one after another."
PCM = {"input": TEXT, "response_format": "pcm", "seed": 1}


async def read_until_cut(server: Running, asked: dict[str, Any]) -> bytes:
    """The body of a 200 that breaks off: never a tidy end."""
    body = b""
    async with server.http.stream("POST", SPEECH, json=asked) as answer:
        assert answer.status_code == 200
        try:
            async for piece in answer.aiter_bytes():
                body += piece
        except httpx.RemoteProtocolError:
            return body
    raise AssertionError("the body ended as if it were whole")


# ---------------------------------------------------------------- before the first byte
@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        ("open", 500, "engine_error"),
        ("first_chunk", 500, "engine_error"),
        ("nan", 500, "engine_error"),
        ("mid", 500, "engine_error"),
        ("hang", 503, "engine_lost"),
    ],
)
async def test_a_failure_before_the_first_byte_is_an_answer(start: Any, fault: str, status: int, code: str) -> None:
    flags = {"engine__tone_fault": fault, "engine__tone_fault_every": 2, "engine__warm_up": False}
    async with start(**flags, engine__chunk_timeout_s=0.2) as faulty:
        asks: list[dict[str, Any]] = [
            {"input": TEXT, "seed": 1},
            {"input": TEXT, "seed": 1, "model": "tts-1", "response_format": "wav"},
        ]
        if fault in ("open", "first_chunk", "nan"):
            asks += [{**PCM, "stream": True}, {**PCM, "stream_format": "audio"}, {"input": TEXT, "model": "tts-1"}]
        for asked in asks:
            assert (await faulty.http.post(SPEECH, json=asked)).status_code == 200
            answer = await faulty.http.post(SPEECH, json=asked)
            if "model" in asked:
                assert openai_error(answer, status)["code"] == code
            else:
                omni_error(answer, status)
            assert answer.headers["x-should-retry"] == ("true" if fault == "hang" else "false")
        await faulty.rows_free()
        outcome = {"name": "sidecar_replies_total", "endpoint": "speech"}
        failed = 0 if fault == "open" else len(asks)
        assert await metric(faulty, outcome="failed", **outcome) == failed
        assert await metric(faulty, outcome="completed", **outcome) == len(asks)
        assert await metric(faulty, "sidecar_faults_total", code=code) == len(asks)


async def test_silence_is_an_answer(start: Any) -> None:
    async with start(engine__tone_fault="silence", engine__warm_up=False) as faulty:
        data = wav((await faulty.http.post(SPEECH, json={"input": TEXT})).content).data
    assert data == bytes(round(tone_s(TEXT) * 48_000))


# ---------------------------------------------------------------- after it
@pytest.mark.parametrize("fault", ["mid", "hang"])
async def test_a_stream_that_fails_breaks_off(start: Any, fault: str) -> None:
    async with start(engine__tone_fault=fault, engine__chunk_timeout_s=0.2, engine__warm_up=False) as faulty:
        raw = await read_until_cut(faulty, {**PCM, "stream_format": "audio"})
        assert 0 < len(raw) < round(tone_s(TEXT) * 48_000)
        assert await read_until_cut(faulty, {**PCM, "model": "tts-1"}) == raw
        await faulty.rows_free()


async def test_the_failure_of_a_stream_is_told_as_well_as_can_be(start: Any) -> None:
    """The SDK hears that the body broke off; in server-sent events an error comes before."""
    async with start(engine__tone_fault="mid", engine__warm_up=False) as faulty:
        ask = faulty.openai.audio.speech.with_streaming_response.create
        async with ask(model="tts-1", voice="alloy", input=TEXT, response_format="pcm") as answer:
            with pytest.raises(httpx2.RemoteProtocolError):
                await answer.read()
        omni = events((await read_until_cut(faulty, {**PCM, "stream": True})).decode())
        openais = events((await read_until_cut(faulty, {**PCM, "model": "tts-1", "stream_format": "sse"})).decode())
    name, last = omni[-1]
    assert name == last["type"] == "speech.audio.error"
    assert last["error"]["message"]
    assert {key: last["error"][key] for key in ("type", "param", "code", "partial_audio", "action")} == {
        "type": "server_error",
        "param": None,
        "code": 500,
        "partial_audio": True,
        "action": "discard",
    }
    name, last = openais[-1]
    assert name is None
    assert last["type"] == "error"
    assert last["error"]["code"] == "engine_error"
    for found in (omni, openais):
        deltas = [data for _, data in found[:-1]]
        assert {data["type"] for data in deltas} == {"speech.audio.delta"}
        assert b"".join(base64.b64decode(data["audio"]) for data in deltas)


async def test_comments_keep_a_slow_event_stream_awake(start: Any) -> None:
    flags = {"engine__tone_fault": "hang", "engine__chunk_timeout_s": 0.6, "engine__warm_up": False}
    async with start(**flags, server__keep_alive_comment_s=0.1) as slow:
        text = (await read_until_cut(slow, {**PCM, "stream": True})).decode()
    assert "\n\n: keep-alive\n\n" in text
    assert [data["type"] for _, data in events(text)] == ["speech.audio.delta", "speech.audio.error"]


# ---------------------------------------------------------------- no room
async def test_no_place_is_a_429(start: Any) -> None:
    flags = {"server__max_replies": 1, "server__queue_replies": 0, "engine__tone_fault": "hang"}
    async with start(**flags, engine__warm_up=False) as full:
        async with full.http.stream("POST", SPEECH, json={**PCM, "stream_format": "audio"}) as answer:
            assert answer.status_code == 200
            assert await metric(full, "sidecar_active_replies") == 1
            refused = await full.http.post(SPEECH, json=PCM)
            assert omni_error(refused, 429)["message"]
            assert int(refused.headers["retry-after"]) >= 1
            assert refused.headers["x-should-retry"] == "true"
            with pytest.raises(openai.RateLimitError) as limited:
                await full.openai.audio.speech.create(model="tts-1", voice="alloy", input=TEXT)
            assert (limited.value.code, limited.value.type) == ("overloaded", "rate_limit_error")
        await full.rows_free()
        while await metric(full, "sidecar_active_replies"):
            await asyncio.sleep(0.005)
        async with full.http.stream("POST", SPEECH, json={**PCM, "stream_format": "audio"}) as answer:
            assert answer.status_code == 200


async def test_who_waits_for_a_place_gets_it_in_turn(start: Any) -> None:
    flags = {"server__max_replies": 1, "server__queue_replies": 8, "server__queue_wait_ms": 60_000}
    async with start(**flags) as narrow:
        answers = await asyncio.gather(*(narrow.http.post(SPEECH, json=PCM) for _ in range(8)))
    assert [answer.status_code for answer in answers] == [200] * 8


async def test_who_waits_too_long_is_turned_away(start: Any) -> None:
    flags = {"server__max_replies": 1, "server__queue_wait_ms": 50, "engine__tone_fault": "hang"}
    async with (
        start(**flags, engine__warm_up=False) as full,
        full.http.stream("POST", SPEECH, json={**PCM, "stream_format": "audio"}) as answer,
    ):
        assert answer.status_code == 200
        omni_error(await full.http.post(SPEECH, json=PCM), 429)


async def test_an_engine_without_room_is_a_503(start: Any) -> None:
    flags = {"engine__max_rows": 1, "engine__row_wait_ms": 0, "engine__tone_fault": "hang"}
    async with start(**flags, engine__warm_up=False) as full:
        async with full.http.stream("POST", SPEECH, json={**PCM, "stream_format": "audio"}) as answer:
            assert answer.status_code == 200
            refused = await full.http.post(SPEECH, json={**PCM, "model": "tts-1"})
            assert openai_error(refused, 503)["code"] == "engine_overloaded"
            assert int(refused.headers["retry-after"]) >= 1
            assert refused.headers["x-should-retry"] == "true"
        await full.rows_free()


# ---------------------------------------------------------------- clients that leave
async def left(server: Running, replies: int) -> None:
    """Wait until so many replies have ended as left by their clients, and nothing is held for them."""
    await server.rows_free()
    while await metric(server, "sidecar_replies_total", endpoint="speech", outcome="cancelled") < replies:
        await asyncio.sleep(0.005)
    assert await metric(server, "sidecar_replies_total", endpoint="speech", outcome="failed") == 0


async def test_a_client_that_leaves_a_stream_frees_its_row(start: Any) -> None:
    async with start(engine__tone_realtime_factor=1.0, engine__warm_up=False) as server:
        for replies, delivery in enumerate(["audio", "sse"], 1):
            async with server.http.stream("POST", SPEECH, json={**PCM, "stream_format": delivery}) as answer:
                assert await anext(answer.aiter_bytes())
            await left(server, replies)
        assert await metric(server, "sidecar_active_replies") == 0


async def test_a_client_that_does_not_wait_frees_its_row(start: Any) -> None:
    async with start(engine__tone_first_chunk_delay_ms=60_000, engine__warm_up=False) as slow:
        for replies, members in enumerate([{}, {"stream_format": "audio"}, {"model": "tts-1"}], 1):
            asking = asyncio.create_task(slow.http.post(SPEECH, json={**PCM, **members}))
            while not (await slow.service.engine.health()).active_rows:
                await asyncio.sleep(0.005)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            await left(slow, replies)


async def test_a_body_that_does_not_arrive(start: Any) -> None:
    async with start(server__body_timeout_s=0.2) as hasty:
        host, port = hasty.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"POST {SPEECH} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n"
        writer.write(head.encode() + b'{"input": ')
        assert (await reader.readline()).split()[1] == b"400"
        answer = await reader.readuntil(b"}}")
        assert "in time" in json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"]
        writer.close()
