"""The line of utterances: order, look-ahead, bounds, faults, cancelling."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.faults import EngineFault, EngineLost, EngineOverloaded, UnsupportedByEngine
from sidecar.ports import AudioChunk, EngineHealth, EngineTraits, Pcm, Utterance
from sidecar.speech_line import Audio, Done, LineEvent, LineLimits, Opened, SpeechLine
from voices.anchor import SpeakerAnchor

CHUNK = 1_920


class FakeSpeaking:
    """Gives the chunks it was told to, or what ``script`` does."""

    language = "en"
    text_tokens = 1

    def __init__(self, engine: Desk, utterance: Utterance) -> None:
        self.engine = engine
        self.utterance = utterance
        self.given = 0
        self.cancelled = False
        self._over = False
        engine.rows += 1

    def append(self, text: str) -> None: ...

    def finish(self) -> None: ...

    def cancel(self) -> None:
        self.cancelled = True
        self._free()

    def _free(self) -> None:
        if not self._over:
            self._over = True
            self.engine.rows -= 1

    async def chunks(self) -> AsyncIterator[AudioChunk]:
        try:
            for index in range(self.utterance.seed):
                if self.cancelled:
                    return
                await asyncio.sleep(0)
                if self.utterance.text == "nan":
                    yield AudioChunk(np.full(CHUNK, np.nan, np.float32), 0)
                if self.utterance.text == "break" and index == 1:
                    raise EngineFault("broke")
                if self.utterance.text == "crash" and index == 1:
                    raise RuntimeError("a bug")
                if self.utterance.text == "hang" and index == 1:
                    await asyncio.Event().wait()
                self.given += 1
                yield AudioChunk(np.full(CHUNK, 0.1, np.float32), index * CHUNK)
        finally:
            self._free()


class Desk:
    """An engine whose utterances last ``seed`` chunks; the text names the fault."""

    traits = EngineTraits("desk", (), "v", ("en",), 4, True)

    def __init__(self) -> None:
        self.rows = 0
        self.opened: list[FakeSpeaking] = []

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def health(self) -> EngineHealth:
        return EngineHealth(True, active_rows=self.rows)

    async def encode_voice(self, pcm: Pcm, transcript: str | None) -> SpeakerAnchor:
        raise UnsupportedByEngine("This desk cannot clone voices.")

    async def open(self, utterance: Utterance) -> FakeSpeaking:
        await asyncio.sleep(0)
        if utterance.text == "full":
            raise EngineOverloaded("full")
        self.opened.append(FakeSpeaking(self, utterance))
        return self.opened[-1]


def say(text: str = "ok", chunks: int = 2) -> Callable[[], Utterance]:
    return partial(Utterance, text, "v", chunks)


async def play(line: SpeechLine[int], *makers: Callable[[], Utterance]) -> list[LineEvent[int]]:
    async def write() -> None:
        for ticket, make in enumerate(makers):
            await line.say(ticket, make)
        line.end()

    writing = asyncio.create_task(write())
    events = [event async for event in line.events()]
    await writing
    return events


def dones(events: list[LineEvent[int]]) -> list[Done[int]]:
    return [e for e in events if isinstance(e, Done)]


async def test_utterances_come_out_in_order_and_whole() -> None:
    engine = Desk()
    async with SpeechLine[int](engine, LineLimits(ahead=2)) as line:
        events = await play(line, say(chunks=3), say(chunks=1), say(chunks=2))
    shape = [(type(e).__name__, e.ticket) for e in events]
    assert shape == [
        ("Opened", 0), *[("Audio", 0)] * 3, ("Done", 0),
        ("Opened", 1), ("Audio", 1), ("Done", 1),
        ("Opened", 2), *[("Audio", 2)] * 2, ("Done", 2),
    ]  # fmt: skip
    assert [d.samples for d in dones(events)] == [3 * CHUNK, CHUNK, 2 * CHUNK]
    assert engine.rows == 0


@given(st.lists(st.sampled_from(["ok", "break", "full", "nan", "crash"]), max_size=8), st.integers(0, 3))
@settings(max_examples=40)
def test_every_ticket_gets_one_done_in_order(texts: list[str], ahead: int) -> None:
    async def run() -> None:
        engine = Desk()
        async with SpeechLine[int](engine, LineLimits(ahead=ahead)) as line:
            events = await play(line, *(say(text, 3) for text in texts))
        assert [d.ticket for d in dones(events)] == list(range(len(texts)))
        for text, done in zip(texts, dones(events), strict=True):
            assert (done.fault is None) == (text == "ok")
        order = [e.ticket for e in events]
        assert order == sorted(order)
        assert engine.rows == 0

    asyncio.run(run())


@pytest.mark.parametrize("ahead", [0, 1, 3])
async def test_only_so_many_are_prepared_ahead(ahead: int) -> None:
    engine = Desk()
    async with SpeechLine[int](engine, LineLimits(ahead=ahead)) as line:
        waiting = [asyncio.create_task(line.say(n, say())) for n in range(6)]
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(engine.opened) == ahead + 1
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_reader_that_stops_pauses_the_engine() -> None:
    engine = Desk()
    limits = LineLimits(ahead=0, held_samples=3 * CHUNK)
    async with SpeechLine[int](engine, limits) as line:
        await line.say(0, say(chunks=1_000))
        for _ in range(200):
            await asyncio.sleep(0)
        assert engine.opened[0].given == 4, "three are held, one more waits to be put"


async def test_a_chunk_longer_than_the_bound_still_passes() -> None:
    async with SpeechLine[int](Desk(), LineLimits(held_samples=10)) as line:
        events = await play(line, say(chunks=3))
    assert dones(events)[0].samples == 3 * CHUNK


async def test_cancel_ends_everything_and_the_line_goes_on() -> None:
    engine = Desk()
    async with SpeechLine[int](engine, LineLimits(ahead=2)) as line:
        for ticket in range(3):
            await line.say(ticket, say(chunks=100))
        events = line.events()
        seen: list[LineEvent[int]] = [await anext(events) for _ in range(3)]
        assert [type(e) for e in seen] == [Opened, Audio, Audio]
        line.cancel_all()
        line.end()
        rest = [event async for event in events]
        assert [(d.ticket, d.cancelled, d.fault) for d in dones(rest)] == [(n, True, None) for n in range(3)]
        assert not any(isinstance(e, Audio) for e in rest), "no sound after a cancel"
    assert engine.rows == 0


async def test_leaving_frees_every_row() -> None:
    engine = Desk()
    async with SpeechLine[int](engine, LineLimits(ahead=2)) as line:
        for ticket in range(3):
            await line.say(ticket, say("hang", 100))
        events = line.events()
        await anext(events)
        while engine.rows < 3:
            await asyncio.sleep(0)
        await events.aclose()
    assert engine.rows == 0


async def test_an_engine_that_hangs_is_given_up() -> None:
    engine = Desk()
    async with SpeechLine[int](engine, LineLimits(chunk_timeout_s=0.05)) as line:
        events = await play(line, say("hang"), say())
    assert isinstance(dones(events)[0].fault, EngineLost)
    assert dones(events)[1].fault is None
    assert engine.rows == 0


async def test_an_utterance_without_audio_is_a_fault() -> None:
    async with SpeechLine[int](Desk(), LineLimits()) as line:
        events = await play(line, say(chunks=0))
    assert isinstance(dones(events)[0].fault, EngineFault)


async def test_what_cannot_be_made_is_its_tickets_fault() -> None:
    def refuse() -> Utterance:
        raise EngineFault("no")

    async with SpeechLine[int](Desk(), LineLimits()) as line:
        events = await play(line, refuse, say())
    assert [d.fault is None for d in dones(events)] == [False, True]
    assert [type(e) for e in events][:1] == [Done], "it was never opened"
