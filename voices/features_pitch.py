"""Fundamental frequency by normalised autocorrelation (Boersma 1993), frame by frame, without tracking.

Single frames may be an octave off; what the meters use are medians over many.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

REFERENCE_HZ = 50.0
"""Pitch is counted in semitones above this."""

_RATE_HZ = 24_000
_DECIMATE = 3
_SLOW_HZ = _RATE_HZ // _DECIMATE
_WINDOW = 400
_HOP = 160
_FFT = 1_024
_LOWEST_HZ, _HIGHEST_HZ = 60.0, 500.0
_MIN_LAG = int(_SLOW_HZ / _HIGHEST_HZ)
_MAX_LAG = int(_SLOW_HZ / _LOWEST_HZ) + 1
_HIGHEST_PART_HZ = 1_800
_VOICED = 0.6
_SHORTER_LAG_WINS = 0.92
_QUIETEST_RMS = 10 ** (-60 / 20)
_BLOCK_FRAMES = 128

_HANN = np.hanning(_WINDOW).astype(np.float32)
_LOW_PASS = (np.sinc(np.arange(-12, 13) / (_DECIMATE * 1.1)) * np.hamming(25)).astype(np.float32)
_LOW_PASS /= _LOW_PASS.sum()


def _own_correlation(window: NDArray[np.float32]) -> NDArray[np.float32]:
    power = np.square(np.abs(np.fft.rfft(window, _FFT)))
    correlation = np.fft.irfft(power)[: _MAX_LAG + 2]
    normal: NDArray[np.float32] = (correlation / correlation[0]).astype(np.float32)
    return normal


_WINDOW_CORRELATION = _own_correlation(_HANN)


def pitch_track(samples: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times (s) of the middles of frames each 20 ms, and their pitch in semitones above 50 Hz (NaN: not voiced)."""
    slow = np.convolve(samples, _LOW_PASS, mode="same")[::_DECIMATE] if len(samples) else samples
    if len(slow) < _WINDOW:
        return np.zeros(0), np.zeros(0)
    frames = sliding_window_view(slow, _WINDOW)[::_HOP]
    pitch = np.concatenate([_pitch_of(frames[i : i + _BLOCK_FRAMES]) for i in range(0, len(frames), _BLOCK_FRAMES)])
    times = (np.arange(len(frames)) * _HOP + _WINDOW / 2) / _SLOW_HZ
    return times, pitch


def _pitch_of(frames: NDArray[np.float32]) -> NDArray[np.float64]:
    centred = frames - frames.mean(axis=1, keepdims=True)
    loud = np.sqrt(np.square(centred).mean(axis=1)) > _QUIETEST_RMS
    power = np.square(np.abs(np.fft.rfft(centred * _HANN, _FFT, axis=1)))
    # Without its higher parts the peak is broad: its place between two lags can be told.
    power[:, _HIGHEST_PART_HZ * _FFT // _SLOW_HZ :] = 0
    raw = np.fft.irfft(power, axis=1)[:, : _MAX_LAG + 2]
    correlation = raw / np.maximum(raw[:, :1], 1e-12) / _WINDOW_CORRELATION
    window = correlation[:, _MIN_LAG : _MAX_LAG + 1]
    inner = correlation[:, _MIN_LAG - 1 : _MAX_LAG + 2]
    peaks = (inner[:, 1:-1] >= inner[:, :-2]) & (inner[:, 1:-1] > inner[:, 2:])
    height = np.where(peaks, window, 0)
    best = height.max(axis=1)
    lag = np.argmax(height >= _SHORTER_LAG_WINS * best[:, None], axis=1) + _MIN_LAG
    rows = np.arange(len(frames))
    left, middle, right = (correlation[rows, lag + d].astype(np.float64) for d in (-1, 0, 1))
    bend = left - 2 * middle + right
    shift = np.where(bend < 0, (left - right) / np.where(bend < 0, 2 * bend, 1), 0)
    pitch = 12 * np.log2(_SLOW_HZ / (lag + np.clip(shift, -0.5, 0.5)) / REFERENCE_HZ)
    voiced: NDArray[np.float64] = np.where(loud & (best > _VOICED), pitch, np.nan)
    return voiced
