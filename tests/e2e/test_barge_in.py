"""A listener who interrupts a chat reply: it stops, and the next turn knows what was heard."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from tests.e2e.chat_helpers import (
    Answer,
    audio_in,
    body_of,
    last_seen,
    lines_of,
    rows_free,
    spoken_as,
    sse,
    streamed,
    upstream_of,
    whole,
)
from tests.e2e.conftest import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONG = " ".join(f"This is sentence number {number} of them all." for number in range(12))
TENANTS = ("anna:key-of-anna", "bert:key-of-bert")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def quick() -> AsyncIterator[Running]:
    """Speaks as fast as it can."""
    async with running(upstream=True) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def talker() -> AsyncIterator[Running]:
    """Speaks in real time, so that an interruption comes in the middle."""
    async with running(upstream=True, engine__tone_realtime_factor=0.5, engine__warm_up=False) as server:
        yield server


def turns(audio_id: str) -> list[Any]:
    spoken = {"role": "assistant", "audio": {"id": audio_id}}
    return [{"role": "user", "content": "first"}, spoken, {"role": "user", "content": "second"}]


async def told(server: Running, audio_id: str) -> str | None:
    """What the model is told was said."""
    await whole(server, "short", messages=turns(audio_id))
    said = [m["content"] for m in last_seen(server).body["messages"] if m["role"] == "assistant"]
    return said[0] if said else None


async def post_heard(server: Running, audio_id: str, key: str = "sk-test", **body: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"}
    return await server.http.post(f"/v1/audio/replies/{audio_id}/heard", json=body, headers=headers)


@pytest.mark.parametrize("mode", ["segment", "live"])
async def test_while_it_speaks(talker: Running, mode: str) -> None:
    audio_id, answer, posted = "", Answer(), None
    asked = body_of(f"plain?text={LONG}", stream=True, **spoken_as("pcm16", mode=mode))
    async with asyncio.timeout(30), sse(talker, asked) as response:
        async for chunk in lines_of(response):
            answer.feed(chunk)
            audio_id = audio_id or audio_in(chunk, "id") or ""
            if posted is None and answer.choices and len(answer.choices[0].pcm) > 2 * 24_000:
                posted = asyncio.create_task(post_heard(talker, audio_id, played_ms=900))
    assert posted is not None
    heard = (await posted).json()
    assert heard["audio_id"] == audio_id
    assert heard["played_ms"] == 900
    assert LONG.startswith(heard["heard_text"])
    assert 0 < len(heard["heard_text"]) < 30
    choice = answer.choices[0]
    assert choice.finish_reason == "stop", "a stream that was stopped ends in order"
    assert len(choice.pcm) < 2 * 24_000 * 8
    await rows_free(talker)
    assert await told(talker, audio_id) == heard["heard_text"]
    assert (await post_heard(talker, audio_id, played_ms=0)).json()["heard_text"] == ""
    assert await told(talker, audio_id) is None, "nothing of it was heard"


async def test_after_it_has_ended(quick: Running) -> None:
    answer = await streamed(quick, f"plain?text={LONG}")
    audio_id = answer.choices[0].audio_id
    assert audio_id
    assert await told(quick, audio_id) == LONG
    texts = []
    for played_ms in (0, 700, 2_000, 5_000, 1e9):
        heard = (await post_heard(quick, audio_id, played_ms=played_ms)).json()
        texts.append(heard["heard_text"])
        assert heard["played_ms"] <= len(answer.choices[0].pcm) / 48
        assert LONG.startswith(heard["heard_text"])
        assert await told(quick, audio_id) == (heard["heard_text"] or None)
        turn = (await quick.service.memory.recall("local", [audio_id]))[audio_id]
        assert turn.cut is (played_ms < 1e9), "what comes next leans on no end that nobody heard"
    assert texts == sorted(texts, key=len)
    assert texts[-1] == LONG[:-1]
    assert (await post_heard(quick, audio_id, played_ms=-5)).json()["played_ms"] == 0


async def test_an_answer_in_one_piece_too(quick: Running) -> None:
    message = (await whole(quick, f"plain?text={LONG}", **spoken_as("mp3"))).choices[0].message
    assert message.audio is not None
    heard = (await post_heard(quick, message.audio.id, played_ms=3_000)).json()["heard_text"]
    assert 0 < len(heard) < len(LONG)
    assert await told(quick, message.audio.id) == heard


@pytest.mark.parametrize("lie", ["5", True, None, [1], {}])
async def test_what_is_no_number_is_refused(quick: Running, lie: Any) -> None:
    audio_id = (await streamed(quick, "short")).choices[0].audio_id
    assert audio_id
    answer = await post_heard(quick, audio_id, played_ms=lie)
    if lie is None:
        assert answer.json()["heard_text"] == "Hi"
    else:
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "played_ms")


@pytest.mark.parametrize("raw", ['{"played_ms": NaN}', '{"played_ms": 1e999}', "[]", "{", ""])
async def test_what_is_no_json_is_refused(quick: Running, raw: str) -> None:
    audio_id = (await streamed(quick, "short")).choices[0].audio_id
    headers = {"content-type": "application/json"}
    answer = await quick.http.post(f"/v1/audio/replies/{audio_id}/heard", content=raw, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


async def test_huge_whole_numbers_are_clamped(quick: Running) -> None:
    audio_id = (await streamed(quick, "short")).choices[0].audio_id
    headers = {"content-type": "application/json"}
    for raw, text in ((json.dumps({"played_ms": 10**300}), "Hi"), (json.dumps({"played_ms": -(10**300)}), "")):
        answer = await quick.http.post(f"/v1/audio/replies/{audio_id}/heard", content=raw, headers=headers)
        assert answer.json()["heard_text"] == text


async def test_others_know_nothing_of_it(start: Any) -> None:
    async with start(upstream=True, auth__api_keys=TENANTS) as server:
        create: Any = server.openai.with_options(api_key="key-of-anna").chat.completions.create
        audio_id = (await create(**body_of("short"))).choices[0].message.audio.id
        errors = []
        for asked in (audio_id, "audio_" + "0" * 32, "x" * 200):
            answer = await post_heard(server, asked, key="key-of-bert", played_ms=1)
            assert answer.status_code == 404
            errors.append(answer.json())
        assert errors[0] == errors[1] == errors[2]
        assert (await post_heard(server, audio_id, key="key-of-anna", played_ms=0)).status_code == 200
        assert (await server.http.post(f"/v1/audio/replies/{audio_id}/heard", json={})).status_code == 401


@pytest.mark.parametrize("mode", ["segment", "live"])
async def test_hanging_up_is_heard_to_the_last_whole_word_that_was_sent(talker: Running, mode: str) -> None:
    before = upstream_of(talker).aborted
    audio_id, sent = "", 0
    asked = body_of(f"gate?after=99&text={LONG}", stream=True, **spoken_as("pcm16", mode=mode))
    async with asyncio.timeout(30), sse(talker, asked) as response:
        async for chunk in lines_of(response):
            audio_id = audio_id or audio_in(chunk, "id") or ""
            sent += len(audio_in(chunk, "data") or "")
            if sent > 2 * 24_000 * 2:
                break
    await upstream_of(talker).until(lambda up: up.aborted == before + 1)
    await rows_free(talker)
    async with asyncio.timeout(10):
        while not await talker.service.memory.recall("local", [audio_id]):
            await asyncio.sleep(0.005)
    heard = await told(talker, audio_id)
    assert heard
    assert LONG.startswith(heard)
    assert len(heard) < len(LONG) / 2
    assert LONG[len(heard)] in " ."


async def test_one_of_two_choices(talker: Running) -> None:
    ids: dict[int, str] = {}
    answer, posted = Answer(), None
    async with asyncio.timeout(60), sse(talker, body_of("plain?text=One two three. Four five six.", stream=True, n=2,
                                                        **spoken_as("pcm16", mode="live"))) as response:  # fmt: skip
        async for chunk in lines_of(response):
            answer.feed(chunk)
            ids = {index: choice.audio_id for index, choice in answer.choices.items() if choice.audio_id}
            if posted is None and len(ids) == 2:
                posted = asyncio.create_task(post_heard(talker, ids[1], played_ms=0))
    assert posted is not None
    assert (await posted).status_code == 200
    assert len(answer.choices[1].pcm) < len(answer.choices[0].pcm)
    assert [answer.choices[index].finish_reason for index in (0, 1)] == ["stop", "stop"]
    assert await told(talker, ids[0]) == "One two three. Four five six."
    assert await told(talker, ids[1]) is None
