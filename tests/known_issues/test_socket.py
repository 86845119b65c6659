"""Known issues of the speech socket, with the tone engine."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest

from tests.e2e.conftest import Running, running
from tests.e2e.speech_tools import overheard
from tests.e2e.ws_client import LONG, STREAMED, SpeechSocket, Unit, opened

pytestmark = pytest.mark.asyncio(loop_scope="module")

SENTENCES = {**STREAMED, "split_granularity": "sentence"}
SIX = "One is here. Two is there. Three is far. Four is near. Five is high. Six is low."


async def units(server: Running, *texts: str, granularity: str = "sentence") -> list[str]:
    async with opened(server, {**STREAMED, "split_granularity": granularity}) as client:
        return (await client.spoken(*texts)).texts


# ---------------------------------------------------------------- one voice
async def test_k01_units_of_a_session_share_voice_seed_and_language(tone: Running) -> None:
    with overheard(tone) as asked:
        for config in ({"voice": "bass", "seed": 3}, {"speaker_embedding": [0.5] * 1_024, "seed": 3}):
            async with opened(tone, {**SENTENCES, "language": "English", **config}) as client:
                assert len((await client.spoken(SIX)).units) == 6
    for six in (asked[:6], asked[6:]):
        assert len({(utterance.voice, utterance.seed, utterance.language) for utterance in six}) == 1
        anchors = [utterance.anchor for utterance in six]
        first = anchors[0]
        assert all(one is first or (one is not None and first is not None and one.same_as(first)) for one in anchors)


async def test_k01_one_unit_unless_asked_to_split(tone: Running) -> None:
    assert await units(tone, SIX, granularity="none") == [SIX]


async def test_k13_frames_hold_whole_samples(tone: Running) -> None:
    async with opened(tone, STREAMED) as client:
        for first in range(5):
            await client.configure(**STREAMED, initial_codec_chunk_frames=first)
            for unit in (await client.spoken(LONG)).units:
                assert unit.frames
                assert all(frame and len(frame) % 2 == 0 for frame in unit.frames)


# ---------------------------------------------------------------- cutting
@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("यह पहला है। यह दूसरा है।", ["यह पहला है।", "यह दूसरा है।"]),
        ("هل هذا جيد؟ نعم هو.", ["هل هذا جيد؟", "نعم هو."]),
        ("你好。再见！", ["你好。", "再见！"]),
        ("No mark at all", ["No mark at all"]),
    ],
)
async def test_k28_every_scripts_marks_count_and_a_flush_says_the_rest(
    tone: Running, text: str, cut: list[str]
) -> None:
    assert await units(tone, text) == cut
    assert await units(tone, *text) == cut


@pytest.mark.parametrize(
    "text",
    [
        "It is 3.14 now.",
        "Dr. Smith is in.",
        "Fruit, e.g. apples, is good.",
        "It costs 1,000 euros.",
        "See example.com now.",
        "At 3.15 p.m. today.",
        '"Hello."',
    ],
)
async def test_k29_numbers_abbreviations_and_quotes_stay_whole(tone: Running, text: str) -> None:
    assert await units(tone, text) == [text]
    assert await units(tone, *text) == [text]


async def test_k30_abbreviations_as_the_original_takes_them_or_better(tone: Running) -> None:
    text = "He said no. Then he went home."
    assert await units(tone, text) == [text], "drop-in: byte for byte what the original does"
    async with opened(tone, {**SENTENCES, "split_rules": "sidecar"}) as client:
        assert (await client.spoken(text)).texts == ["He said no.", "Then he went home."]


# ---------------------------------------------------------------- one unit after another
async def test_k31_the_next_unit_is_prepared_while_one_sounds() -> None:
    async with running(engine__tone_realtime_factor=1.0, engine__warm_up=False) as slow:
        with overheard(slow) as asked:
            async with opened(slow, SENTENCES) as client:
                await client.say(LONG)
                unit = await client.begun()
                async with asyncio.timeout(30):
                    while len(asked) < 2:
                        await asyncio.sleep(0.005)
                assert unit.done == {}, "the first one is still being sent"
                await client.send("input.cancel")
                await client.finished(unit)


async def test_k32_several_utterances_on_one_socket(tone: Running) -> None:
    async with opened(tone, STREAMED) as client:
        for index in range(3):
            heard = await client.spoken(f"Number {index}.")
            assert heard.done == {"type": "session.done", "utterance_index": index, "total_sentences": 1}


# ---------------------------------------------------------------- cancels
async def test_k33_and_k34_five_hundred_cancels_are_nobody_elses() -> None:
    """At any moment: an end comes, nothing sounds after it, the socket goes on, and another one hears nothing of it."""
    async with running(engine__tone_realtime_factor=0.02, engine__warm_up=False) as server:
        stop = asyncio.Event()
        neighbour = asyncio.create_task(undisturbed(server, stop))
        try:
            async with asyncio.TaskGroup() as group:
                clients = [group.create_task(cancelling(server, random.Random(seed), times=100)) for seed in range(5)]
        finally:
            stop.set()
        assert await neighbour > 0
        assert 50 <= sum(client.result() for client in clients) < 500, "some came in the middle, some did not"
        await server.rows_free()


async def undisturbed(server: Running, stop: asyncio.Event) -> int:
    """Speaks until it is told to stop; how many utterances."""
    said = 0
    async with opened(server, SENTENCES) as client:
        while not stop.is_set():
            heard = await client.spoken(SIX)
            assert heard.failed == [False] * 6
            assert not any("cancelled" in unit.done for unit in heard.units)
            assert "cancelled" not in heard.done
            said += 1
    return said


async def cancelling(server: Running, chance: random.Random, times: int) -> int:
    """Cancel so many times; how many of them cut off what sounded."""
    cut = index = 0
    async with opened(server, SENTENCES) as client:
        for _ in range(times):
            flushed = chance.random() < 0.7
            await client.text(LONG)
            if flushed:
                await client.send("input.done")
            for _ in range(chance.randrange(12)):
                await asyncio.sleep(chance.choice((0, 0, 0.001, 0.005)))
            await client.send("input.cancel")
            cut += await over(client, index)
            if flushed:
                done = await client.expect("session.done")
                assert (done["utterance_index"], done["cancelled"]) == (index, True)
                index += 1
        await client.silent()
    return cut


async def over(client: SpeechSocket, index: int) -> bool:
    """Read up to the end that a cancel has: a bracket that is cut off (true), or the answer that none was open.

    What was complete before the cancel came is complete.
    """
    while True:
        message = await client.message()
        assert isinstance(message, dict), "a frame outside a bracket"
        if message["type"] != "audio.start":
            assert message == {"type": "input.cancelled", "utterance_index": index}
            return False
        unit = await client.finished(Unit(message))
        assert (unit.errors, unit.done["error"]) == ([], False)
        if "cancelled" in unit.done:
            return True


async def test_k33_a_cancel_is_answered_and_nothing_sounds_after_it() -> None:
    async with running(engine__tone_realtime_factor=1.0, engine__warm_up=False) as slow:
        async with opened(slow, SENTENCES) as client:
            await client.say(LONG)
            unit = await client.begun()
            await client.send("input.cancel")
            assert (await client.finished(unit)).done["cancelled"] is True
            assert (await client.expect("session.done"))["cancelled"] is True
            await client.silent()
            assert (await client.spoken("Ok.")).texts == ["Ok."]
        await slow.rows_free()


# ---------------------------------------------------------------- what comes in
async def test_k35_a_pause_within_the_limit_survives_and_pings_are_no_message() -> None:
    async with running(stream__idle_timeout_s=2.0) as hasty, opened(hasty, STREAMED) as client:
        await client.text("An utterance that is open ")
        await asyncio.sleep(0.3)
        assert (await client.spoken("and goes on.")).texts == ["An utterance that is open and goes on."]
        ponging = asyncio.create_task(pings(client))
        try:
            assert "Idle timeout" in await client.error()
            assert await client.close_code() == 1008
        finally:
            ponging.cancel()


async def pings(client: SpeechSocket) -> None:
    while True:
        await client.connection.ping()
        await asyncio.sleep(0.05)


async def test_k36_frames_and_texts_are_bounded(tone: Running) -> None:
    async with opened(tone, STREAMED) as client:
        await client.text("x" * (128 * 1_024))
        assert "131072" in await client.error()
        taken = 0
        for _ in range(20):
            await client.text(" " * 100_000)
            await client.raw("{")
            if await client.error() != "Invalid JSON message.":
                await client.error()
                break
            taken += 100_000
        assert taken == 1_000_000, "a megabyte of text that nobody flushes, and no more"
        await client.send("input.cancel")
        await client.expect("input.cancelled")
        assert (await client.spoken("Still here.")).failed == [False]


@pytest.mark.parametrize("frame", [b"x", b"", b"\x00" * 5_000, json.dumps({"type": "input.done"}).encode()])
async def test_k37_a_binary_frame_is_one_error(tone: Running, frame: bytes) -> None:
    async with opened(tone, STREAMED) as client:
        await client.raw(frame)
        assert "Binary" in await client.error()
        assert (await client.spoken("Still here.")).failed == [False]


# ---------------------------------------------------------------- who leaves
@pytest.mark.parametrize("how", ["rst", "fin", "close"])
async def test_k40_a_socket_that_is_gone_frees_its_row(how: str) -> None:
    slow: dict[str, Any] = {"engine__tone_realtime_factor": 1.0, "engine__warm_up": False}
    async with running(**slow) as server:
        async with opened(server, STREAMED) as client:
            await client.say(LONG)
            await client.begun()
            await client.vanish(how)
            await server.rows_free()
        async with opened(server, STREAMED) as client:
            assert (await client.spoken("Hi.")).failed == [False]
