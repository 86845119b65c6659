"""A reply in live mode: one generation reads along while the text is written, and the next one takes over in time.

Answers with the same events as ``sidecar.reply``: a segment is a generation here.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from types import TracebackType
from typing import Any, Protocol, Self

from segmenter import Segment, SegmentKind, SpeakableStream, SpokenText
from sidecar.core.events import ReplyAudio, ReplyEvent, SegmentEnded, SegmentGrew, SegmentStarted
from sidecar.core.feed import Append, Begin, Command, Feed, FeedLimits, Finish, tokens
from sidecar.faults import EngineFault, Fault, TooLarge
from sidecar.live_generation import Generation
from sidecar.ports import SAMPLE_RATE_HZ, AudioChunk, Clock, Engine, Utterance
from sidecar.reply import ReplyLimits, ReplyObserver, SoundRules, Voicing
from sidecar.reply_ears import ReplyEars
from sidecar.sounding import Sounding
from voices.carry import Carry
from voices.seeds import segment_seed

log = logging.getLogger(__name__)

PARAGRAPH_PAUSE_MS, LINE_PAUSE_MS, SENTENCE_PAUSE_MS = 400, 250, 150
GENERATIONS = 2
"""The one that sounds and the one that is prepared to follow."""

SURE_OF_LANGUAGE_CHARS = 24
CARRY_MARGIN = 1.25
"""Tokens are estimates."""


class LiveObserver(ReplyObserver, Protocol):
    """Told what happens inside a live reply (metrics)."""

    def live_lead(self, tokens: float) -> None:
        """About so much text lay ahead of the engine when a chunk was made."""

    def live_stalled(self) -> None:
        """The engine has said every whole word that there is while the text is still being written."""

    def live_rolled_over(self) -> None:
        """Another generation goes on where one ends."""


class LiveReply:
    """One reply being spoken while it is being written. Use as an async context manager.

    A writer calls ``feed`` and ``finish``; a reader iterates ``events``. Leaving the context stops everything. What a
    generation sounds like depends on its text alone; where one ends on the text and on time (see ``core.feed``).
    """

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        voicing: Voicing,
        limits: ReplyLimits,
        feed: FeedLimits,
        observer: LiveObserver | None = None,
        *,
        ears: ReplyEars | None = None,
        sound: SoundRules | None = None,
    ) -> None:
        rules = sound or SoundRules()
        self._sounding = Sounding(
            shape_pauses=rules.shape_pauses, target_level_db=rules.target_level_db, level_db=voicing.level_db
        )
        self._engine = engine
        self._clock = clock
        self._voicing = voicing
        self._limits = limits
        self._observer = observer
        self._ears = ears
        self._speakable = SpeakableStream()
        self._feed = Feed(feed, clock.now_ms())
        self._settle_ms = feed.settle_ms
        self._fed_ms = clock.now_ms()
        self._unsettled = False
        self._raw = ""
        self._ahead: deque[tuple[str, tuple[int, ...]]] = deque()
        self._finished = False
        self._starved = False
        self._first_word_ms: float | None = None
        self._left = False
        self._generations: deque[Generation] = deque()
        self._last: Generation | None = None
        self._begun = 0
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._sooner = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._start(self._watch_time())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finished = self._left = True
        self._room.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # Whoever still iterates comes to the end.
        self._arrived.set()
        for generation in self._generations:
            generation.end()

    # ------------------------------------------------------------ the writer's side
    async def feed(self, text: str) -> None:
        """Take the next piece of text; waits while too much of the text before is still unspoken.

        Raises ``TooLarge`` once the reply is longer than ``max_chars``.
        """
        if len(self._raw) + len(text) > self._limits.max_chars:
            raise TooLarge(f"The reply is longer than {self._limits.max_chars} characters.")
        if self._finished:
            return
        self._raw += text
        self._fed_ms = self._clock.now_ms()
        self._unsettled = True
        self._wrote(self._speakable.feed(text))
        while self._feed.waiting_chars > self._limits.unspoken_chars and not self._finished:
            self._room.clear()
            await self._room.wait()

    def finish(self) -> None:
        """The text is complete. Idempotent."""
        if not self._finished:
            self._finished = True
            self._wrote(self._speakable.finish())
            self._feed.close()
            self._step()

    def _wrote(self, said: SpokenText) -> None:
        if said.text:
            self._first_word_ms = self._fed_ms if self._first_word_ms is None else self._first_word_ms
            self._ahead.append((said.text, said.ends))
            self._feed.wrote(said.text, self._fed_ms)
        self._step()

    # ------------------------------------------------------------ the feed -> generations
    def _step(self) -> None:
        """Do what the feed wants done now."""
        if self._left:
            return
        now_ms = self._clock.now_ms()
        while self._feed.is_open or len(self._generations) < GENERATIONS:
            command = self._feed.next(now_ms)
            if command is None:
                break
            self._do(command)
        starved = self._feed.starved
        if starved and not self._starved and self._observer is not None:
            self._observer.live_stalled()
        self._starved = starved
        self._room.set()
        self._sooner.set()
        if self._feed.done:
            self._arrived.set()

    def _do(self, command: Command) -> None:
        match command:
            case Begin(text, skipped):
                self._handed_over(skipped)
                self._begin(text)
            case Append(text):
                if self._last is not None:
                    self._last.append(text, self._handed_over(len(text)))
            case Finish():
                if self._last is not None:
                    self._last.finish()

    def _handed_over(self, chars: int) -> list[int]:
        """The places of the next characters that leave the feed."""
        places: list[int] = []
        while len(places) < chars:
            text, ends = self._ahead.popleft()
            wanted = chars - len(places)
            places += ends[:wanted]
            if wanted < len(ends):
                self._ahead.appendleft((text[wanted:], ends[wanted:]))
        return places

    def _begin(self, text: str) -> None:
        before, ends = self._last, self._handed_over(len(text))
        starts_at = before.ends[-1] if before is not None and before.ends else 0
        generation = self._last = Generation(self._begun, self._limits.line, starts_at)
        self._begun += 1
        generation.append(text, ends)
        self._generations.append(generation)
        if before is not None and self._observer is not None:
            self._observer.live_rolled_over()
        self._arrived.set()
        self._start(self._speak(generation, before))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch_time(self) -> None:
        """Step when the writer has been silent for long enough."""
        tried_ms: float | None = None
        while True:
            self._sooner.clear()
            unsettled = self._unsettled and not self._finished
            due_ms = self._feed.deadline_ms()
            if unsettled:
                due_ms = min(self._fed_ms + self._settle_ms, math.inf if due_ms is None else due_ms)
            if due_ms is None or due_ms == tried_ms:
                await self._sooner.wait()
            elif (left_ms := due_ms - self._clock.now_ms()) > 0:
                await self._sleep(left_ms)
            elif unsettled and self._clock.now_ms() >= self._fed_ms + self._settle_ms:
                self._unsettled = False
                self._wrote(self._speakable.settle())
            else:
                tried_ms = due_ms
                self._step()

    async def _sleep(self, ms: float) -> None:
        """So long, or until something has changed."""
        sleeping = asyncio.ensure_future(self._clock.sleep(ms))
        waking = asyncio.ensure_future(self._sooner.wait())
        try:
            await asyncio.wait({sleeping, waking}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            waking.cancel()

    # ------------------------------------------------------------ generations -> samples
    async def _speak(self, generation: Generation, before: Generation | None) -> None:
        heard: list[AudioChunk] = []
        try:
            if before is not None:
                await (before.complete if self._ears is not None and self._ears.carries else before.settled).wait()
            if self._observer is not None:
                self._observer.utterance_opened()
                if generation.index == 0 and self._first_word_ms is not None:
                    self._observer.segment_waited(self._clock.now_ms() - self._first_word_ms)
            async with aclosing(generation.speak(self._engine, self._utterance(generation, before))) as chunks:
                async for chunk in chunks:
                    if self._ears is not None:
                        heard.append(chunk)
                    self._noted(generation, chunk)
                    await generation.put(chunk)
            if generation.overflowed:
                self._go_on_from(generation)
            await self._tell_ears(generation, heard)
        except Fault as fault:
            self._lost()
            generation.end(fault)
        except Exception as error:
            log.error("a live reply failed", exc_info=error)
            self._lost()
            generation.end(EngineFault("The speech engine failed."))
        except asyncio.CancelledError:
            self._lost()
            raise
        finally:
            generation.end()

    def _noted(self, generation: Generation, chunk: AudioChunk) -> None:
        if generation is not self._last or not self._feed.is_open:
            return
        self._feed.read(chunk.text_chars, generation.samples / SAMPLE_RATE_HZ)
        if self._observer is not None:
            self._observer.live_lead(self._feed.ahead_tokens)
        self._step()

    def _go_on_from(self, generation: Generation) -> None:
        """Its row was full: what it has not read is said by another one."""
        if generation is self._last and self._feed.is_open:
            left = len(self._feed.overflowed())
            text, ends = generation.cut(len(generation.spoken) - left)
            self._ahead.appendleft((text, tuple(ends)))
            self._step()
        else:
            raise TooLarge("A passage is too long for the engine.")

    def _utterance(self, generation: Generation, before: Generation | None) -> Utterance:
        voicing, ears = self._voicing, self._ears
        language = voicing.language
        if language is None and before is not None and len(before.spoken) >= SURE_OF_LANGUAGE_CHARS:
            language = before.language or None
        carry = self._carry(generation, language)
        return Utterance(
            text=generation.spoken,
            voice=voicing.voice,
            seed=segment_seed(voicing.dialog_seed, voicing.reply_index, generation.index),
            language=language,
            instructions=voicing.instructions,
            anchor=voicing.anchor,
            carry=carry,
            output="both" if ears is not None and ears.carries else "pcm",
            live=True,
        )

    def _carry(self, generation: Generation, language: str | None) -> Carry | None:
        """What it leans on, if there is text enough: an engine reads an id of the text for each frame of it first."""
        carry = self._ears.carry(self._voicing.name, language) if self._ears is not None else None
        if carry is None or generation.finished:
            return carry
        needed = CARRY_MARGIN * len(carry.codes) - tokens(carry.text)
        if generation is self._last and self._feed.is_open:
            self._feed.wants(needed)
            self._step()
        return carry if generation.finished or tokens(generation.spoken) >= needed else None

    async def _tell_ears(self, generation: Generation, heard: list[AudioChunk]) -> None:
        """Only now is its text known, and with it what the ears compare the sound with."""
        if self._ears is None or generation.asked is None:
            return
        ear = self._ears.ear(self._segment(generation), self._voicing.name, None)
        ear.opened(generation.asked, generation.language, generation.text_tokens)
        for chunk in heard:
            ear.chunk(chunk)
        await ear.over(lambda: True)

    def _lost(self) -> None:
        if self._ears is not None and self._ears.continuity is not None:
            self._ears.continuity.reset()

    def _segment(self, generation: Generation) -> Segment:
        """The generation as far as it is known."""
        start, spoken = generation.starts_at, generation.spoken
        end = generation.ends[-1] if generation.ends else start
        tail = spoken[len(spoken.rstrip()) :].count("\n")
        pause_ms = (SENTENCE_PAUSE_MS, LINE_PAUSE_MS, PARAGRAPH_PAUSE_MS)[min(tail, 2)]
        text = self._raw[start:end]
        return Segment(generation.index, text, spoken, start, end, SegmentKind.SENTENCE, pause_ms)

    # ------------------------------------------------------------ the reader's side
    async def events(self) -> AsyncGenerator[ReplyEvent, None]:
        """What is heard, in order. A generation that fails ends with its fault; the reader decides what follows."""
        played = 0
        while True:
            while not self._generations:
                if self._feed.done or self._left:
                    return
                self._arrived.clear()
                await self._arrived.wait()
            generation = self._generations[0]
            async for event in self._sound_of(generation, played):
                played += len(event.pcm) if isinstance(event, ReplyAudio) else 0
                yield event
            self._generations.popleft()
            self._step()

    async def _sound_of(self, generation: Generation, played: int) -> AsyncGenerator[ReplyEvent, None]:
        sounding, begun = self._sounding, False
        while True:
            if generation.settled.is_set() and generation.language and not begun:
                begun = True
                if len(pause := sounding.begin()):
                    yield ReplyAudio(pause)
                yield self._started(generation, played + len(pause))
            elif generation.has_audio:
                grown, ends = generation.grown()
                if grown:
                    yield SegmentGrew(grown, ends)
                chunk, ready_s = generation.take()
                if len(pcm := sounding.feed(chunk.pcm)):
                    yield ReplyAudio(pcm, ready_s, chunk.text_chars)
            elif generation.over:
                break
            else:
                generation.changed.clear()
                await generation.changed.wait()
        segment = self._segment(generation)
        if len(pcm := sounding.end(segment)):
            yield ReplyAudio(pcm, asyncio.get_running_loop().time(), generation.text_chars)
        yield SegmentEnded(segment, generation.samples, generation.fault)

    def _started(self, generation: Generation, first_sample: int) -> SegmentStarted:
        _, ends = generation.grown()
        asked = generation.asked
        voice = self._voicing.stored or self._voicing.voice
        seed = asked.seed if asked is not None else 0
        segment = self._segment(generation)
        return SegmentStarted(segment, seed, voice, generation.language, first_sample, ends=ends)
