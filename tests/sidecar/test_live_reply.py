"""A reply in live mode: what it says, when, and that how the text arrives does not matter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest

from adapters.engines.tone import ToneEngine, ToneSettings
from sidecar.clock import SystemClock
from sidecar.core.events import ReplyAudio, ReplyEvent, SegmentEnded, SegmentGrew, SegmentStarted
from sidecar.core.feed import FeedLimits
from sidecar.faults import EngineFault, TooLarge
from sidecar.live_reply import LiveReply
from sidecar.ports import Clock, Utterance
from sidecar.reply import ReplyLimits, SoundRules, Voicing
from tests.adapters.engines.clocks import ManualClock, settle
from voices.seeds import segment_seed

VOICING = Voicing(voice="alto", dialog_seed=11, reply_index=3)
AS_IT_IS = SoundRules(shape_pauses=False)


class Bench:
    """A tone engine and what it was asked, and what the reply tells of itself."""

    def __init__(self, settings: ToneSettings | None = None, clock: Clock | None = None) -> None:
        self.asked: list[Utterance] = []
        self.clock = clock or SystemClock()
        self.engine = ToneEngine(settings or ToneSettings(), self.clock, on_open=self.asked.append)
        self.stalls = self.rolled = 0
        self.leads: list[float] = []

    def utterance_opened(self) -> None: ...

    def segment_waited(self, ms: float) -> None: ...

    def live_lead(self, tokens: float) -> None:
        self.leads.append(tokens)

    def live_stalled(self) -> None:
        self.stalls += 1

    def live_rolled_over(self) -> None:
        self.rolled += 1

    @asynccontextmanager
    async def reply(
        self, feed: FeedLimits | None = None, limits: ReplyLimits | None = None, sound: SoundRules | None = None
    ) -> AsyncIterator[LiveReply]:
        await self.engine.start()
        async with LiveReply(
            self.engine, self.clock, VOICING, limits or ReplyLimits(), feed or FeedLimits(), self, sound=sound
        ) as reply:
            yield reply
        assert (await self.engine.health()).active_rows == 0, "leaving a reply frees its rows"


async def write(reply: LiveReply, pieces: list[str]) -> None:
    for piece in pieces:
        await reply.feed(piece)
    reply.finish()


async def heard(reply: LiveReply, *pieces: str) -> list[ReplyEvent]:
    writing = asyncio.create_task(write(reply, list(pieces)))
    events = [event async for event in reply.events()]
    await writing
    return events


def pcm_of(events: list[ReplyEvent]) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.float32), *(e.pcm for e in events if isinstance(e, ReplyAudio))])


def said(events: list[ReplyEvent]) -> str:
    """All that was said, as the reader was told of it."""
    parts = [e.segment.spoken if isinstance(e, SegmentStarted) else e.spoken
             for e in events if isinstance(e, SegmentStarted | SegmentGrew)]  # fmt: skip
    return "".join(parts)


def ended(events: list[ReplyEvent]) -> list[SegmentEnded]:
    return [e for e in events if isinstance(e, SegmentEnded)]


async def test_one_generation_says_all_of_it() -> None:
    bench = Bench()
    async with bench.reply() as reply:
        events = await heard(reply, "One is **he", "re**. Two", " is here.\n", "Three.")
    assert isinstance(events[0], SegmentStarted)
    assert [e.segment.spoken for e in ended(events)] == ["One is here. Two is here.\nThree."] == [said(events)]
    assert events[0].seed == segment_seed(11, 3, 0)
    assert bench.asked[0].live
    assert len(pcm_of(events)) > 24_000
    raw = "One is **here**. Two is here.\nThree."
    assert ended(events)[0].segment.text == raw


async def test_the_first_word_opens_the_engine() -> None:
    bench = Bench()
    async with bench.reply() as reply:
        await reply.feed("Hel")
        await settle()
        assert bench.asked == []
        await reply.feed("lo th")
        await settle()
        assert [u.text for u in bench.asked] == ["Hello "]
        events = reply.events()
        assert isinstance(await anext(events), SegmentStarted)
        await reply.feed("ere now ")
        assert isinstance(await anext(events), SegmentGrew | ReplyAudio)
        reply.finish()
        assert [e async for e in events]


async def test_an_empty_reply_ends_at_once() -> None:
    bench = Bench()
    async with bench.reply() as reply:
        assert await heard(reply, " \n ", "```\ncode\n```") == []
    assert bench.asked == []


async def test_generations_take_over_at_a_sentence_end() -> None:
    bench = Bench()
    text = "This is a sentence of some length. " * 12
    async with bench.reply(FeedLimits(roll_tokens=30)) as reply:
        events = await heard(reply, text)
    spoken = [e.segment.spoken for e in ended(events)]
    assert "".join(spoken).split() == text.split()
    assert len(spoken) > 2
    assert all(part.rstrip().endswith(".") for part in spoken)
    assert bench.rolled == len(spoken) - 1
    assert "".join(e.segment.text for e in ended(events)) == text.rstrip()
    seeds = [e.seed for e in events if isinstance(e, SegmentStarted)]
    assert seeds == [segment_seed(11, 3, index) for index in range(len(spoken))]


async def test_what_fails_is_told() -> None:
    async with Bench(ToneSettings(fault="nan")).reply() as reply:
        events = await heard(reply, "One two three. ")
    assert isinstance(ended(events)[-1].fault, EngineFault)


async def test_the_writer_is_held_back_and_a_reply_has_a_longest_length() -> None:
    async with Bench().reply(limits=ReplyLimits(unspoken_chars=60, max_chars=2_000)) as reply:
        writing = asyncio.create_task(write(reply, ["A sentence of some length. "] * 40))
        await settle()
        assert not writing.done()
        spoken = [e async for e in reply.events() if isinstance(e, SegmentEnded)]
        await writing
        assert "".join(e.segment.text for e in spoken) == ("A sentence of some length. " * 40).rstrip()
        with pytest.raises(TooLarge):
            await reply.feed("x" * 2_001)


async def test_a_model_that_pauses_has_its_sentence_finished() -> None:
    clock = ManualClock()
    bench = Bench(clock=clock)
    async with bench.reply() as reply:
        events: list[ReplyEvent] = []
        reading = asyncio.create_task(collect(reply, events))
        await reply.feed("Sure thing!")
        await pass_time(clock, 600)
        assert not ended(events)
        await pass_time(clock, 200)
        assert [e.segment.spoken for e in ended(events)] == ["Sure thing!"]
        await reply.feed(" Now the")
        await pass_time(clock, 5_000)
        assert len(ended(events)) == 1, "in mid-sentence it waits"
        assert bench.stalls > 0
        await pass_time(clock, 5_000)
        assert ended(events)[-1].segment.spoken == "Now the"
        reply.finish()
        await reading


async def pass_time(clock: ManualClock, ms: float) -> None:
    await clock.advance(ms)
    for _ in range(10):
        await settle()


async def collect(reply: LiveReply, into: list[ReplyEvent]) -> None:
    async for event in reply.events():
        into.append(event)
