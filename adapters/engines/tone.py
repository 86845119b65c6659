"""An engine that hums: every word is a tone whose pitch depends on voice, seed, word and position.

A voice given by a speaker embedding has its pitch and timbre from it. For demonstrations, load tests and overhead
measurements, where speech itself does not matter but timing, determinism and failures do. It costs next to nothing and
can be told to fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from adapters.engines.anchors import checked_clip, checked_embedding, made_anchor
from adapters.engines.live_text import TextCount
from adapters.engines.rows import Rows, chunk_frames
from adapters.engines.tone_tune import (
    BASE_HZ,
    MIN_CLIP_SAMPLES,
    WIDTH,
    Timbre,
    Tune,
    spectrum_of,
    timbre_of_embedding,
    timbre_of_voice,
)
from sidecar.faults import BadRequest, EngineFault, EngineLost, UnknownVoice, UnsupportedByEngine
from sidecar.ports import (
    FRAME_SAMPLES,
    SAMPLE_RATE_HZ,
    AudioChunk,
    Clock,
    EngineHealth,
    EngineTraits,
    EngineVoice,
    Pcm,
    Utterance,
)
from voices.anchor import SpeakerAnchor

Fault = Literal["none", "open", "first_chunk", "mid", "hang", "silence", "nan", "endless"]

# All of ISO 639-1, two letters each: a hum is the same in every language.
_CODES = (
    "aaabaeafakamanarasavayazbabebgbibmbnbobrbscacechcocrcscucvcydadedvdzeeeleneoeseteufafffifjfofrfygagd"
    "glgngugvhahehihohrhthuhyhziaidieigiiikioisitiujajvkakgkikjkkklkmknkokrkskukvkwkylalblglilnloltlulvmg"
    "mhmimkmlmnmrmsmtmynanbndnengnlnnnonrnvnyocojomorospapiplpsptqurmrnrorurwsascsdsesgsiskslsmsnsosqsrss"
    "stsusvswtatetgthtitktltntotrtstttwtyugukuruzvevivowawoxhyiyozazhzu"
)
_LANGUAGES = tuple(_CODES[at : at + 2] for at in range(0, len(_CODES), 2))


@dataclass(frozen=True, slots=True)
class ToneSettings:
    """How fast the engine hums and how it fails; raises ``ValueError`` when a value makes no sense.

    ``realtime_factor``: seconds of work per second of audio (0: as fast as possible, 0.1: ten times faster than
    speech). ``chunk_ramp_frames``: lengths of the first chunks; the last one repeats. ``row_wait_ms``: how long
    an utterance waits for one of ``max_rows`` rows.

    ``fault`` hits every ``fault_every``-th utterance: ``open`` refuses it, ``first_chunk`` and ``mid`` break off
    before the first chunk or half way, ``hang`` stops giving after the first chunk, ``silence`` gives zeros,
    ``nan`` puts NaN into half of the samples, ``endless`` never ends and ignores ``Utterance.max_frames``.
    """

    realtime_factor: float = 0.0
    first_chunk_delay_ms: float = 0.0
    chunk_ramp_frames: tuple[int, ...] = (1, 2, 4, 8, 16, 25)
    max_rows: int = 256
    max_waiting: int = 256
    row_wait_ms: float = 2_000.0
    fault: Fault = "none"
    fault_every: int = 1

    def __post_init__(self) -> None:
        ramp = self.chunk_ramp_frames
        if self.fault not in get_args(Fault):
            raise ValueError(f"fault must be one of {', '.join(get_args(Fault))}")
        if not ramp or ramp[0] < 1 or list(ramp) != sorted(ramp):
            raise ValueError("chunk_ramp_frames must be positive and never shrink")
        if not (0 <= self.realtime_factor < 1e3 and 0 <= self.first_chunk_delay_ms < 1e9):
            raise ValueError("realtime_factor and first_chunk_delay_ms must be finite and not negative")
        if self.max_rows < 1 or self.fault_every < 1 or self.max_waiting < 0 or self.row_wait_ms < 0:
            raise ValueError("max_rows and fault_every must be at least 1, waiting limits not negative")


class ToneEngine:
    """The humming engine; see the module. ``on_open`` hears of every valid utterance as it is asked for."""

    def __init__(
        self,
        settings: ToneSettings,
        clock: Clock,
        *,
        on_open: Callable[[Utterance], None] | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._on_open = on_open
        self._rows = Rows(
            settings.max_rows,
            max_waiting=settings.max_waiting,
            wait_ms=settings.row_wait_ms,
            sleep=clock.sleep,
        )
        self._speaking: set[_ToneSpeaking] = set()
        self._opened = 0
        self._state: Literal["new", "running", "closed"] = "new"
        self._traits = EngineTraits(
            name="tone",
            voices=tuple(
                EngineVoice(name, _LANGUAGES, f"tones from {base_hz} Hz upwards") for name, base_hz in BASE_HZ.items()
            ),
            default_voice="alto",
            languages=_LANGUAGES,
            max_rows=settings.max_rows,
            deterministic=True,
            clone_widths=(WIDTH,),
            live_text=True,
        )

    @property
    def traits(self) -> EngineTraits:
        """Fixed from the beginning."""
        return self._traits

    async def start(self) -> None:
        """Ready at once; raises ``EngineLost`` after ``close``."""
        if self._state == "closed":
            raise EngineLost("The tone engine was stopped.")
        self._state = "running"

    async def open(self, utterance: Utterance) -> _ToneSpeaking:
        """Begin to hum; see ``Engine.open``. A live text is hummed word by word, as the words are complete."""
        if self._state != "running":
            raise EngineLost("The tone engine is not running.")
        timbre = _timbre(utterance)
        text = TextCount(utterance)
        if self._on_open is not None:
            self._on_open(utterance)
        self._opened += 1
        fault = self._settings.fault if self._opened % self._settings.fault_every == 0 else "none"
        if fault == "open":
            raise EngineFault("The tone engine was told to refuse this utterance.")
        await self._rows.take()
        if self._rows.closed:  # after the row was promised
            self._rows.give()
            raise EngineLost("The tone engine was stopped.")
        speaking = _ToneSpeaking(utterance, text, timbre, self._settings, self._clock, fault, self._leave)
        self._speaking.add(speaking)
        return speaking

    async def encode_voice(self, pcm: Pcm, transcript: str | None) -> SpeakerAnchor:
        """The mean spectrum of the recording; see ``Engine.encode_voice``. There are no codes."""
        if self._state != "running":
            raise EngineLost("The tone engine is not running.")
        clip, _ = checked_clip(pcm, transcript, min_samples=MIN_CLIP_SAMPLES)
        return made_anchor("tone", clip, spectrum_of(clip), None, "")

    async def health(self) -> EngineHealth:
        """Counts every row that is speaking or promised to a waiting utterance."""
        running = self._state == "running"
        return EngineHealth(running, "" if running else "not running", self._rows.active)

    async def close(self) -> None:
        """End every utterance with ``EngineLost``. Idempotent."""
        self._state = "closed"
        self._rows.close()
        for speaking in list(self._speaking):
            speaking.lose()

    def _leave(self, speaking: _ToneSpeaking) -> None:
        if speaking in self._speaking:
            self._speaking.remove(speaking)
            self._rows.give()


def _timbre(utterance: Utterance) -> Timbre:
    if utterance.output != "pcm":
        raise UnsupportedByEngine("The tone engine has no codes to give.", param="output_mode")
    if utterance.anchor is not None:
        return timbre_of_embedding(checked_embedding(utterance.anchor, (WIDTH,)))
    if utterance.voice not in BASE_HZ:
        raise UnknownVoice(f"Unknown voice; there are: {', '.join(BASE_HZ)}.", param="voice")
    return timbre_of_voice(utterance.voice)


class _ToneSpeaking:
    """One utterance being hummed."""

    def __init__(
        self,
        utterance: Utterance,
        text: TextCount,
        timbre: Timbre,
        settings: ToneSettings,
        clock: Clock,
        fault: Fault,
        leave: Callable[[_ToneSpeaking], None],
    ) -> None:
        self._text = text
        self._tune = Tune(timbre, utterance.seed)
        self._tune.feed(utterance.text)
        if not utterance.live:
            self._tune.finish()
        self._first_chunk_frames = utterance.first_chunk_frames
        self._max_frames = utterance.max_frames
        self._settings = settings
        self._clock = clock
        self._fault = fault
        self._leave = leave
        self._language = utterance.language or "en"
        self._end: asyncio.Future[Literal["cancelled", "lost"]] = asyncio.get_running_loop().create_future()
        self._more_text = asyncio.Event()
        self._due_ms = clock.now_ms() + settings.first_chunk_delay_ms
        self._started = False

    @property
    def language(self) -> str:
        """The language given, else ``en``."""
        return self._language

    @property
    def text_tokens(self) -> int:
        """One for every four characters."""
        return max(1, self._text.chars // 4)

    def append(self, text: str) -> None:
        """See ``Speaking``."""
        if self._text.append(text, over=self._end.done()):
            self._tune.feed(text)
            self._more_text.set()

    def finish(self) -> None:
        """See ``Speaking``."""
        if self._text.finish():
            self._tune.finish()
            self._more_text.set()

    def chunks(self) -> AsyncIterator[AudioChunk]:
        """See ``Speaking``; raises ``EngineFault`` (injected) and ``EngineLost`` (closed)."""
        if self._started:
            raise RuntimeError("chunks() can be iterated only once")
        self._started = True
        return self._hum()

    def cancel(self) -> None:
        """Frees the row at once."""
        self._stop("cancelled")

    def lose(self) -> None:
        """The engine is closed: ``chunks`` ends with ``EngineLost``."""
        self._stop("lost")

    def _stop(self, why: Literal["cancelled", "lost"]) -> None:
        if not self._end.done():
            self._end.set_result(why)
        self._more_text.set()
        self._leave(self)

    async def _hum(self) -> AsyncIterator[AudioChunk]:
        done = 0
        try:
            for wanted in chunk_frames(self._settings.chunk_ramp_frames, self._first_chunk_frames):
                length = min(wanted, await self._known(done))
                self._break_if_told(done, self._frames())
                await self._pace(length)
                if self._end.done():
                    break
                yield self._chunk(done, length)
                done += length
                if self._fault == "hang":
                    await asyncio.wait({self._end})
                    break
                if done == self._frames():
                    return
            if self._end.done() and self._end.result() == "lost":
                raise EngineLost("The tone engine was stopped.")
        finally:
            if not self._end.done():
                self._end.set_result("cancelled")
            self._leave(self)

    async def _known(self, done: int) -> int:
        """Wait until at least one frame more can be hummed; how many can."""
        while not self._end.done():
            if self._text.finished and self._text.live and self._tune.empty:
                raise BadRequest("There is no text to speak.", param="input")
            whole = self._frames()
            if self._tune.frames is not None and whole is None:
                return self._settings.chunk_ramp_frames[-1]
            known = self._tune.known_frames
            known = known if whole is None else min(known, whole)
            if known > done:
                return known - done
            self._more_text.clear()
            await self._more_text.wait()
        return 1

    def _frames(self) -> int | None:
        """Where the hum ends; None while nobody knows, or never."""
        if self._fault == "endless":
            return None
        ends = [self._tune.frames, None if self._max_frames is None else max(1, self._max_frames)]
        return min((end for end in ends if end is not None), default=None)

    def _break_if_told(self, done: int, frames: int | None) -> None:
        if self._fault == "first_chunk":
            raise EngineFault("The tone engine was told to fail before the first chunk.")
        if self._fault == "mid" and frames is not None and done * 2 >= frames:
            raise EngineFault("The tone engine was told to fail half way.")

    async def _pace(self, length: int) -> None:
        # One chunk is worked on while the reader is away, no more: a late reader moves the whole timetable.
        work_ms = length * FRAME_SAMPLES * 1e3 / SAMPLE_RATE_HZ * self._settings.realtime_factor
        self._due_ms += work_ms
        wait_ms = self._due_ms - self._clock.now_ms()
        if wait_ms <= 0:
            self._due_ms -= wait_ms
            await asyncio.sleep(0)
            return
        sleeper = asyncio.ensure_future(self._clock.sleep(wait_ms))
        either: set[asyncio.Future[Any]] = {sleeper, self._end}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeper.cancel()

    def _chunk(self, done: int, length: int) -> AudioChunk:
        first = done * FRAME_SAMPLES
        pcm = self._tune.samples(first, length * FRAME_SAMPLES)
        if self._fault == "silence":
            pcm[:] = 0
        elif self._fault == "nan":
            pcm[::2] = np.nan
        chars = self._tune.text_chars(first + len(pcm))
        self._text.read(chars)
        return AudioChunk(pcm, first, text_chars=chars)
