"""What the tone engine hums: voices, the tune of a text, and what it hears in a recording of a voice."""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sidecar.ports import FRAME_SAMPLES, SAMPLE_RATE_HZ, Pcm

BASE_HZ = {"alto": 220, "bass": 90, "tenor": 140, "soprano": 330}
"""The voices and where their tones begin."""

WIDTH = 1_024
"""Width of the embeddings."""

MIN_CLIP_SAMPLES = 2 * WIDTH
"""A shorter recording has no such spectrum."""

MIN_FRAMES = 2
_CHARACTERS_PER_FRAME = 1.2
_CHARACTER_SAMPLES = round(FRAME_SAMPLES / _CHARACTERS_PER_FRAME)
_AMPLITUDE = 0.14  # about -20 dBFS RMS, the level of the speaking engines
_FADE_SAMPLES = 120
_LOWEST_HZ, _HIGHEST_HZ = 90, 330
_PARTIALS = 4
_FLOOR_DB = 80.0
_SINE: Pcm = np.sin(np.arange(SAMPLE_RATE_HZ) * (2 * np.pi / SAMPLE_RATE_HZ)).astype(np.float32)

_WORD_AND_NEXT = re.compile(r"(?<!\S)(\S++)\s++(?=\S)")


@dataclass(frozen=True, slots=True, eq=False)
class Timbre:
    """A voice: where its tones begin, and one second of a tone of 1 Hz. ``name`` sets its melodies apart."""

    name: str
    base_hz: int
    wave: Pcm


def timbre_of_voice(voice: str) -> Timbre:
    """One of ``BASE_HZ``: pure tones."""
    return Timbre(voice, BASE_HZ[voice], _SINE)


def timbre_of_embedding(embedding: NDArray[np.float32]) -> Timbre:
    """A voice whose pitch is the embedding's centre of gravity and whose partials are its four quarters."""
    size = np.abs(embedding.astype(np.float64))
    size = size / size.max() if size.any() else np.ones(WIDTH)
    centre = float((size * np.arange(WIDTH)).sum() / (size.sum() * (WIDTH - 1)))
    quarters = size.reshape(_PARTIALS, -1).mean(axis=1)
    wave = np.zeros(SAMPLE_RATE_HZ)
    for partial, strength in enumerate(quarters / quarters.max(), 1):
        weight = 1.0 if partial == 1 else float(strength) / partial
        wave += weight * _SINE.take(np.arange(SAMPLE_RATE_HZ) * partial, mode="wrap")
    wave *= np.sqrt(0.5 / np.square(wave).mean())
    name = hashlib.blake2b(np.ascontiguousarray(embedding).tobytes(), digest_size=16).hexdigest()
    return Timbre(name, _LOWEST_HZ + round(centre * (_HIGHEST_HZ - _LOWEST_HZ)), wave.astype(np.float32))


def spectrum_of(pcm: Pcm) -> NDArray[np.float32]:
    """The mean spectrum of a recording of at least ``MIN_CLIP_SAMPLES``, ``(WIDTH,)`` from 0 (-80 dB) to 1 (loudest).

    Rounded to 256 steps, so that the last bits of a computation do not show.
    """
    starts = range(0, len(pcm) - 2 * WIDTH + 1, WIDTH)
    window = np.hanning(2 * WIDTH)
    power = np.zeros(WIDTH)
    for start in starts:
        power += np.square(np.abs(np.fft.rfft(pcm[start : start + 2 * WIDTH] * window)))[:WIDTH]
    level_db = 10 * np.log10(np.maximum(power / power.max(), 10 ** (-_FLOOR_DB / 10)))
    embedding: NDArray[np.float32] = (np.round((level_db / _FLOOR_DB + 1) * 256) / 256).astype(np.float32)
    return embedding


class Tune:
    """The samples of a text that may still be coming; whatever its pieces and theirs, the samples are the same.

    A word is settled once the next one has begun, or the text is complete.
    """

    def __init__(self, timbre: Timbre, seed: int) -> None:
        self._timbre = timbre
        self._key = hashlib.blake2b(f"{timbre.name} {seed}".encode(), digest_size=16).digest()
        self._words: list[str] = []
        self._ends: list[int] = []  # in samples
        self._text_ends: list[int] = []  # in characters
        self._open = ""  # text behind the settled words
        self._open_at = 0
        self.frames: int | None = None
        """Frames of the whole text, once it is complete."""

    @property
    def known_frames(self) -> int:
        """Whole frames that nothing to come can change."""
        return (self._ends[-1] if self._ends else 0) // FRAME_SAMPLES

    @property
    def empty(self) -> bool:
        """True when no word has come."""
        return not any(self._words) and not self._open.strip()

    def feed(self, text: str) -> None:
        """More text."""
        self._open += text
        at = 0
        for found in _WORD_AND_NEXT.finditer(self._open):
            self._settle(found[1], self._open_at + found.end(1))
            at = found.end()
        self._open_at += at
        self._open = self._open[at:]

    def finish(self) -> None:
        """The text is complete."""
        before = self._open[: len(self._open) - len(self._open.lstrip())]
        word = self._open.strip()
        self._settle(word, self._open_at + len(before) + len(word))
        characters = self._ends[-1] // _CHARACTER_SAMPLES - 1
        self.frames = max(MIN_FRAMES, round(characters / _CHARACTERS_PER_FRAME))
        self._ends[-1] = self.frames * FRAME_SAMPLES

    def text_chars(self, samples: int) -> int:
        """Characters up to the end of the word that sounds in the last of so many samples."""
        return self._text_ends[min(bisect_right(self._ends, max(0, samples - 1)), len(self._ends) - 1)]

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

    def _settle(self, word: str, text_end: int) -> None:
        self._words.append(word)
        before = self._ends[-1] if self._ends else 0
        self._ends.append(before + (len(word) + 1) * _CHARACTER_SAMPLES)
        self._text_ends.append(text_end)

    def _word(self, position: int, at: int, length: int) -> Pcm:
        """Part of one word, at most a second."""
        start = self._ends[position - 1] if position else 0
        first, total = at - start, self._ends[position] - start
        # A tone of whole Hz repeats after a second: no phase here is larger than 32 bits, and those are cheap.
        begin = first % SAMPLE_RATE_HZ
        phase = np.arange(begin, begin + length, dtype=np.int32) * np.int32(self._hz(position))
        phase -= phase // np.int32(SAMPLE_RATE_HZ) * np.int32(SAMPLE_RATE_HZ)
        tone: Pcm = self._timbre.wave.take(phase, mode="wrap")
        tone *= _edge(first, length, total)
        tone *= np.float32(_AMPLITUDE / _FADE_SAMPLES)
        return tone

    def _hz(self, position: int) -> int:
        word = self._words[position].encode("utf-8", "surrogatepass")
        drawn = hashlib.blake2b(word + position.to_bytes(4, "big"), digest_size=4, key=self._key).digest()
        return self._timbre.base_hz + int.from_bytes(drawn, "big") % self._timbre.base_hz


def _edge(first: int, length: int, total: int) -> Pcm:
    """How loud each of ``length`` samples from ``first`` on is in a word of ``total``: it fades in and out."""
    edge = np.full(length, _FADE_SAMPLES, np.float32)
    rising = edge[: max(0, _FADE_SAMPLES - first)]
    rising[:] = np.arange(first, first + len(rising))
    near_end = max(0, total - _FADE_SAMPLES - first)
    falling = edge[near_end:]
    np.minimum(falling, total - first - near_end - np.arange(len(falling)), out=falling, casting="same_kind")
    return edge
