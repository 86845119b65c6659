"""One gain for a whole dialog.

Bringing every sentence to the same level causes the very jumps it is meant to cure, so a dialog has one gain: taken
from the voice's known level, or found in its first seconds and then kept. It moves by at most 1 dB a segment and
never exceeds 3 dB.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

MAX_GAIN_DB = 3.0
MAX_STEP_DB = 1.0
"""Largest change from one segment to the next."""

_RATE_HZ = 24_000
_RAMP_SAMPLES = _RATE_HZ // 50
_LEARN_S = 10.0
_KNEE = 0.9
_ROOM = 1 - _KNEE

F32 = NDArray[np.float32]


class DialogGain:
    """Brings a dialog's voice to ``target_db`` (active-speech level in dBFS).

    ``voice_level_db``: the level the voice is known to have; without it the first 10 s of speech decide. Call
    ``begin`` at the start of each segment, ``apply`` on its samples in order, ``measured`` once its level is known
    (late, or for some segments never, is fine).
    """

    def __init__(self, target_db: float, voice_level_db: float | None = None) -> None:
        if not -60 <= target_db <= 0 or not (voice_level_db is None or math.isfinite(voice_level_db)):
            raise ValueError("target_db must lie in -60..0, voice_level_db be finite")
        self._target_db = target_db
        self._power_s = 0.0
        self._learned_s = 0.0
        self._known = voice_level_db is not None
        self._wanted_db = 0.0 if voice_level_db is None else _capped(target_db - voice_level_db)
        self._gain_db = self._wanted_db
        self._from_db = self._wanted_db
        self._ramped = _RAMP_SAMPLES

    @property
    def gain_db(self) -> float:
        """The gain of the segment that was begun last."""
        return self._gain_db

    def measured(self, level_db: float, active_s: float) -> None:
        """A segment had this level before the gain, over so much active speech."""
        if self._known or not (math.isfinite(level_db) and active_s > 0):
            return
        self._power_s += 10 ** (level_db / 10) * active_s
        self._learned_s += active_s
        self._wanted_db = _capped(self._target_db - 10 * math.log10(max(self._power_s / self._learned_s, 1e-12)))
        self._known = self._learned_s >= _LEARN_S

    def begin(self) -> float:
        """The next segment begins; returns its gain in dB."""
        self._from_db = self._gain_db
        step = min(MAX_STEP_DB, max(-MAX_STEP_DB, self._wanted_db - self._gain_db))
        self._gain_db += step
        self._ramped = 0
        return self._gain_db

    def apply(self, pcm: F32) -> F32:
        """The samples with the gain; a change fades in over 20 ms, peaks over 0.9 bend and stay under 1."""
        if self._gain_db == 0 == self._from_db or len(pcm) == 0:
            return pcm
        positions = np.minimum(np.arange(self._ramped, self._ramped + len(pcm)), _RAMP_SAMPLES) / _RAMP_SAMPLES
        decibels = self._from_db + (self._gain_db - self._from_db) * positions
        self._ramped = min(_RAMP_SAMPLES, self._ramped + len(pcm))
        louder: F32 = (pcm * 10 ** (decibels / 20)).astype(np.float32)
        over = np.abs(louder) > np.maximum(_KNEE, np.abs(pcm))
        if over.any():
            bent = _KNEE + 0.99 * _ROOM * np.tanh((np.abs(louder[over]) - _KNEE) / _ROOM)
            louder[over] = np.sign(louder[over]) * np.maximum(bent, np.minimum(np.abs(pcm[over]), 1))
        return louder


def _capped(gain_db: float) -> float:
    return min(MAX_GAIN_DB, max(-MAX_GAIN_DB, gain_db))
