"""Drives one reply: tokens -> segments -> utterances -> samples, in order, bounded everywhere."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import Protocol, Self

from segmenter import AUTO, Segment, SegmentOptions, SegmentStream
from sidecar.core.events import ReplyAudio, ReplyEvent, SegmentEnded, SegmentStarted
from sidecar.faults import Fault, PassageLost, TooLarge, UnsupportedLanguage
from sidecar.ports import Clock, Engine, Utterance
from sidecar.reply_ears import ReplyEars
from sidecar.sounding import Sounding
from sidecar.speech_line import Audio, LineLimits, Opened, SpeechLine
from voices.anchor import SpeakerAnchor
from voices.seeds import segment_seed


@dataclass(frozen=True, slots=True)
class Voicing:
    """How a reply is to sound. Segment seeds are derived from the dialog seed and the reply's place in the dialog.

    ``voice`` is one of the engine's; ``anchor`` speaks in its place. ``stored`` names the stored voice, for listeners,
    ``level_db`` is the level it is known to have, ``fingerprint`` changes with anything of it that can be heard.
    """

    voice: str
    dialog_seed: int
    reply_index: int = 0
    language: str | None = None
    instructions: str = ""
    anchor: SpeakerAnchor | None = None
    stored: str = ""
    level_db: float | None = None
    fingerprint: str = ""

    @property
    def name(self) -> str:
        """What tells this voice from others."""
        anchored = self.anchor.fingerprint if self.anchor is not None else self.voice
        return self.fingerprint or anchored or self.stored


@dataclass(frozen=True, slots=True)
class SoundRules:
    """How the segments of replies are joined; see ``sounding``."""

    shape_pauses: bool = True
    target_level_db: float | None = None


@dataclass(frozen=True, slots=True)
class ReplyLimits:
    """Bounds of one reply. ``unspoken_chars`` may wait for the engine before ``feed`` holds the writer back."""

    line: LineLimits = field(default_factory=LineLimits)
    unspoken_chars: int = 2_000
    max_chars: int = 65_536


class ReplyObserver(Protocol):
    """Told what happens inside a reply (metrics)."""

    def utterance_opened(self) -> None:
        """An utterance goes to the engine."""

    def segment_waited(self, ms: float) -> None:
        """Time from the token that completed a segment to its call of the engine, where nothing else was in the way."""


class Reply:
    """One reply being spoken while it is still being written. Use as an async context manager.

    A writer calls ``feed`` and ``finish``; a reader iterates ``events``. Leaving the context stops everything.
    """

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        voicing: Voicing,
        options: SegmentOptions,
        limits: ReplyLimits,
        observer: ReplyObserver | None = None,
        *,
        ears: ReplyEars | None = None,
        sound: SoundRules | None = None,
    ) -> None:
        self._ears = ears
        rules = sound or SoundRules()
        self._shaped = rules.shape_pauses
        self._sounding = Sounding(
            shape_pauses=rules.shape_pauses, target_level_db=rules.target_level_db, level_db=voicing.level_db
        )
        self._clock = clock
        self._voicing = voicing
        self._limits = limits
        self._observer = observer
        if voicing.language and options.language == AUTO:
            options = replace(options, language=voicing.language)
        self._stream = SegmentStream(options)
        # Below decide_after_ms the segmenter does nothing at all, whatever fragment_after_ms says.
        decide_ms = options.decide_after_ms
        self._pauses_ms = (decide_ms, max(decide_ms, options.fragment_after_ms))
        self._pauses_seen = 0
        self._pause_is_over = False
        self._pause_timer: asyncio.TimerHandle | None = None
        self._line: SpeechLine[Segment] = SpeechLine(engine, limits.line, observer)
        self._queue: deque[tuple[Segment, float]] = deque()
        self._queued_chars = 0
        self._fed_chars = 0
        self._finished = False
        self._failed: Exception | None = None
        self._last_feed_ms = clock.now_ms()
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._line.__aenter__()
        self._task = asyncio.create_task(self._say_all())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._line.__aexit__(kind, error, trace)
        # A writer who still waits for room is let go.
        self._queued_chars = 0
        self._room.set()

    # ------------------------------------------------------------ the writer's side
    async def feed(self, text: str) -> None:
        """Take the next piece of text; waits while too much of the text before is still unspoken.

        Raises ``TooLarge`` once the reply is longer than ``max_chars``.
        """
        self._fed_chars += len(text)
        if self._fed_chars > self._limits.max_chars:
            raise TooLarge(f"The reply is longer than {self._limits.max_chars} characters.")
        self._last_feed_ms = self._clock.now_ms()
        self._pauses_seen = 0
        self._pause_is_over = False
        self._enqueue(self._stream.feed(text))
        if self._queue or self._pause_timer is None:
            self._arrived.set()
        while self._queued_chars > self._limits.unspoken_chars:
            self._room.clear()
            await self._room.wait()

    def finish(self) -> None:
        """The text is complete: what is left of it becomes segments. Idempotent."""
        if not self._finished:
            self._finished = True
            self._enqueue(self._stream.flush())
            self._arrived.set()

    def _enqueue(self, segments: list[Segment]) -> None:
        now_ms = self._clock.now_ms()
        for segment in segments:
            if segment.spoken:
                self._queue.append((segment, now_ms))
                self._queued_chars += len(segment.text)

    # ------------------------------------------------------------ segments -> utterances
    async def _say_all(self) -> None:
        try:
            await self._say_each()
        except Exception as error:
            # Without an end to the line its reader would wait for ever.
            self._failed = error
            self._line.end()

    async def _say_each(self) -> None:
        while True:
            waited = not self._queue
            if waited and not await self._next_arrived():
                self._line.end()
                return
            segment, ready_ms = self._queue.popleft()
            self._queued_chars -= len(segment.text)
            self._room.set()
            free = waited and self._line.waiting <= self._limits.line.ahead
            ears = self._ears
            await self._line.say(
                segment,
                partial(self._utterance, segment, ready_ms if free else None),
                ears.ear(segment, self._voicing.name, shaped=self._shaped) if ears is not None else None,
                after_whole=ears is not None and ears.carries,
            )

    async def _next_arrived(self) -> bool:
        """Wait for a segment; a model that pauses in mid-text has its pending words spoken. False at the end."""
        try:
            while not self._queue:
                if self._finished:
                    return False
                if self._pause_is_over:
                    self._pause_is_over = False
                    self._pauses_seen += 1
                    self._enqueue(self._stream.idle(self._pauses_ms[self._pauses_seen - 1]))
                    continue
                self._arrived.clear()
                if self._pause_timer is None:
                    self._watch_pause()
                await self._arrived.wait()
        finally:
            if self._pause_timer is not None:
                self._pause_timer.cancel()
                self._pause_timer = None
        return True

    def _watch_pause(self) -> None:
        """Look again when the next pause would be over: the many tokens that complete nothing need wake nobody."""
        self._pause_timer = None
        if (left_s := self._idle_left_s()) is not None:
            loop = asyncio.get_running_loop()
            self._pause_timer = loop.call_later(left_s, self._look_for_pause, self._fed_chars)

    def _look_for_pause(self, fed_chars: int) -> None:
        if fed_chars != self._fed_chars:
            self._watch_pause()
            return
        self._pause_timer = None
        self._pause_is_over = True
        self._arrived.set()

    def _idle_left_s(self) -> float | None:
        """Seconds until the next pause that makes the segmenter decide; None when there is none left."""
        if not self._stream.pending_chars or self._pauses_seen == len(self._pauses_ms):
            return None
        silent_ms = self._clock.now_ms() - self._last_feed_ms
        return max(0.0, self._pauses_ms[self._pauses_seen] - silent_ms) / 1000

    def _utterance(self, segment: Segment, ready_ms: float | None) -> Utterance:
        voicing, before = self._voicing, self._line.last_opened
        if ready_ms is not None and self._observer is not None:
            self._observer.segment_waited(self._clock.now_ms() - ready_ms)
        language = voicing.language or (before.language if before is not None else None)
        carries = self._ears is not None and self._ears.carries
        return Utterance(
            text=segment.spoken,
            voice=voicing.voice,
            seed=segment_seed(voicing.dialog_seed, voicing.reply_index, segment.index),
            language=language,
            instructions=voicing.instructions,
            anchor=voicing.anchor,
            carry=self._ears.carry(voicing.name, language) if self._ears is not None else None,
            output="both" if carries else "pcm",
        )

    # ------------------------------------------------------------ the reader's side
    async def events(self) -> AsyncGenerator[ReplyEvent, None]:
        """What is heard, in order. A segment that fails ends with its fault; the reader decides what follows.

        The language of the first segment is kept for the rest of the reply: one reply, one voice.
        """
        played = 0
        sounding = self._sounding
        async for event in self._line.events():
            segment = event.ticket
            if isinstance(event, Opened):
                pause = sounding.begin()
                if len(pause):
                    played += len(pause)
                    yield ReplyAudio(pause)
                voice = self._voicing.stored or event.utterance.voice
                yield SegmentStarted(segment, event.utterance.seed, voice, event.language, played)
            elif isinstance(event, Audio):
                pcm = sounding.feed(event.chunk.pcm)
                if len(pcm):
                    played += len(pcm)
                    yield ReplyAudio(pcm, event.ready_s, event.chunk.text_chars)
            else:
                pcm = sounding.end(segment)
                if len(pcm):
                    played += len(pcm)
                    yield ReplyAudio(pcm, asyncio.get_running_loop().time())
                yield SegmentEnded(segment, event.samples, event.fault)
        if self._failed is not None:
            raise self._failed


def fatal(ended: SegmentEnded, heard_anything: bool) -> Fault | None:
    """The fault that must end the reply, if this segment's is one.

    A passage in a language without a voice, and the rest of one that the engine lost, is left out once something has
    been heard: what follows is worth more.
    """
    if ended.fault is None or (heard_anything and isinstance(ended.fault, UnsupportedLanguage | PassageLost)):
        return None
    return ended.fault
