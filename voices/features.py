"""What can be measured on one spoken segment: level, pitch, pace, spectrum, silence at its edges, clicks.

Everything here is plain numpy on samples that are already there; nothing looks at other segments. Long segments are
worked through in blocks, so that memory stays bounded and no single call holds the interpreter for long.

Pitch: normalised autocorrelation after Boersma, "Accurate short-term analysis of the fundamental frequency and the
harmonics-to-noise ratio of a sampled sound", 1993 (division by the window's own autocorrelation). Spectrum: long-term
average spectrum in 24 mel bands. Active speech: frames at most 35 dB under the loud ones, short closures included.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from voices.features_clicks import Click, find_clicks
from voices.features_pitch import pitch_track

RATE_HZ = 24_000
"""The only rate that is understood."""

BANDS = 24
"""Mel bands of the long-term spectrum."""

MAX_SEGMENT_S = 60.0
"""Of a longer segment only the first minute is measured (its length still counts as it is)."""

HOP = 240
"""Samples of one energy frame: 10 ms."""

_HOP_MS = 1_000 * HOP // RATE_HZ
_ACTIVE_UNDER_LOUD_DB = 35.0
_QUIETEST_DB = -65.0
_CLOSURE_FRAMES = 12
_EDGE_F0_S = 0.6
_EDGE_BAND_S = 2.0
_FFT = 1_024
_BAND_HOP = 480
_BAND_RANGE_HZ = (80.0, 7_600.0)
_BLOCK_FRAMES = 128
_FLOOR_UNDER_TOTAL = 1e-7
_DROPOUT_SAMPLES = 480
_EDGE_SAMPLES = 24
_ABRUPT_UNDER_LEVEL_DB = 20.0

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
Edges = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Spectrum:
    """Power in ``BANDS`` mel bands summed over ``frames`` frames of active speech. Spectra of pieces add up."""

    power: F64
    frames: int

    def plus(self, other: Spectrum) -> Spectrum:
        """The spectrum of both pieces together."""
        return Spectrum(self.power + other.power, self.frames + other.frames)

    @property
    def seconds(self) -> float:
        """Active speech in it."""
        return self.frames * _BAND_HOP / RATE_HZ

    @property
    def shape_db(self) -> F64:
        """Bands in dB with their mean removed, ``(BANDS,)``: independent of level. Zeros if nothing was active."""
        total = float(self.power.sum())
        if self.frames == 0 or total <= 0:
            return np.zeros(BANDS)
        decibels = 10 * np.log10(np.maximum(self.power / total, _FLOOR_UNDER_TOTAL))
        centred: F64 = decibels - decibels.mean()
        return centred


BAND_HOP_S = _BAND_HOP / RATE_HZ
"""Seconds of one frame of a spectrum."""

EMPTY_SPECTRUM = Spectrum(np.zeros(BANDS), 0)


def spectrum_distance_db(one: Spectrum, other: Spectrum) -> float:
    """RMS difference of two long-term spectra over the bands, in dB (meter V7)."""
    return float(np.sqrt(np.mean(np.square(one.shape_db - other.shape_db))))


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """One segment, measured. Levels in dBFS (full-scale square wave = 0), pitch in semitones above 50 Hz.

    ``active_s``: speech without pauses. ``longest_gap_ms``: the longest inner silence; ``dropout_ms``: the longest
    run of one value that sets in within loud speech, as lost samples do. ``leading_ms`` and ``trailing_ms``: silence
    at the edges. Pitch is NaN where too little is voiced: ``pitch_st`` the median, ``pitch_range_st`` the range
    between quartiles, ``head_pitch_st`` and ``tail_pitch_st`` the medians of the first and last 0.6 s of speech.
    ``nuclei`` counts syllable nuclei. ``head`` and ``tail`` are the spectra of the first and last 2 s. ``edges``: the
    first and the last 24 samples, for the step at a seam. A segment without active speech has ``active_s`` 0 and
    everything else at its neutral value.
    """

    duration_s: float
    active_s: float
    level_db: float
    peak: float
    leading_ms: float
    trailing_ms: float
    longest_gap_ms: float
    dropout_ms: float
    voiced_s: float
    pitch_st: float
    pitch_range_st: float
    head_pitch_st: float
    tail_pitch_st: float
    nuclei: int
    spectrum: Spectrum
    head: Spectrum
    tail: Spectrum
    clicks: tuple[Click, ...]
    edges: Edges


def checked_pcm(pcm: NDArray[np.generic]) -> F32:
    """``pcm`` as mono float32; raises ``ValueError`` if it is not one-dimensional, real and finite."""
    if pcm.ndim != 1 or not np.issubdtype(pcm.dtype, np.floating):
        raise ValueError("samples must be one-dimensional floating point")
    samples: F32 = np.ascontiguousarray(pcm, dtype=np.float32)
    if not np.isfinite(samples).all():
        raise ValueError("samples must be finite")
    return samples


def measure(pcm: NDArray[np.generic]) -> Features:
    """Measure one segment of 24 kHz speech. Raises ``ValueError`` for what is not finite mono floating point."""
    full_length = len(pcm)
    samples = checked_pcm(pcm[: int(MAX_SEGMENT_S * RATE_HZ)])
    decibels = frame_levels_db(samples)
    active = active_frames(decibels)
    loud = np.flatnonzero(active)
    edges = _edges(samples)
    peak = float(np.abs(samples).max(initial=0.0))
    if len(loud) == 0:
        return _silent(full_length / RATE_HZ, peak, edges)
    first, last = int(loud[0]), int(loud[-1])
    level_db = _active_level_db(samples, active)
    pitch_s, pitch_st = pitch_track(samples)
    spoken = active[np.minimum((pitch_s * RATE_HZ / HOP).astype(np.int64), len(active) - 1)]
    pitch_s, pitch_st = pitch_s[spoken], pitch_st[spoken]
    voiced = np.isfinite(pitch_st)
    quartiles = np.percentile(pitch_st[voiced], (25, 50, 75)) if voiced.sum() >= 5 else np.full(3, np.nan)
    starts_s, ends_s = first * HOP / RATE_HZ, (last + 1) * HOP / RATE_HZ
    spectra = _Spectra(samples, active)
    frame_s = (pitch_s[1] - pitch_s[0]) if len(pitch_s) > 1 else 0.0
    return Features(
        duration_s=full_length / RATE_HZ,
        active_s=float(active.sum()) * HOP / RATE_HZ,
        level_db=level_db,
        peak=peak,
        leading_ms=float(first * _HOP_MS),
        trailing_ms=max(0.0, (full_length / RATE_HZ - ends_s) * 1_000),
        longest_gap_ms=_longest_gap_ms(active[first : last + 1]),
        dropout_ms=_dropout_ms(samples, level_db),
        voiced_s=float(voiced.sum() * min(frame_s, 0.02)),
        pitch_st=float(quartiles[1]),
        pitch_range_st=float(quartiles[2] - quartiles[0]),
        head_pitch_st=_median(pitch_st[pitch_s < starts_s + _EDGE_F0_S]),
        tail_pitch_st=_median(pitch_st[pitch_s >= ends_s - _EDGE_F0_S]),
        nuclei=_nuclei(decibels, active),
        spectrum=spectra.between(0, len(active)),
        head=spectra.between(first, first + int(_EDGE_BAND_S * RATE_HZ / HOP)),
        tail=spectra.between(last + 1 - int(_EDGE_BAND_S * RATE_HZ / HOP), last + 1),
        clicks=find_clicks(samples),
        edges=edges,
    )


def frame_levels_db(samples: F32) -> F64:
    """Level of each 10 ms in dBFS, silence at -120; the last incomplete frame counts as it is."""
    if len(samples) == 0:
        return np.zeros(0)
    starts = np.arange(0, len(samples), HOP)
    lengths = np.minimum(HOP, len(samples) - starts)
    power = np.add.reduceat(np.square(samples, dtype=np.float64), starts) / lengths
    decibels: F64 = 10 * np.log10(np.maximum(power, 1e-12))
    return decibels


def active_frames(decibels: F64) -> NDArray[np.bool_]:
    """Which 10 ms frames are speech: not 35 dB under the loud ones, closures under 120 ms filled, blips left out."""
    if len(decibels) == 0:
        return np.zeros(0, np.bool_)
    loud = float(np.percentile(decibels, 95))
    # In a short word after a long silence the loud frames are fewer than 5 in 100.
    loud = max(loud, float(np.sort(decibels)[-min(10, len(decibels)) :].mean()))
    raw = decibels > max(loud - _ACTIVE_UNDER_LOUD_DB, _QUIETEST_DB)
    active = raw.copy()
    for start, end, value in _runs(raw):
        inner = start > 0 and end < len(raw)
        if not value and inner and end - start < _CLOSURE_FRAMES:
            active[start:end] = True
    for start, end, value in _runs(active):
        if value and end - start < 3:
            active[start:end] = False
    return active


def _runs(flags: NDArray[np.bool_]) -> list[tuple[int, int, bool]]:
    """(start, end, value) of every run of equal flags."""
    changes = np.flatnonzero(np.diff(flags)) + 1
    bounds = [0, *changes.tolist(), len(flags)]
    return [(a, b, bool(flags[a])) for a, b in pairwise(bounds) if b > a]


def _longest_gap_ms(active: NDArray[np.bool_]) -> float:
    return float(max((end - start for start, end, value in _runs(active) if not value), default=0) * _HOP_MS)


def _dropout_ms(samples: F32, level_db: float) -> float:
    """Longest run of one and the same value that sets in within loud speech: samples that were lost."""
    changes = np.flatnonzero(np.diff(samples)) + 1
    starts, ends = np.concatenate(([0], changes)), np.concatenate((changes, [len(samples)]))
    loud = 10 ** ((level_db - _ABRUPT_UNDER_LEVEL_DB) / 20)
    longest = 0
    for index in np.flatnonzero(ends - starts >= _DROPOUT_SAMPLES).tolist():
        start, end = int(starts[index]), int(ends[index])
        if start > 0 and end < len(samples):
            before = float(np.abs(samples[max(0, start - _EDGE_SAMPLES) : start]).max())
            after = float(np.abs(samples[end : end + _EDGE_SAMPLES]).max())
            if before > loud and after > loud:
                longest = max(longest, end - start)
    return longest * 1_000 / RATE_HZ


def _active_level_db(samples: F32, active: NDArray[np.bool_]) -> float:
    mask = np.repeat(active, HOP)[: len(samples)]
    power = float(np.mean(np.square(samples[mask], dtype=np.float64)))
    return 10 * float(np.log10(max(power, 1e-12)))


def _median(values: F64) -> float:
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) >= 3 else float("nan")


def _nuclei(decibels: F64, active: NDArray[np.bool_]) -> int:
    """Peaks of the smoothed level that stand 2 dB over the dips beside them: a rough count of syllables."""
    if len(decibels) < 5:
        return 0
    smooth = np.convolve(decibels, np.hanning(9) / np.hanning(9).sum(), mode="same")
    rising = np.diff(smooth) > 0
    peaks = np.flatnonzero(rising[:-1] & ~rising[1:]) + 1
    count, dip = 0, -120.0
    before = 0
    for peak in peaks.tolist():
        dip = float(smooth[before : peak + 1].min())
        if active[peak] and smooth[peak] - dip >= 2.0:
            count += 1
        before = peak
    return count


def _edges(samples: F32) -> Edges:
    around = np.concatenate((np.zeros(_EDGE_SAMPLES, np.float32), samples, np.zeros(_EDGE_SAMPLES, np.float32)))
    first = around[_EDGE_SAMPLES : 2 * _EDGE_SAMPLES]
    last = around[-2 * _EDGE_SAMPLES : -_EDGE_SAMPLES]
    return tuple(first.tolist()), tuple(last.tolist())


def _silent(duration_s: float, peak: float, edges: Edges) -> Features:
    nan = float("nan")
    ms = duration_s * 1_000
    return Features(
        duration_s, 0.0, -120.0, peak, ms, ms, 0.0, 0.0, 0.0, nan, nan, nan, nan, 0,
        EMPTY_SPECTRUM, EMPTY_SPECTRUM, EMPTY_SPECTRUM, (), edges,
    )  # fmt: skip


def _mel(hz: F64 | float) -> F64:
    return np.asarray(2595 * np.log10(1 + np.asarray(hz) / 700), dtype=np.float64)


def _mel_filters() -> F32:
    low, high = _mel(_BAND_RANGE_HZ[0]), _mel(_BAND_RANGE_HZ[1])
    corners = 700 * (10 ** (np.linspace(low, high, BANDS + 2) / 2595) - 1)
    bins = np.arange(_FFT // 2 + 1) * RATE_HZ / _FFT
    up = (bins[:, None] - corners[:-2]) / (corners[1:-1] - corners[:-2])
    down = (corners[2:] - bins[:, None]) / (corners[2:] - corners[1:-1])
    filters: F32 = np.maximum(0, np.minimum(up, down)).astype(np.float32)
    return filters


_FILTERS = _mel_filters()
_WINDOW = np.hanning(_FFT).astype(np.float32)


class _Spectra:
    """Band powers of all 20 ms frames of a segment, to be summed over stretches of its active speech."""

    def __init__(self, samples: F32, active: NDArray[np.bool_]) -> None:
        step = _BAND_HOP // HOP
        padded = np.concatenate((samples, np.zeros(_FFT, np.float32)))
        frames = sliding_window_view(padded, _FFT)[: max(1, len(samples)) : _BAND_HOP]
        blocks = [
            np.square(np.abs(np.fft.rfft(frames[i : i + _BLOCK_FRAMES] * _WINDOW))).astype(np.float32) @ _FILTERS
            for i in range(0, len(frames), _BLOCK_FRAMES)
        ]
        self._powers = np.concatenate(blocks).astype(np.float64)
        self._active = active[::step][: len(self._powers)]
        self._step = step

    def between(self, first_frame: int, end_frame: int) -> Spectrum:
        """Active speech from one 10 ms frame to another."""
        chosen = slice(max(0, first_frame) // self._step, -(-max(0, end_frame) // self._step))
        active = self._active[chosen]
        return Spectrum(self._powers[chosen][: len(active)][active].sum(axis=0), int(active.sum()))
