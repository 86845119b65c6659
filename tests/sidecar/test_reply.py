"""One reply from tokens to samples: order, pauses, seeds, language, bounds, a model that pauses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import pytest

from adapters.engines.tone import ToneEngine, ToneSettings
from segmenter import Segment, SegmentKind, SegmentOptions
from sidecar.clock import SystemClock
from sidecar.core.events import ReplyAudio, ReplyEvent, SegmentEnded, SegmentStarted
from sidecar.faults import EngineFault, TooLarge, UnsupportedLanguage
from sidecar.ports import Utterance
from sidecar.reply import Reply, ReplyLimits, Voicing, fatal
from sidecar.speech_line import LineLimits
from voices.seeds import segment_seed

VOICING = Voicing(voice="alto", dialog_seed=11, reply_index=3)


class Bench:
    """A tone engine that notes what it was asked."""

    def __init__(self, settings: ToneSettings | None = None) -> None:
        self.asked: list[Utterance] = []
        self.engine = ToneEngine(settings or ToneSettings(), SystemClock(), on_open=self.asked.append)
        self.waits_ms: list[float] = []

    def utterance_opened(self) -> None: ...

    def segment_waited(self, ms: float) -> None:
        self.waits_ms.append(ms)

    @asynccontextmanager
    async def reply(
        self, voicing: Voicing = VOICING, limits: ReplyLimits | None = None, options: SegmentOptions | None = None
    ) -> AsyncIterator[Reply]:
        await self.engine.start()
        options = options or SegmentOptions(first_by_clause=False)
        try:
            async with Reply(self.engine, SystemClock(), voicing, options, limits or ReplyLimits(), self) as reply:
                yield reply
        finally:
            assert (await self.engine.health()).active_rows == 0, "leaving a reply frees its rows"
            await self.engine.close()


async def write(reply: Reply, pieces: Sequence[str]) -> None:
    for piece in pieces:
        await reply.feed(piece)
    reply.finish()


async def heard(reply: Reply, *pieces: str) -> list[ReplyEvent]:
    writing = asyncio.create_task(write(reply, pieces))
    events = [event async for event in reply.events()]
    await writing
    return events


def started(events: list[ReplyEvent]) -> list[SegmentStarted]:
    return [e for e in events if isinstance(e, SegmentStarted)]


async def test_segments_come_in_order_with_their_seeds_and_places() -> None:
    bench = Bench()
    async with bench.reply() as reply:
        events = await heard(reply, "One is here. Two is", " here. Three", " is here.")
    starts = started(events)
    assert [s.segment.text.strip() for s in starts] == ["One is here.", "Two is here.", "Three is here."]
    assert [s.seed for s in starts] == [segment_seed(11, 3, s.segment.index) for s in starts]
    assert [u.seed for u in bench.asked] == [s.seed for s in starts]
    played = 0
    for event in events:
        if isinstance(event, SegmentStarted):
            assert event.first_sample == played, "a segment tells where it begins"
        elif isinstance(event, ReplyAudio):
            played += len(event.pcm)


async def test_a_pause_lies_between_segments_and_not_after_the_last() -> None:
    async with Bench().reply() as reply:
        events = await heard(reply, "# Title\n\nFirst words here. Second words here.")
    pauses = [len(e.pcm) for e in events if isinstance(e, ReplyAudio) and e.ready_s is None]
    ends = [e for e in events if isinstance(e, SegmentEnded)]
    # From sound to sound: 15 ms before the next one are its own.
    assert pauses == [(e.segment.pause_after_ms - 15) * 24 for e in ends[:-1]]
    assert pauses[0] > pauses[1] > 0, "a heading is followed by a longer pause than a sentence"
    assert isinstance(events[-1], SegmentEnded)


async def test_what_cannot_be_said_is_never_asked_of_the_engine() -> None:
    bench = Bench()
    async with bench.reply() as reply:
        events = await heard(reply, "Look.\n\n```\ncode here\n```\n\n🙂\n\nDone.")
    assert [u.text for u in bench.asked] == ["Look.", "Done."]
    assert len(started(events)) == 2


async def test_an_empty_reply_ends_at_once() -> None:
    async with Bench().reply() as reply:
        assert await heard(reply, " \n ") == []


async def test_the_language_of_the_first_segment_is_kept() -> None:
    bench = Bench()
    async with bench.reply() as reply:
        await heard(reply, "Erster Satz hier. Second one here.")
    assert bench.asked[0].language is None
    assert bench.asked[1].language == "en", "what the tone engine says it speaks when nobody names a language"


async def test_a_given_language_is_used_throughout() -> None:
    bench = Bench()
    async with bench.reply(Voicing(voice="alto", dialog_seed=1, language="fr")) as reply:
        await heard(reply, "Un mot. Deux mots.")
    assert [u.language for u in bench.asked] == ["fr", "fr"]


async def test_a_model_that_pauses_has_its_words_spoken() -> None:
    async with Bench().reply(options=SegmentOptions(decide_after_ms=20, first_by_clause=False)) as reply:
        await reply.feed("Sure! ")
        events = reply.events()
        first = await anext(events)
        assert isinstance(first, SegmentStarted)
        assert first.segment.text.strip() == "Sure!", "heard although the model has not gone on"
        reply.finish()
        assert [e async for e in events]


async def test_the_writer_is_held_back_while_too_much_is_unspoken() -> None:
    limits = ReplyLimits(LineLimits(ahead=0), unspoken_chars=60)
    async with Bench().reply(limits=limits) as reply:
        writing = asyncio.create_task(write(reply, ["A sentence of some length. "] * 40))
        for _ in range(300):
            await asyncio.sleep(0)
        assert not writing.done(), "nobody listens, so nothing more is taken"
        spoken = [s.segment async for s in reply.events() if isinstance(s, SegmentStarted)]
        await writing
    assert len(spoken) == 40, "and nothing is lost"


async def test_a_reply_has_a_longest_length() -> None:
    async with Bench().reply(limits=ReplyLimits(max_chars=30)) as reply:
        await reply.feed("Twenty characters. ")
        with pytest.raises(TooLarge):
            await reply.feed("Twenty characters more. ")


async def test_a_failed_segment_is_told_and_the_rest_goes_on() -> None:
    bench = Bench(ToneSettings(fault="mid", fault_every=2))
    async with bench.reply() as reply:
        events = await heard(reply, "First one is here. Second one is here. Third one is here.")
    faults = [e.fault for e in events if isinstance(e, SegmentEnded)]
    assert [f is None for f in faults] == [True, False, True]
    assert isinstance(faults[1], EngineFault)


async def test_leaving_in_the_middle_stops_everything() -> None:
    bench = Bench(ToneSettings(realtime_factor=1.0))
    with suppress(asyncio.CancelledError):
        async with bench.reply() as reply:
            await reply.feed("A first sentence that is long enough. A second sentence here. ")
            async for _ in reply.events():
                raise asyncio.CancelledError


async def test_overhead_is_observed_where_nothing_was_in_the_way() -> None:
    bench = Bench()
    async with bench.reply() as reply:
        await heard(reply, "One is here.")
    assert len(bench.waits_ms) == 1
    assert bench.waits_ms[0] >= 0


def test_which_faults_end_a_reply() -> None:
    segment = Segment(0, "x", "x", 0, 1, SegmentKind.SENTENCE, 0)
    language, broken = UnsupportedLanguage("zh"), EngineFault("x")
    assert fatal(SegmentEnded(segment, 1), True) is None
    assert fatal(SegmentEnded(segment, 0, language), heard_anything=True) is None
    assert fatal(SegmentEnded(segment, 0, language), heard_anything=False) is language
    assert fatal(SegmentEnded(segment, 0, broken), heard_anything=True) is broken
