"""Fits the limits of the drift meters to one voice, from segments that are known to be clean.

How much each quantity scatters is measured, with its dependence on the length of a segment; then dialogs are drawn
from the segments at random, and each threshold is set a margin above the largest value that any of them shows.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from voices.drift_limits import DriftLimits, Steadiness, Timbre
from voices.drift_meters import BASELINE_S, SteadyMeter, timbre_distance
from voices.drift_text import PaceModel, text_counts
from voices.features import EMPTY_SPECTRUM, Features, Spectrum

MIN_SEGMENTS = 40
"""Fewer segments (with at least 0.5 s of speech each) say too little."""

MAX_SEGMENTS = 5_000

_DRAWN_DIALOGS = 200
_DRAWN_SEGMENTS = 24
_MARGIN = 1.15
_LEAST_THRESHOLD = 4.0
_TIMBRE_MARGIN = 1.3
"""Larger: the tails of a distance in 24 bands are longer than those of one quantity."""

_REROLL_OVER_WATCH = 1.15
_SHRINK = 0.3
_UNCERTAIN_S = 6.0
_MIN_ACTIVE_S = 0.5
_TIMBRE_MIN_S = 2.0

F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class CleanSegment:
    """A segment of the voice as it should be, with its text."""

    text: str
    features: Features


def calibrate(segments: Sequence[CleanSegment], start: DriftLimits | None = None, seed: int = 0) -> DriftLimits:
    """Limits for the voice of these segments; what is not fitted (identity, seams) is taken from ``start``.

    The same input gives the same limits. Raises ``ValueError`` for fewer than ``MIN_SEGMENTS`` usable segments.
    """
    start = start or DriftLimits()
    usable = [one for one in segments[:MAX_SEGMENTS] if one.features.active_s >= _MIN_ACTIVE_S and one.text.strip()]
    usable = [one for one in usable if np.isfinite(one.features.pitch_st)]
    if len(usable) < MIN_SEGMENTS:
        raise ValueError(f"at least {MIN_SEGMENTS} clean segments with half a second of speech are needed")
    draw = random.Random(seed)
    active_s = np.array([one.features.active_s for one in usable])
    model = _fit_pace(usable, active_s, start.pace_model)
    expected_s = np.array([model.expected_s(one.text) for one in usable])
    quantities = {
        "level_db": (np.array([one.features.level_db for one in usable]), active_s, start.level_db),
        "pitch_st": (
            np.array([one.features.pitch_st for one in usable]),
            np.array([one.features.voiced_s for one in usable]),
            start.pitch_st,
        ),
        "pace": (np.log(active_s / np.maximum(expected_s, 0.05)), active_s, start.pace),
    }
    fitted = {name: _fit_steadiness(*each, draw) for name, each in quantities.items()}
    gaps = [one.features.longest_gap_ms for one in usable]
    longest_gap_ms = max(gaps) * _MARGIN + 100
    return replace(
        start,
        level_db=fitted["level_db"],
        pitch_st=fitted["pitch_st"],
        pace=fitted["pace"],
        pace_model=model,
        timbre=_fit_timbre([one.features.spectrum for one in usable], start, draw),
        dropout_ms=max(start.dropout_ms, _MARGIN * max(one.features.dropout_ms for one in usable) + 50),
        inner_gap_ms=min(start.inner_gap_ms, longest_gap_ms),
        inner_mark_gap_ms=max(longest_gap_ms, min(start.inner_mark_gap_ms, longest_gap_ms)),
    )


def _fit_pace(segments: Sequence[CleanSegment], active_s: F64, start: PaceModel) -> PaceModel:
    """Least squares on relative errors, drawn towards the model we start from; no weight below 0."""
    counts = np.stack([text_counts(one.text) for one in segments]) / active_s[:, None]
    before = start.weights
    scale = float(np.median(1 / np.maximum(counts @ before, 1e-6)))
    pull = np.diag(np.sqrt(len(segments) * 0.002) / np.maximum(before * scale, 0.01))
    system = np.vstack((counts, pull))
    wanted = np.concatenate((np.ones(len(segments)), pull @ (before * scale)))
    weights, *_ = np.linalg.lstsq(system, wanted, rcond=None)
    letter_s, word_s, mark_s, base_s = (max(0.0, float(each)) for each in weights)
    return PaceModel(letter_s, word_s, mark_s, base_s)


def _fit_steadiness(values: F64, seconds: F64, start: Steadiness, draw: random.Random) -> Steadiness:
    squares = np.square(values - np.median(values))
    inverse = 1 / np.maximum(seconds, 0.25)
    # A variance of fixed**2 + per_s**2 / t, least squares with both parts at least 0.
    design = np.stack((np.ones_like(inverse), inverse), axis=1)
    (fixed, per_s), *_ = np.linalg.lstsq(design, squares, rcond=None)
    if fixed < 0:
        fixed, per_s = 0.0, float((squares * inverse).sum() / np.square(inverse).sum())
    if per_s < 0:
        fixed, per_s = float(squares.mean()), 0.0
    quietest = (start.least / 20) ** 2
    steady = replace(start, fixed=float(np.sqrt(max(fixed, quietest))), per_s=float(np.sqrt(per_s)), threshold=0.0)
    largest = max(_largest_change(values, seconds, steady, draw) for _ in range(_DRAWN_DIALOGS))
    return replace(steady, threshold=max(_LEAST_THRESHOLD, _MARGIN * largest))


def _largest_change(values: F64, seconds: F64, steady: Steadiness, draw: random.Random) -> float:
    """The surest change that is large enough to be raised, in a dialog drawn at random."""
    meter = SteadyMeter(steady)
    largest = 0.0
    for index in draw.choices(range(len(values)), k=_DRAWN_SEGMENTS):
        change = meter.look(float(values[index]), float(seconds[index]))
        if change is not None and abs(change.offset) >= steady.least:
            largest = max(largest, change.deviations)
        meter.take(float(values[index]), float(seconds[index]))
    return largest


def _fit_timbre(spectra: Sequence[Spectrum], start: DriftLimits, draw: random.Random) -> Timbre:
    """Whitening from all segments; the threshold from halves that were not used to whiten what is compared."""
    halves = spectra[::2], spectra[1::2]
    largest = 0.0
    for known, fresh in (halves, halves[::-1]):
        timbre = replace(start.timbre, whitening=_whitening(known), uncertain_s=_UNCERTAIN_S)
        long_enough = [each for each in fresh if each.seconds >= _TIMBRE_MIN_S] or list(fresh)
        for _ in range(_DRAWN_DIALOGS // 8):
            anchor = EMPTY_SPECTRUM
            while anchor.seconds < BASELINE_S:
                anchor = anchor.plus(draw.choice(fresh))
            drawn = draw.choices(long_enough, k=_DRAWN_SEGMENTS)
            largest = max(largest, *(timbre_distance(timbre, anchor, each, given=False) for each in drawn))
    return replace(
        start.timbre,
        watch=_TIMBRE_MARGIN * largest,
        reroll=_TIMBRE_MARGIN * _REROLL_OVER_WATCH * largest,
        whitening=_whitening(spectra),
        uncertain_s=_UNCERTAIN_S,
    )


def _whitening(spectra: Sequence[Spectrum]) -> F64:
    """``(BANDS, BANDS)``, from the scatter around the common spectrum, as if each segment had 1 s of speech."""
    whole = EMPTY_SPECTRUM
    for each in spectra:
        whole = whole.plus(each)
    away = np.stack([(each.shape_db - whole.shape_db) * np.sqrt(min(each.seconds, _UNCERTAIN_S)) for each in spectra])
    covariance = away.T @ away / len(away)
    diagonal = np.diag(np.diag(covariance)) + 1e-3 * np.eye(len(covariance))
    values, vectors = np.linalg.eigh((1 - _SHRINK) * covariance + _SHRINK * diagonal)
    whitening: F64 = (vectors / np.sqrt(np.maximum(values, 1e-6))) @ vectors.T
    return whitening
