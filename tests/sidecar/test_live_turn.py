"""A chat turn whose choices are stopped at any moment, and live replies that lean on what was said before."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from typing import cast

import numpy as np
import pytest

from adapters.engines.tone import ToneEngine, ToneSettings
from segmenter import SegmentOptions
from sidecar.chat_turn import ChatTurn, ChoiceOver, Heard, SpokenReply, Words
from sidecar.clock import SystemClock
from sidecar.core.events import SegmentEnded, SegmentStarted
from sidecar.core.feed import FeedLimits
from sidecar.faults import EngineLost, TooLarge
from sidecar.live_generation import Generation
from sidecar.live_reply import LiveReply
from sidecar.ports import FRAME_SAMPLES, AudioChunk, ChatDelta, ChatEvent, ChatOpened, Engine, Utterance
from sidecar.reply import Reply, ReplyLimits, SoundRules, Voicing
from sidecar.reply_ears import ReplyEars
from sidecar.speech_line import LineLimits
from tests.adapters.engines.qwen3_tts.toy_engine import toy_engine
from voices.continuity import Continuity

TEXT = " ".join(f"This is sentence number {number} of them all." for number in range(6))


class Recital:
    """A model that says the same of every choice."""

    headers: Mapping[str, str] = {}

    def __init__(self, choices: int) -> None:
        self._choices = choices
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[ChatEvent]:
        yield ChatOpened("id", "model", 0)
        for word in TEXT.split(" "):
            for choice in range(self._choices):
                yield ChatDelta(choice, text=f"{word} ")
            await asyncio.sleep(0)
        for choice in range(self._choices):
            yield ChatDelta(choice, finish_reason="length")

    async def aclose(self) -> None:
        self.closed = True


@pytest.mark.parametrize("mode", ["segment", "live"])
async def test_nothing_comes_of_a_choice_after_it_was_stopped(mode: str) -> None:
    draw = random.Random(9)
    engine = ToneEngine(ToneSettings(), SystemClock())
    await engine.start()

    def reply(choice: int) -> SpokenReply:
        voicing = Voicing("alto", choice)
        if mode == "live":
            return LiveReply(engine, SystemClock(), voicing, ReplyLimits(), FeedLimits(roll_tokens=20))
        return Reply(engine, SystemClock(), voicing, SegmentOptions(), ReplyLimits())

    for _ in range(60):
        turn = ChatTurn(Recital(2), 2, reply, starts_in_think=False)
        stop_after, victim = draw.randint(0, 60), draw.randint(0, 1)
        seen, over, stopped, written = 0, [], False, ["", ""]
        async with asyncio.timeout(30):
            async for event in turn.events():
                seen += 1
                if isinstance(event, Words):
                    written[event.choice] += event.text
                    assert not (stopped and event.choice == victim)
                if isinstance(event, Heard):
                    assert not (stopped and event.choice == victim)
                if isinstance(event, ChoiceOver):
                    over.append(event.choice)
                if seen == stop_after:
                    stopped = turn.stop(victim)
                    assert stopped is (victim not in over)
                    assert turn.stop(victim) is False
        assert sorted(over) == [0, 1]
        assert all(text.startswith(turn.playhead(choice).heard().text) for choice, text in enumerate(written))
        if not stopped:
            assert turn.playhead(victim).heard().text == TEXT[:-1]
        assert (await engine.health()).active_rows == 0
    await engine.close()


# ---------------------------------------------------------------- carry
async def test_generations_lean_on_the_one_before() -> None:
    engine = toy_engine(max_rows=2)
    await engine.start()
    asked: list[Utterance] = []
    really_open = engine.open

    async def noting(utterance: Utterance) -> object:
        asked.append(utterance)
        return await really_open(utterance)

    engine.open = noting  # type: ignore[method-assign, assignment]
    continuity = Continuity()
    ears = ReplyEars(0, 1, continuity)
    voicing = Voicing("vivian", 1, language="en")
    feed = FeedLimits(roll_tokens=80, low_tokens=2, high_tokens=6)
    async with LiveReply(
        engine, SystemClock(), voicing, ReplyLimits(), feed, ears=ears, sound=SoundRules(shape_pauses=False)
    ) as reply:
        writing = asyncio.create_task(write(reply, f"{TEXT} " * 4))
        ended = [event async for event in reply.events() if isinstance(event, SegmentEnded)]
        await writing
    assert len(ended) == len(asked) > 1
    assert all(event.fault is None for event in ended)
    assert asked[0].carry is None
    for before, one in zip(ended, asked[1:], strict=False):
        assert one.carry is not None
        assert before.segment.spoken.strip().endswith(one.carry.text)
        assert one.output == "both"
    assert ears.kept(0.0) is not None

    async with LiveReply(engine, SystemClock(), voicing, ReplyLimits(), feed, ears=ears) as reply:
        await reply.feed("And so it goes ")
        async for event in reply.events():
            if isinstance(event, SegmentStarted):
                break
    assert ears.kept(0.0) is None, "after an interruption nothing is carried on"
    await engine.close()


async def write(reply: LiveReply, text: str) -> None:
    await reply.feed(text)
    reply.finish()


# ---------------------------------------------------------------- engines that misbehave
class Scripted:
    """An engine whose utterances read so many characters and then do as they are told."""

    language = "en"
    text_tokens = 1

    def __init__(self, reads: list[int], then: str) -> None:
        self._reads = reads
        self._then = then
        self.texts: list[str] = []
        self.cancelled = False

    async def open(self, utterance: Utterance) -> Scripted:
        self.texts.append(utterance.text)
        return self

    def append(self, text: str) -> None:
        self.texts[-1] += text

    def finish(self) -> None: ...

    async def chunks(self) -> AsyncIterator[AudioChunk]:
        if len(self.texts) == 1 or self._then == "hang":
            for chars in self._reads:
                yield AudioChunk(np.full(FRAME_SAMPLES, 0.1, np.float32), 0, text_chars=chars)
            if self._then == "full":
                raise TooLarge("full")
            await asyncio.Event().wait()
        yield AudioChunk(np.full(FRAME_SAMPLES, 0.1, np.float32), 0, text_chars=len(self.texts[-1]))

    def cancel(self) -> None:
        self.cancelled = True


async def test_what_a_full_row_has_not_read_is_said_by_the_next() -> None:
    engine = Scripted([8], "full")
    async with LiveReply(cast(Engine, engine), SystemClock(), Voicing("a", 1), ReplyLimits(), FeedLimits()) as reply:
        await reply.feed("One two three four ")
        events = reply.events()
        assert isinstance(await anext(events), SegmentStarted)
        first = [event async for event in until_ended(events)][-1]
        assert isinstance(first, SegmentEnded)
        assert first.fault is None
        assert first.segment.spoken == "One two "
        reply.finish()
        second = [event async for event in until_ended(events)][-1]
        assert isinstance(second, SegmentEnded)
        assert second.segment.spoken == "three four"
    assert engine.cancelled


async def until_ended(events: AsyncIterator[object]) -> AsyncIterator[object]:
    async for event in events:
        yield event
        if isinstance(event, SegmentEnded):
            return


async def test_an_engine_may_only_be_slow_while_it_waits_for_text() -> None:
    async def faults(reads: list[int], *, finished: bool) -> None:
        engine = Scripted(reads, "hang")
        generation = Generation(0, LineLimits(chunk_timeout_s=0.05), 0)
        generation.append("One two three ", range(14))
        if finished:
            generation.finish()
        async with asyncio.timeout(1):
            asked = Utterance(generation.spoken, "a", 1, live=True)
            async for _ in generation.speak(cast(Engine, engine), asked):
                pass

    for reads, finished in (([4], False), ([14], True)):
        with pytest.raises(EngineLost):
            await faults(reads, finished=finished)
    with pytest.raises(TimeoutError):
        await faults([8], finished=False)
