"""When each word of a spoken text sounds, estimated from the sound's own loudness: no model, no alignment.

Words get time by their length; where the sound pauses, a mark of the text is looked for nearby and the two are tied
together. Source of the idea: duration models of parametric synthesis, reduced to what a listener's interruption needs.
Typical error against a recogniser's times: see docs/word_times.md.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FRAME_MS = 20
FRAME_SAMPLES = 480
"""20 ms at 24 kHz: what loudness is measured over."""

MAX_FRAMES = 60_000
"""20 minutes; later sound is counted but not looked at."""

SILENT_BELOW_DB = 38.0
"""Under the loudest frames: silence."""

PAUSE_FRAMES = 6
"""120 ms: a shorter gap may lie within a word (a stop consonant)."""

TIE_WITHIN = 0.18
"""A pause and a mark are tied if they lie no farther apart than this share of the words."""

_WIDE = r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f]"
_WORD = re.compile(
    rf"{_WIDE}"  # an ideograph or a kana
    rf"|(?:(?!{_WIDE})[^\W_]|['’.,:/%€$£-](?=(?!{_WIDE})[^\W_]))+"
)
_PAUSE_MARK = re.compile(r"[.,;:!?…—–)\]\n。、，；：！？」』”]")
_IDEOGRAPH = 3.2
_DIGIT = 3.0
_PER_WORD = 1.0


@dataclass(frozen=True, slots=True)
class Word:
    """A word at ``start..end`` of its text; ``weight``: how long it takes, in letters; ``mark``: a pause may follow."""

    start: int
    end: int
    weight: float
    mark: bool


@dataclass(frozen=True, slots=True)
class WordTime:
    """A word, its place in the text (characters) and in the sound."""

    word: str
    start: int
    end: int
    start_ms: int
    end_ms: int


def words_of(text: str) -> list[Word]:
    """The words of a text, in order."""
    found = []
    matches = list(_WORD.finditer(text))
    for at, match in enumerate(matches):
        after = text[match.end() : matches[at + 1].start() if at + 1 < len(matches) else len(text)]
        found.append(Word(match.start(), match.end(), _weight(match[0]), bool(_PAUSE_MARK.search(after))))
    return found


def _weight(word: str) -> float:
    letters = 0.0
    for one in word:
        if one.isdigit():
            letters += _DIGIT
        elif ord(one) >= 0x3040 and one.isalpha():
            letters += _IDEOGRAPH
        else:
            letters += 1.0 if one.isalpha() else 0.3
    return letters + _PER_WORD


class Loudness:
    """The loudness of a growing sound, frame by frame: what is kept of it."""

    def __init__(self) -> None:
        self._levels = array("f")
        self._rest: NDArray[np.float32] = np.zeros(0, np.float32)
        self.samples = 0

    def feed(self, pcm: NDArray[np.float32]) -> None:
        """More samples at 24 kHz."""
        self.samples += len(pcm)
        if len(self._levels) >= MAX_FRAMES:
            return
        joined = np.concatenate([self._rest, pcm]) if len(self._rest) else pcm
        whole = len(joined) // FRAME_SAMPLES
        frames = joined[: whole * FRAME_SAMPLES].reshape(whole, FRAME_SAMPLES)
        power = np.einsum("ij,ij->i", frames, frames) / FRAME_SAMPLES
        self._levels.extend((10 * np.log10(power + 1e-10)).astype(np.float32)[: MAX_FRAMES - len(self._levels)])
        self._rest = joined[whole * FRAME_SAMPLES :].copy()

    def active(self) -> NDArray[np.bool_]:
        """Which frames speak; gaps shorter than ``PAUSE_FRAMES`` count as speech."""
        levels = np.frombuffer(self._levels, np.float32) if self._levels else np.zeros(0, np.float32)
        if not len(levels):
            return np.zeros(0, np.bool_)
        loud = np.percentile(levels, 95)
        speaking: NDArray[np.bool_] = np.asarray(levels > max(float(loud) - SILENT_BELOW_DB, -75.0))
        for start, end in _runs(~speaking):
            if end - start < PAUSE_FRAMES and start > 0 and end < len(speaking):
                speaking[start:end] = True
        return speaking


def _runs(mask: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Where ``mask`` is true: (start, end) of each run."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return [(int(start), int(end)) for start, end in edges.reshape(-1, 2)]


def word_times(text: str, loudness: Loudness) -> list[WordTime]:
    """When each word sounds; empty for a text without words or a sound without speech.

    Times rise, the first word begins with the speech, the last one ends with it.
    """
    words = words_of(text)
    active = loudness.active()
    if not words or not active.any():
        return []
    spoken = np.concatenate([[0], np.cumsum(active)])  # speaking frames before each frame
    total = int(spoken[-1])
    ends = np.cumsum([word.weight for word in words])
    shares, knots = _knots(words, ends / ends[-1], active, spoken)
    times = []
    before = 0.0
    for word, share in zip(words, ends / ends[-1], strict=True):
        after = float(np.interp(share, shares, knots))
        first = _frame_of(spoken, before * total, after_pause=True)
        last = max(_frame_of(spoken, after * total, after_pause=False), first)
        times.append(WordTime(text[word.start : word.end], word.start, word.end, first * FRAME_MS, last * FRAME_MS))
        before = after
    return times


def _knots(
    words: Sequence[Word], shares: NDArray[np.float64], active: NDArray[np.bool_], spoken: NDArray[np.int64]
) -> tuple[list[float], list[float]]:
    """Shares of the text and of the speech that belong together: both ends, and pauses tied to marks."""
    total = float(spoken[-1])
    first, last = int(np.argmax(active)), len(active) - int(np.argmax(active[::-1]))
    pauses = [
        (end - start, float(spoken[first + start] / total))
        for start, end in _runs(~active[first:last])
        if end - start >= PAUSE_FRAMES
    ]
    marks = [float(share) for word, share in zip(words[:-1], shares[:-1], strict=True) if word.mark]
    text_at, sound_at = [0.0, 1.0], [0.0, 1.0]
    # The longest pauses say most; each must keep the order with those tied before it.
    for _, where in sorted(pauses, reverse=True):
        at = bisect_left(sound_at, where)
        if at in (0, len(sound_at)):
            continue
        low, high = (text_at[at - 1], sound_at[at - 1]), (text_at[at], sound_at[at])
        expected = float(np.interp(where, [low[1], high[1]], [low[0], high[0]]))
        near = [mark for mark in marks if low[0] < mark < high[0] and abs(mark - expected) <= TIE_WITHIN]
        if near and low[1] < where < high[1]:
            text_at.insert(at, min(near, key=lambda mark: abs(mark - expected)))
            sound_at.insert(at, where)
    return text_at, sound_at


def _frame_of(spoken: NDArray[np.int64], frames: float, *, after_pause: bool) -> int:
    """The frame at which so many speaking ones have passed: before a pause that lies there, or after it."""
    target = round(frames)
    if after_pause:
        return int(np.searchsorted(spoken, target, side="right")) - 1
    return int(np.searchsorted(spoken, target, side="left"))
