"""Chat answers in live mode over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import openai
import pytest
import pytest_asyncio

from sidecar.faults import ConfigError
from tests.e2e.chat_helpers import CHAT, body_of, lines_of, sse, streamed, unbase64, whole
from tests.e2e.conftest import Running, config_with, running
from tests.e2e.speech_tools import metric

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONG = " ".join(f"This is sentence number {number} of them all." for number in range(12))
STEP = 10 ** (-54 / 20)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Running]:
    async with running(upstream=True, chat__live_roll_tokens=40) as server:
        yield server


def live(**more: Any) -> dict[str, Any]:
    return {"audio": {"voice": "alloy", "format": "pcm16", "mode": "live", "seed": 5, "segments": True, **more}}


async def test_a_live_answer_is_whole_in_order_and_says_so(shared: Running) -> None:
    answer = await streamed(shared, f"plain?text={LONG}", **live())
    choice = answer.choices[0]
    assert choice.transcript == LONG
    ended = [mark for mark in choice.marks if mark["type"] == "ended"]
    assert " ".join(mark["spoken"] for mark in ended) == LONG
    assert len(ended) > 1
    async with sse(shared, body_of("plain", stream=True, **live())) as response:
        assert response.headers["x-sidecar-mode"] == "live"


async def test_streamed_and_whole_sound_the_same_when_they_are_fed_the_same(shared: Running) -> None:
    text = "One two three four."
    message = (await whole(shared, f"plain?text={text}", **live())).choices[0].message
    assert message.audio is not None
    answer = await streamed(shared, f"plain?text={text}", **live())
    assert answer.choices[0].pcm == unbase64(message.audio.data)


async def test_generations_join_without_a_step(shared: Running) -> None:
    before = await metric(shared, "sidecar_live_rollovers_total")
    choice = (await streamed(shared, f"plain?text={LONG}", **live())).choices[0]
    assert await metric(shared, "sidecar_live_rollovers_total") > before
    pcm = np.frombuffer(choice.pcm, "<i2") / 32768
    starts = [mark["start_ms"] * 24 for mark in choice.marks if mark["type"] == "started"][1:]
    for start in starts:
        around = pcm[start - 4_800 : start + 48]
        # A hum of 660 Hz at its loudest changes by no more than this from sample to sample, and joins lie in silence.
        assert np.abs(np.diff(around)).max() < 0.03
        assert np.abs(np.diff(pcm[start - 2 : start + 2])).max() < STEP


async def test_an_engine_that_cannot_speaks_segments(start: Any) -> None:
    async with (
        start(upstream=True, engine__kind="builtin") as server,
        sse(server, body_of("short", stream=True, **live())) as response,
    ):
        assert response.headers["x-sidecar-mode"] == "segment"
        assert [chunk async for chunk in lines_of(response)]


async def test_the_server_can_be_live_by_default(start: Any) -> None:
    async with start(upstream=True, chat__mode="live") as server:
        response = await server.http.post(CHAT, json=body_of("short"))
        assert response.headers["x-sidecar-mode"] == "live"
        response = await server.http.post(CHAT, json=body_of("short", **live(mode="segment")))
        assert response.headers["x-sidecar-mode"] == "segment"


async def test_a_mode_that_there_is_not(shared: Running) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await whole(shared, "plain", **live(mode="fast"))
    assert caught.value.param == "audio.mode"


@pytest.mark.parametrize("mode", ["segment", "live"])
async def test_word_times_lie_beside_the_delta(shared: Running, mode: str) -> None:
    text = "One two. Three **four** five."
    words: list[dict[str, Any]] = []
    async with sse(shared, body_of(f"plain?text={text}", stream=True, **live(mode=mode, word_times=True))) as response:
        async for chunk in lines_of(response):
            for choice in chunk["choices"]:
                if "words" in choice:
                    assert choice["delta"] == {}
                    words += choice["words"]
    assert [word["word"] for word in words] == ["One", "two", "Three", "four", "five"]
    assert all(text[word["start"] : word["end"]] == word["word"] for word in words)
    times = [time for word in words for time in (word["start_ms"], word["end_ms"])]
    assert times == sorted(times)
    answer = (await shared.http.post(CHAT, json=body_of(f"plain?text={text}", **live(word_times=True)))).json()
    assert [word["word"] for word in answer["choices"][0]["words"]] == ["One", "two", "Three", "four", "five"]


async def test_two_choices(shared: Running) -> None:
    answer = await streamed(shared, f"plain?text={LONG}", n=2, **live())
    assert [answer.choices[index].transcript for index in (0, 1)] == [LONG, LONG]
    assert answer.choices[0].pcm


async def test_sound_begins_before_the_first_sentence_ends(start: Any) -> None:
    async with start(upstream=True, engine__warm_up=False) as server:
        asked = body_of(
            "gate?after=6&text=Here is a rather long sentence that goes on. And more.", stream=True, **live()
        )
        async with asyncio.timeout(20), sse(server, asked) as response:
            async for chunk in lines_of(response):
                audio = chunk["choices"][0]["delta"].get("audio") or {}
                if audio.get("data"):
                    break
        assert audio["data"], "the model still waits"


async def test_the_drift_meters_listen_to_every_generation(shared: Running) -> None:
    choice = (await streamed(shared, f"plain?text={LONG}", **live())).choices[0]
    generations = sum(mark["type"] == "ended" for mark in choice.marks)
    assert generations > 1
    async with asyncio.timeout(10):
        while True:
            report = (await shared.http.get(f"/v1/dialogs/{choice.audio_id}/drift")).json()
            if sum(report.get("verdicts", {}).values()) == generations:
                break
            await asyncio.sleep(0.02)


async def test_a_voice_may_have_a_mode_of_its_own() -> None:
    async with running(upstream=True, chat__voice_modes={"bass": "live"}) as server:
        for voice, asked, mode in (
            ("bass", None, "live"),
            ("BASS", None, "live"),
            ("bass", "segment", "segment"),
            ("alto", None, "segment"),
            ("alto", "live", "live"),
        ):
            audio = {"voice": voice, "format": "pcm16"} | ({"mode": asked} if asked else {})
            async with sse(server, body_of("plain", stream=True, audio=audio)) as response:
                assert response.headers["x-sidecar-mode"] == mode, (voice, asked)


async def test_a_voices_mode_is_one_of_two() -> None:
    with pytest.raises(ConfigError, match="voice_modes"):
        config_with(chat__voice_modes={"bass": "loud"})
