"""An engine that hums: every word is a tone whose pitch depends on voice, seed, word and position.

For demonstrations, load tests and overhead measurements, where speech itself does not matter but timing,
determinism and failures do. It costs next to nothing and can be told to fail.
"""

from __future__ import annotations

import asyncio
import hashlib
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, get_args

import numpy as np

from adapters.engines.rows import Rows, chunk_frames
from sidecar.faults import EngineFault, EngineLost, UnknownVoice
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

Fault = Literal["none", "open", "first_chunk", "mid", "hang", "silence", "nan", "endless"]

# All of ISO 639-1, two letters each: a hum is the same in every language.
_CODES = (
    "aaabaeafakamanarasavayazbabebgbibmbnbobrbscacechcocrcscucvcydadedvdzeeeleneoeseteufafffifjfofrfygagd"
    "glgngugvhahehihohrhthuhyhziaidieigiiikioisitiujajvkakgkikjkkklkmknkokrkskukvkwkylalblglilnloltlulvmg"
    "mhmimkmlmnmrmsmtmynanbndnengnlnnnonrnvnyocojomorospapiplpsptqurmrnrorurwsascsdsesgsiskslsmsnsosqsrss"
    "stsusvswtatetgthtitktltntotrtstttwtyugukuruzvevivowawoxhyiyozazhzu"
)
_LANGUAGES = tuple(_CODES[at : at + 2] for at in range(0, len(_CODES), 2))
_BASE_HZ = {"alto": 220, "bass": 90, "tenor": 140, "soprano": 330}
_CHARACTERS_PER_FRAME = 1.2
_MIN_FRAMES = 2
_AMPLITUDE = 0.14  # about -20 dBFS RMS, the level of the speaking engines
_FADE_SAMPLES = 120
_SINE: Pcm = np.sin(np.arange(SAMPLE_RATE_HZ) * (2 * np.pi / SAMPLE_RATE_HZ)).astype(np.float32)


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
                EngineVoice(name, _LANGUAGES, f"tones from {base_hz} Hz upwards") for name, base_hz in _BASE_HZ.items()
            ),
            default_voice="alto",
            languages=_LANGUAGES,
            max_rows=settings.max_rows,
            deterministic=True,
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
        """Begin to hum. Raises ``UnknownVoice``, ``EngineOverloaded``, ``EngineLost``, ``EngineFault``."""
        if self._state != "running":
            raise EngineLost("The tone engine is not running.")
        if utterance.voice not in _BASE_HZ:
            raise UnknownVoice(f"Unknown voice; there are: {', '.join(_BASE_HZ)}.", param="voice")
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
        speaking = _ToneSpeaking(utterance, self._settings, self._clock, fault, self._leave)
        self._speaking.add(speaking)
        return speaking

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


class _ToneSpeaking:
    """One utterance being hummed."""

    def __init__(
        self,
        utterance: Utterance,
        settings: ToneSettings,
        clock: Clock,
        fault: Fault,
        leave: Callable[[_ToneSpeaking], None],
    ) -> None:
        self._tune = _Tune(utterance)
        self._first_chunk_frames = utterance.first_chunk_frames
        self._max_frames = utterance.max_frames
        self._settings = settings
        self._clock = clock
        self._fault = fault
        self._leave = leave
        self._language = utterance.language or "en"
        self._text_tokens = max(1, len(utterance.text) // 4)
        self._end: asyncio.Future[Literal["cancelled", "lost"]] = asyncio.get_running_loop().create_future()
        self._due_ms = clock.now_ms() + settings.first_chunk_delay_ms
        self._started = False

    @property
    def language(self) -> str:
        """The language given, else ``en``."""
        return self._language

    @property
    def text_tokens(self) -> int:
        """One for every four characters."""
        return self._text_tokens

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
        self._leave(self)

    async def _hum(self) -> AsyncIterator[AudioChunk]:
        frames = self._frames()
        done = 0
        try:
            for length in chunk_frames(self._settings.chunk_ramp_frames, self._first_chunk_frames):
                length = length if frames is None else min(length, frames - done)
                self._break_if_told(done, frames)
                await self._pace(length)
                if self._end.done():
                    break
                yield self._chunk(done, length)
                done += length
                if self._fault == "hang":
                    await asyncio.wait({self._end})
                    break
                if done == frames:
                    return
            if self._end.done() and self._end.result() == "lost":
                raise EngineLost("The tone engine was stopped.")
        finally:
            self._leave(self)

    def _frames(self) -> int | None:
        if self._fault == "endless":
            return None
        frames = self._tune.frames
        return frames if self._max_frames is None else min(frames, max(1, self._max_frames))

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
        return AudioChunk(pcm, first)


class _Tune:
    """The samples of an utterance, made piece by piece; whatever the pieces, the samples are the same."""

    def __init__(self, utterance: Utterance) -> None:
        words = utterance.text.split() or [""]
        self.frames = max(_MIN_FRAMES, round(len(utterance.text) / _CHARACTERS_PER_FRAME))
        share = [len(word) + 1 for word in words]
        total = sum(share)
        samples = self.frames * FRAME_SAMPLES
        self._ends = [samples * upto // total for upto in accumulate(share)]
        self._words = words
        self._base_hz = _BASE_HZ[utterance.voice]
        self._key = hashlib.blake2b(f"{utterance.voice} {utterance.seed}".encode(), digest_size=16).digest()

    def samples(self, first: int, count: int) -> Pcm:
        """``count`` samples from sample ``first`` on; after the last word the tune begins again."""
        pcm = np.empty(count, np.float32)
        done = 0
        while done < count:
            at = (first + done) % self._ends[-1]
            position = bisect_right(self._ends, at)
            length = min(self._ends[position] - at, count - done, SAMPLE_RATE_HZ)
            pcm[done : done + length] = self._word(position, at, length)
            done += length
        return pcm

    def _word(self, position: int, at: int, length: int) -> Pcm:
        """Part of one word, at most a second."""
        start = self._ends[position - 1] if position else 0
        first, total = at - start, self._ends[position] - start
        # A tone of whole Hz repeats after a second: no phase here is larger than 32 bits, and those are cheap.
        begin = first % SAMPLE_RATE_HZ
        phase = np.arange(begin, begin + length, dtype=np.int32) * np.int32(self._hz(position))
        phase -= phase // np.int32(SAMPLE_RATE_HZ) * np.int32(SAMPLE_RATE_HZ)
        tone: Pcm = _SINE.take(phase, mode="wrap")
        tone *= _edge(first, length, total)
        tone *= np.float32(_AMPLITUDE / _FADE_SAMPLES)
        return tone

    def _hz(self, position: int) -> int:
        word = self._words[position].encode("utf-8", "surrogatepass")
        drawn = hashlib.blake2b(word + position.to_bytes(4, "big"), digest_size=4, key=self._key).digest()
        return self._base_hz + int.from_bytes(drawn, "big") % self._base_hz


def _edge(first: int, length: int, total: int) -> Pcm:
    """How loud each of ``length`` samples from ``first`` on is in a word of ``total``: it fades in and out."""
    edge = np.full(length, _FADE_SAMPLES, np.float32)
    rising = edge[: max(0, _FADE_SAMPLES - first)]
    rising[:] = np.arange(first, first + len(rising))
    near_end = max(0, total - _FADE_SAMPLES - first)
    falling = edge[near_end:]
    np.minimum(falling, total - first - near_end - np.arange(len(falling)), out=falling, casting="same_kind")
    return edge
