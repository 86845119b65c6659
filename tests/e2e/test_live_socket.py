"""The speech socket: live utterances, and what a listener who interrupts has heard."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.e2e.conftest import Running, running
from tests.e2e.ws_client import STREAMED, Unit, opened

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIVE = {**STREAMED, "mode": "live"}
SENTENCES = {**STREAMED, "split_granularity": "sentence"}
LONG = " ".join(f"This is sentence number {number} of them all." for number in range(12))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def quick() -> AsyncIterator[Running]:
    async with running() as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def talker() -> AsyncIterator[Running]:
    """Speaks in real time, so that a cancel always comes in the middle."""
    async with running(engine__tone_realtime_factor=0.5, engine__warm_up=False) as server:
        yield server


# ---------------------------------------------------------------- live
async def test_an_utterance_is_one_unit_that_sounds_before_it_is_written(quick: Running) -> None:
    async with opened(quick, LIVE) as client:
        await client.text("  So this")
        await client.text(" is how ")
        unit = await client.begun()
        assert unit.start["mode"] == "live"
        assert unit.start["sentence_text"] == "So this"
        await client.text("it ends. And **more**.")
        await client.send("input.done")
        await client.finished(unit)
        assert unit.done["error"] is False
        assert unit.done["total_bytes"] == len(unit.audio)
        assert await client.expect("session.done") == {
            "type": "session.done", "utterance_index": 0, "total_sentences": 1,
        }  # fmt: skip
        again = await client.spoken("Ok.")
        assert again.texts == ["Ok."]
        assert again.done["utterance_index"] == 1
    await quick.rows_free()


async def test_the_same_seed_sounds_the_same_in_any_pieces(quick: Running) -> None:
    async def audio(*pieces: str) -> bytes:
        async with opened(quick, {**LIVE, "seed": 7}) as client:
            await client.say(*pieces)
            return (await client.unit()).audio

    whole = await audio("One two three. Four five six.")
    assert whole == await audio(*"One two three. Four five six.")


async def test_what_live_does_not_go_with(quick: Running) -> None:
    for wrong in ({"mode": "live"}, {**LIVE, "word_timestamps": True}, {**LIVE, "output_mode": "codec_tokens"}):
        async with opened(quick, wrong) as client:
            await client.error()
            assert await client.close_code() == 1008


async def test_an_engine_that_cannot_says_so(start: Any) -> None:
    async with start(engine__kind="builtin") as server, opened(server, LIVE) as client:
        heard = await client.spoken("Ok.")
        assert heard.units[0].start["mode"] == "segment"


async def test_nothing_to_say_and_configs_in_between(quick: Running) -> None:
    async with opened(quick, LIVE) as client:
        await client.say("  ")
        assert (await client.expect("session.done"))["total_sentences"] == 0
        await client.text("Word and")
        await client.configure(**LIVE)
        assert "not allowed" in await client.error()
        await client.send("session.close")
        unit = await client.unit()
        assert unit.audio, "what has begun is said to its end"
        assert await client.close_code() == 1000


# ---------------------------------------------------------------- interrupted
async def cut_off(client: Any, unit: Unit) -> dict[str, Any]:
    done = (await client.finished(unit)).done
    assert (done["cancelled"], done["error"]) == (True, False)
    return dict(done)


@pytest.mark.parametrize("config", [LIVE, SENTENCES, STREAMED], ids=["live", "sentences", "whole"])
async def test_the_end_of_a_cut_bracket_says_what_was_heard(talker: Running, config: dict[str, Any]) -> None:
    async with opened(talker, config) as client:
        await client.say(LONG)
        unit = await client.begun()
        while len(unit.audio) < 48_000:
            frame = await client.message()
            if isinstance(frame, bytes):
                unit.frames.append(frame)
            elif frame["type"] == "audio.start":
                unit = Unit(frame)
        await client.send("input.cancel", played_ms=800)
        done = await cut_off(client, unit)
        assert done["played_ms"] == 800
        assert LONG.startswith(done["heard_text"])
        assert 0 < len(done["heard_text"]) < 24
        assert (await client.expect("session.done"))["cancelled"] is True
        assert (await client.spoken("Ok.")).texts == ["Ok."]
        await talker.rows_free()


async def test_later_units_count_from_the_utterances_beginning(quick: Running) -> None:
    async with opened(quick, SENTENCES) as client:
        await client.text("One two three. Four five six. Seven")
        first, second = await client.unit(), await client.unit()
        await client.send("input.cancel", played_ms=len(first.audio) / 48 + 1)
        cancelled = await client.expect("input.cancelled")
        assert cancelled["heard_text"] == "One two three"
        assert cancelled["played_ms"] == len(first.audio) // 48 + 1
        await client.send("input.cancel", played_ms=1e9)
        cancelled = await client.expect("input.cancelled")
        assert cancelled["heard_text"] == "One two three. Four five six"
        assert cancelled["played_ms"] == (len(first.audio) + len(second.audio)) // 48


@pytest.mark.parametrize("lie", ['"5"', "NaN", "Infinity", "true", "[]", "1e999"])
async def test_what_is_no_number_is_told_and_it_stops_all_the_same(talker: Running, lie: str) -> None:
    async with opened(talker, STREAMED) as client:
        await client.say(LONG)
        unit = await client.begun()
        await client.raw(f'{{"type": "input.cancel", "played_ms": {lie}}}')
        done = (await client.finished(unit)).done
        assert done["cancelled"] is True
        assert ["played_ms" in error["message"] for error in unit.errors] == [True]
        assert LONG.startswith(done["heard_text"])


@pytest.mark.parametrize(("lie", "least"), [(-5, True), (-(10**400), True), (10**400, False)])
async def test_lies_are_clamped(talker: Running, lie: int, least: bool) -> None:
    async with opened(talker, STREAMED) as client:
        await client.say(LONG)
        unit = await client.begun()
        await client.send("input.cancel", played_ms=lie)
        done = await cut_off(client, unit)
        assert (done["played_ms"] == 0) is least
        assert done["played_ms"] <= done["total_bytes"] / 48


async def test_a_file_that_was_never_sent_was_never_heard(talker: Running) -> None:
    async with opened(talker, {"response_format": "mp3"}) as client:
        await client.say(LONG)
        unit = Unit(await client.expect("audio.start"))
        await client.send("input.cancel", played_ms=5_000)
        done = await cut_off(client, unit)
        assert (done["played_ms"], done["heard_text"]) == (0, "")


async def test_forty_random_cancels(quick: Running) -> None:
    draw = random.Random(3)
    async with opened(quick) as client:
        for number in range(40):
            await client.configure(**draw.choice([LIVE, SENTENCES, STREAMED]), initial_codec_chunk_frames=1)
            await client.text(LONG)
            if number % 2:
                await client.send("input.done")
            for _ in range(draw.randint(0, 20)):
                await asyncio.sleep(0)
            await client.send("input.cancel", played_ms=draw.uniform(-100, 9_000))
            answer = await answered(client)
            assert answer["played_ms"] <= 60_000
            assert LONG.startswith(answer["heard_text"])
            await client.raw("{")
            while (message := await client.message()) and not isinstance(message, bytes):
                if message["type"] == "error":
                    break
            assert not isinstance(message, bytes), "no sound after the cancel was answered"
    await quick.rows_free()


async def answered(client: Any) -> dict[str, Any]:
    """The answer to a cancel: the end of the bracket that it cut, or one of its own."""
    while True:
        message = await client.message()
        if not isinstance(message, bytes) and (message["type"] == "input.cancelled" or message.get("cancelled")):
            return dict(message)
