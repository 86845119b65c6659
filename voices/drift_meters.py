"""Meters that follow one quantity through a dialog: a baseline, then jumps and shifts away from it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from voices.drift_limits import Steadiness, Timbre
from voices.features import BAND_HOP_S, EMPTY_SPECTRUM, Spectrum, spectrum_distance_db

WINDOW = 12
"""A shift is looked for in the last 1 ... 12 segments."""

BASELINE_SEGMENTS = 8
BASELINE_S = 12.0
"""A dialog without an anchor is its own: the baseline is frozen after so many segments and so much speech."""

_CLIP_DEVIATIONS = 2.5
"""First segments further than this from their median count only so far: one bad one does not bend the baseline."""

_TIMBRE_MIN_S = 2.0
_TIMBRE_ANCHOR_S = 6.0
_USUAL_SEGMENTS = 3
_USUAL_KEPT = 16
_OVER_USUAL = 1.6


@dataclass(frozen=True, slots=True)
class Change:
    """How far a quantity is from its baseline: mean over the last ``segments`` segments, and in deviations."""

    offset: float
    deviations: float
    segments: int


class SteadyMeter:
    """Level, pitch or pace: is it where it was at the beginning of the dialog (or where the voice has it)?

    The last 1 to 12 segments are averaged, weighted by how sure each is; the surest change counts. One segment alone
    shows a jump, several together a small shift that no single one would show. Nothing is said before the third
    segment, unless the baseline is given. ``look`` changes nothing; ``take`` remembers.
    """

    def __init__(self, steadiness: Steadiness, baseline: float | None = None) -> None:
        self.steadiness = steadiness
        self._given = baseline
        self._first: list[tuple[float, float]] = []
        self._recent: deque[tuple[float, float]] = deque(maxlen=WINDOW)
        self._frozen = baseline is not None
        self._baseline = math.nan if baseline is None else baseline

    @property
    def baseline(self) -> float:
        """The value compared with; NaN before the first segment."""
        return self._baseline

    def look(self, value: float, active_s: float) -> Change | None:
        """The change that a segment of this ``value`` would show; None while nothing can be said."""
        if not math.isfinite(value) or (self._given is None and len(self._first) < 2):
            return None
        deviation = self.steadiness.deviation(active_s)
        return self._surest([*self._recent, (value, deviation)])

    def take(self, value: float, active_s: float) -> None:
        """The segment has been said."""
        if not math.isfinite(value):
            return
        deviation = self.steadiness.deviation(active_s)
        if self._frozen:
            self._recent.append((value, deviation))
            return
        self._first.append((value, active_s))
        self._baseline = self._clipped_mean()
        enough_s = sum(seconds for _, seconds in self._first) >= BASELINE_S
        self._frozen = len(self._first) >= BASELINE_SEGMENTS and (enough_s or len(self._first) >= 4 * BASELINE_SEGMENTS)

    def raised(self, change: Change | None) -> bool:
        """Whether a change is too much."""
        steadiness = self.steadiness
        return (
            change is not None and change.deviations >= steadiness.threshold and abs(change.offset) >= steadiness.least
        )

    def _surest(self, window: Sequence[tuple[float, float]]) -> Change:
        baseline, unsure = self.baseline, self._baseline_variance()
        best = Change(0.0, 0.0, 1)
        weight = weighted = 0.0
        for count, (value, deviation) in enumerate(reversed(window[-WINDOW:]), 1):
            weight += 1 / deviation**2
            weighted += (value - baseline) / deviation**2
            offset = weighted / weight
            deviations = abs(offset) / math.sqrt(1 / weight + unsure)
            big_enough = abs(offset) >= self.steadiness.least
            if (big_enough, deviations) > (abs(best.offset) >= self.steadiness.least, best.deviations):
                best = Change(offset, deviations, count)
        return best

    def _clipped_mean(self) -> float:
        """Mean of the first segments, the surer ones weighted more, outliers clipped."""
        values = np.array([value for value, _ in self._first])
        deviations = np.array([self.steadiness.deviation(seconds) for _, seconds in self._first])
        middle = float(np.median(values))
        clipped = np.clip(values, middle - _CLIP_DEVIATIONS * deviations, middle + _CLIP_DEVIATIONS * deviations)
        return float(np.average(clipped, weights=1 / deviations**2))

    def _baseline_variance(self) -> float:
        if self._given is not None or not self._first:
            return 0.0
        return 1 / sum(1 / self.steadiness.deviation(seconds) ** 2 for _, seconds in self._first)


class TimbreMeter:
    """Is the long-term spectrum that of the voice? Short segments are pooled until they have 2 s of speech.

    Without limits fitted to the voice, what is usual in the dialog itself widens them: some voices scatter more.
    """

    def __init__(self, limits: Timbre, anchor: Spectrum | None = None) -> None:
        self._limits = limits
        self._anchor = anchor or EMPTY_SPECTRUM
        self._given = anchor is not None
        self._pool = EMPTY_SPECTRUM
        self._usual: deque[float] = deque(maxlen=_USUAL_KEPT)

    @property
    def anchor(self) -> Spectrum:
        """What is compared with."""
        return self._anchor

    @property
    def allowed(self) -> tuple[float, float]:
        """Distances from which on it is to be watched, and is another voice."""
        limits = self._limits
        if limits.whitening is not None or len(self._usual) < _USUAL_SEGMENTS:
            return limits.watch, limits.reroll
        usual = _OVER_USUAL * float(np.median(self._usual))
        return max(limits.watch, usual), max(limits.reroll, usual * limits.reroll / max(limits.watch, 1e-6))

    def look(self, spectrum: Spectrum) -> float | None:
        """Distance of the pooled speech with this segment; None while there is too little to compare."""
        if self._limits.whitening is None and not self._given and len(self._usual) < _USUAL_SEGMENTS:
            return None
        return self._distance(self._pooled(spectrum))

    def take(self, spectrum: Spectrum) -> None:
        """The segment has been said, and it was the voice's own."""
        pooled = self._pooled(spectrum)
        distance = self._distance(pooled)
        if distance is not None:
            self._usual.append(distance)
        self._pool = EMPTY_SPECTRUM if pooled.seconds >= _TIMBRE_MIN_S else pooled
        if not self._given and self._anchor.seconds < BASELINE_S:
            self._anchor = self._anchor.plus(spectrum)

    def _distance(self, pooled: Spectrum) -> float | None:
        if pooled.seconds < _TIMBRE_MIN_S - BAND_HOP_S or self._anchor.seconds < _TIMBRE_ANCHOR_S:
            return None
        return timbre_distance(self._limits, self._anchor, pooled, given=self._given)

    def _pooled(self, spectrum: Spectrum) -> Spectrum:
        return spectrum if spectrum.seconds >= _TIMBRE_MIN_S else self._pool.plus(spectrum)


def timbre_distance(limits: Timbre, anchor: Spectrum, spectrum: Spectrum, *, given: bool = True) -> float:
    """Distance in dB RMS, or in standard deviations where the limits know the voice's own scatter.

    An anchor that is ``given`` is taken as certain; another one's own scatter widens what is normal.
    """
    if limits.whitening is None:
        return spectrum_distance_db(anchor, spectrum)
    away = limits.whitening @ (spectrum.shape_db - anchor.shape_db)
    variance_s = 1 / min(spectrum.seconds, limits.uncertain_s or spectrum.seconds)
    if not given:
        variance_s += 1 / anchor.seconds
    return float(np.sqrt(np.mean(np.square(away)) / variance_s))
