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
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

FRAME_MS = 20
FRAME_SAMPLES = 480
"""20 ms at 24 kHz: what loudness is measured over."""

MAX_FRAMES = 60_000
"""20 minutes; later sound is counted but not looked at."""

SILENT_BELOW_DB = 38.0
"""Under the loudest frames: silence."""

PAUSE_FRAMES = 5
"""100 ms: a shorter gap may lie within a word (a stop consonant)."""

_NEAR = 5
_LOOK_BACK = 4
"""Ties that are tried: of a mark with so many pauses on each side of it, after one of so many marks before it."""

_MAX_MARKS = 1_000
"""Of more marks only the ends of sentences are looked at."""

_MOST = 4.0
"""What the longest pause says, the shortest being 1: beyond it a pause is no surer sign of a mark."""

_WIDE = r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f]"
_WORD = re.compile(
    rf"{_WIDE}"  # an ideograph or a kana
    rf"|(?:(?!{_WIDE})[^\W_]|['’.,:/%€$£-](?=(?!{_WIDE})[^\W_]))+"
)
_PAUSE_MARK = re.compile(r"[.,;:!?…—–)\]\n。、，；：！？」』”]")
_SENTENCE_MARK = re.compile(r"[.!?…\n。！？]")
_SENTENCE = 3.0
_IDEOGRAPH = 3.2
_DIGIT = 3.0
_PER_WORD = 0.3
_LAST = 2.5
"""In letters: what each word takes beside its own, and what one before a pause does (it is drawn out)."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word at ``start..end`` of its text; ``weight``: how long it takes, in letters.

    ``mark``: how surely a pause follows (0: no mark, 1: a comma or the like, 3: the end of a sentence).
    """

    start: int
    end: int
    weight: float
    mark: float


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
        mark = _SENTENCE if _SENTENCE_MARK.search(after) else float(bool(_PAUSE_MARK.search(after)))
        drawn_out = _LAST if mark or at + 1 == len(matches) else 0.0
        found.append(Word(match.start(), match.end(), _weight(match[0]) + drawn_out, mark))
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
    marks = [_Point(float(share) * total, word.mark) for word, share in zip(words, shares, strict=True) if word.mark]
    marks = [mark for mark in marks if mark.at < total]
    if len(marks) > _MAX_MARKS:
        marks = [mark for mark in marks if mark.weight >= _SENTENCE][:_MAX_MARKS]
    pauses = [
        _Point(float(spoken[first + start]), (end - start) / PAUSE_FRAMES)
        for start, end in _runs(~active[first:last])
        if end - start >= PAUSE_FRAMES
    ]
    tied = _tied(marks, pauses, total)
    return (
        [0.0, *(marks[mark].at / total for mark, _ in tied), 1.0],
        [0.0, *(pauses[pause].at / total for _, pause in tied), 1.0],
    )


@dataclass(frozen=True, slots=True)
class _Point:
    """A mark or a pause: where it is (frames of speech before it) and how much it says."""

    at: float
    weight: float


class _Ways:
    """Ways through marks and pauses, built from one tie to the next; each ends with a tie and knows the way before.

    Between two ties the speech may be longer or shorter than the text says, at a price that grows with the square of
    the difference; a mark or a pause that is left out costs what it says.
    """

    def __init__(self, marks: Sequence[_Point], pauses: Sequence[_Point]) -> None:
        self._marks, self._pauses = marks, pauses
        self._mark_costs = [0.0, *accumulate(mark.weight for mark in marks)]
        self._pause_costs = [0.0, *accumulate(min(pause.weight, _MOST) for pause in pauses)]
        self._ways: list[tuple[float, int, int, int]] = [(0.0, -1, -1, -1)]  # cost, mark, pause, the way before
        self._by_mark: list[list[int]] = []

    def tie(self, mark: int, text: float, pauses: Sequence[tuple[int, float]]) -> None:
        """The cheapest way to each tie of a mark, at ``text`` frames, with one of these pauses, each with its place."""
        before = [0, *(way for ways in self._by_mark[-_LOOK_BACK:] for way in ways)]
        # Of marks farther back only the cheapest: enough to get past many that nobody pauses at.
        before += [min(ways, key=self._cost) for ways in self._by_mark[-4 * _LOOK_BACK : -_LOOK_BACK]]
        found = []
        for pause, sound in pauses:
            ways = [
                (self._cost_after(way, mark, text, pause, sound), way) for way in before if self._ways[way][2] < pause
            ]
            cost, way = min(ways)
            found.append(len(self._ways))
            self._ways.append((cost, mark, pause, way))
        if found:
            self._by_mark.append(found)

    def ties(self) -> list[tuple[int, int]]:
        """Marks and pauses of the way that was found last, in order."""
        at, ties = len(self._ways) - 1, []
        while at > 0:
            _, mark, pause, at = self._ways[at]
            ties.append((mark, pause))
        return ties[::-1]

    def _cost(self, way: int) -> float:
        return self._ways[way][0]

    def _cost_after(self, way: int, mark: int, text: float, pause: int, sound: float) -> float:
        cost, mark_before, pause_before, _ = self._ways[way]
        text -= self._marks[mark_before].at if mark_before >= 0 else 0.0
        sound -= self._pauses[pause_before].at if pause_before >= 0 else 0.0
        cost += (text - sound) ** 2 / (2.0 * (text + sound + 10.0))
        cost += self._mark_costs[mark] - self._mark_costs[mark_before + 1]
        return cost + self._pause_costs[pause] - self._pause_costs[pause_before + 1]


def _tied(marks: Sequence[_Point], pauses: Sequence[_Point], total: float) -> list[tuple[int, int]]:
    """Marks and pauses that belong together, in order: the cheapest way through both."""
    ways = _Ways(marks, pauses)
    places = [pause.at for pause in pauses]
    for mark, here in enumerate(marks):
        at = bisect_left(places, here.at)
        near = range(max(0, at - _NEAR), min(len(pauses), at + _NEAR))
        ways.tie(mark, here.at, [(pause, places[pause]) for pause in near])
    ways.tie(len(marks), total, [(len(pauses), total)])
    return ways.ties()[:-1]


def _frame_of(spoken: NDArray[np.int64], frames: float, *, after_pause: bool) -> int:
    """The frame at which so many speaking ones have passed: before a pause that lies there, or after it."""
    target = round(frames)
    if after_pause:
        return int(np.searchsorted(spoken, target, side="right")) - 1
    return int(np.searchsorted(spoken, target, side="left"))
