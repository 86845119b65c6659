"""A segment is spoken again only while nobody has heard of it; what it leans on is the take that is played."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from segmenter import Segment, SegmentKind
from sidecar.clock import SystemClock
from sidecar.drift_watch import DriftWatch
from sidecar.ports import AudioChunk, Utterance
from sidecar.reply_ears import ReplyEars, WatchedDialog
from sidecar.speech_line import Audio, LineLimits, Opened, SpeechLine
from tests.sidecar.test_speech_line import CHUNK, Desk, say
from voices.continuity import Continuity, Manner
from voices.drift import Judgement, Reason, Verdict
from voices.guard import Guard


class Judge:
    """A listener that wants another take of every utterance that is not heard yet, and prefers it if told to."""

    def __init__(self, again: Callable[[], Utterance], better: bool) -> None:
        self._again, self._better = again, better
        self.log: list[str] = []
        self.chunks = 0
        self.asked_again = asyncio.Event()

    def opened(self, asked: Utterance, language: str, text_tokens: int) -> None:
        self.log.append(f"opened {asked.seed}")
        self.chunks = 0

    def chunk(self, chunk: AudioChunk) -> None:
        self.chunks += 1

    async def over(self, heard: Callable[[], bool]) -> Utterance | None:
        self.log.append(f"over {'heard' if heard() else 'unheard'}")
        self.asked_again.set()
        return None if heard() else self._again()

    async def better(self) -> bool:
        self.log.append("better?")
        return self._better

    def chose(self, *, second: bool) -> None:
        self.log.append(f"chose {'second' if second else 'first'}")

    def lost(self) -> None:
        self.log.append("lost")


async def spoken(desk: Desk, judge: Judge, chunks: int) -> tuple[int, int]:
    """A first utterance without a judge, then one of so many chunks with it; seed and samples of the second."""
    limits = LineLimits(ahead=1, held_samples=100 * CHUNK)
    async with SpeechLine[int](desk, limits) as line:
        await line.say(0, say("ok", 3))
        await line.say(1, say("ok", chunks), judge)
        line.end()
        for _ in range(60):  # the second is prepared while the first has not been read
            await asyncio.sleep(0)
        seed = samples = 0
        async for event in line.events():
            if event.ticket == 1 and isinstance(event, Opened):
                seed = event.utterance.seed
            elif event.ticket == 1 and isinstance(event, Audio):
                samples += len(event.chunk.pcm)
    assert desk.rows == 0
    return seed, samples


async def test_a_better_second_take_is_played_in_place_of_the_first() -> None:
    judge = Judge(say("ok", 5), better=True)
    assert await spoken(Desk(), judge, 2) == (5, 5 * CHUNK)
    assert judge.log == ["opened 2", "over unheard", "opened 5", "better?", "chose second"]


async def test_a_second_take_that_is_no_better_is_dropped() -> None:
    judge = Judge(say("ok", 5), better=False)
    assert await spoken(Desk(), judge, 2) == (2, 2 * CHUNK)
    assert judge.log[-1] == "chose first"


@pytest.mark.parametrize("text", ["full", "break", "nan"])
async def test_a_second_take_that_fails_leaves_the_first(text: str) -> None:
    judge = Judge(say(text, 5), better=True)
    assert await spoken(Desk(), judge, 2) == (2, 2 * CHUNK)
    assert judge.log[-1] == "chose first"


async def test_a_reader_that_comes_meanwhile_hears_the_first() -> None:
    judge = Judge(say("hang", 5), better=True)
    desk = Desk()
    async with SpeechLine[int](desk, LineLimits(ahead=1, held_samples=100 * CHUNK)) as line:
        await line.say(0, say("ok", 1))
        await line.say(1, say("ok", 2), judge)
        line.end()
        await judge.asked_again.wait()
        heard = 0
        async for event in line.events():
            if event.ticket == 1 and isinstance(event, Audio):
                heard += len(event.chunk.pcm)
                break
    assert heard
    assert desk.rows == 0


async def test_what_is_being_heard_is_not_spoken_again() -> None:
    judge = Judge(say("ok", 5), better=True)
    async with SpeechLine[int](Desk(), LineLimits()) as line:
        await line.say(0, say("ok", 2), judge)
        line.end()
        assert [event async for event in line.events()]
    assert judge.log == ["opened 2", "over heard"]


async def test_cancelled_and_failed_ones_are_lost() -> None:
    for text, cancel in (("break", False), ("ok", True)):
        judge = Judge(say(), better=True)
        async with SpeechLine[int](Desk(), LineLimits()) as line:
            await line.say(0, say(text, 9), judge)
            line.end()
            async for event in line.events():
                if cancel and isinstance(event, Audio):
                    line.cancel_all()
        assert judge.log[-1] == "lost"


async def test_after_whole_an_utterance_waits_for_the_one_before() -> None:
    desk = Desk()
    made: list[int] = []

    def make(number: int) -> Utterance:
        made.append(desk.opened[0].given if number else 0)
        return Utterance("ok", "v", 4)

    async with SpeechLine[int](desk, LineLimits(ahead=2, held_samples=100 * CHUNK)) as line:
        await line.say(0, partial(make, 0))
        await line.say(1, partial(make, 1), after_whole=True)
        line.end()
        assert [event async for event in line.events()]
    assert made == [0, 4]


# ------------------------------------------------------------ the ears of a reply
SEGMENT = Segment(0, "Hello there.", "Hello there.", 0, 12, SegmentKind.SENTENCE, 0)
ASKED = Utterance("Hello there.", "anna", 7, language="en")


def codes(frames: int) -> np.ndarray:
    return np.full((frames, 16), 5, np.int16)


def chunk(frames: int) -> AudioChunk:
    return AudioChunk(np.full(frames * CHUNK, 0.1, np.float32), 0, codes(frames))


def judgement(verdict: Verdict, badness: float) -> Judgement:
    reasons = (Reason("V7", "timbre_distance", 9.0, 3.0, "dB", badness),) if badness else ()
    return Judgement(verdict, reasons, {})


class FakeWatch(DriftWatch):
    """Gives these judgements, one for each take."""

    def __init__(self, *judgements: Judgement) -> None:
        super().__init__(SystemClock())
        self.judgements = list(judgements)
        self.taps: list[Tap] = []

    def segment(self, *arguments: object, **more: object) -> Tap:  # type: ignore[override]
        self.taps.append(Tap(self))
        return self.taps[-1]


class Tap:
    def __init__(self, watch: FakeWatch) -> None:
        self.watch = watch
        self.fate = ""

    def add(self, pcm: np.ndarray) -> None: ...

    def judge(self) -> asyncio.Future[Judgement]:
        answer: asyncio.Future[Judgement] = asyncio.get_running_loop().create_future()
        answer.set_result(self.watch.judgements.pop(0))
        return answer

    def end(self) -> None:
        self.fate = "ended"

    def accept(self) -> None:
        self.fate = "accepted"

    def drop(self) -> None:
        self.fate = "dropped"


def ears(watch: FakeWatch, guard: Guard | None) -> ReplyEars:
    return ReplyEars(0, 1, Continuity(), WatchedDialog("local", "dialog_x", watch, guard))


async def test_a_take_that_drifted_is_asked_for_again_with_another_seed() -> None:
    watch = FakeWatch(judgement(Verdict.REROLL, 3.0), judgement(Verdict.OK, 0.0))
    listening = ears(watch, Guard())
    ear = listening.ear(SEGMENT, "anna", None)
    ear.opened(ASKED, "en", 3)
    ear.chunk(chunk(30))
    again = await ear.over(lambda: False)
    assert again is not None
    assert again == replace(ASKED, seed=again.seed)
    assert again.seed != ASKED.seed
    ear.opened(again, "en", 3)
    ear.chunk(chunk(40))
    assert await ear.better()
    ear.chose(second=True)
    assert [tap.fate for tap in watch.taps] == ["dropped", "accepted"]
    carry = listening.carry("anna", "en")
    assert carry is not None
    assert len(carry.codes) == 40


async def test_the_first_take_is_kept_but_not_leaned_on_where_the_second_is_worse() -> None:
    watch = FakeWatch(judgement(Verdict.REROLL, 3.0), judgement(Verdict.REROLL, 9.0))
    listening = ears(watch, Guard())
    ear = listening.ear(SEGMENT, "anna", None)
    ear.opened(ASKED, "en", 3)
    ear.chunk(chunk(30))
    again = await ear.over(lambda: False)
    assert again is not None
    ear.opened(again, "en", 3)
    ear.chunk(chunk(40))
    assert not await ear.better()
    ear.chose(second=False)
    assert [tap.fate for tap in watch.taps] == ["accepted", "dropped"]
    assert listening.carry("anna", "en") is None


async def test_what_was_heard_is_played_and_the_next_begins_anew() -> None:
    watch = FakeWatch(judgement(Verdict.REROLL, 3.0))
    guard = Guard()
    listening = ears(watch, guard)
    ear = listening.ear(SEGMENT, "anna", None)
    ear.opened(ASKED, "en", 3)
    ear.chunk(chunk(30))
    assert await ear.over(lambda: True) is None
    assert guard.too_late == 1
    assert listening.carry("anna", "en") is None


async def test_without_a_guard_it_is_only_watched() -> None:
    watch = FakeWatch()
    listening = ears(watch, None)
    ear = listening.ear(SEGMENT, "anna", None)
    ear.opened(ASKED, "en", 3)
    ear.chunk(chunk(30))
    assert await ear.over(lambda: False) is None
    assert watch.taps[0].fate == "ended"
    assert listening.carry("anna", "en") is not None
    assert listening.carry("anna", "de") is None
    kept = listening.kept(10.0)
    assert kept is None, "another language was asked for: the dialog begins anew"


async def test_a_language_that_is_not_known_leans_on_nothing() -> None:
    listening = ReplyEars(0, 1, Continuity())
    assert listening.continuity is not None
    listening.continuity.spoken(Manner("anna", "en"), codes(30), "Hello.")
    assert listening.carry("anna", None) is None
    assert listening.carry("anna", "en") is not None
