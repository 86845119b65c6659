"""One gain for a whole dialog, from the level its voice is known to have.

Bringing every sentence to the same level causes the very jumps it is meant to cure, and a level that is learned while
speaking would differ from one instance to the next. So the gain is the voice's own, and never exceeds 3 dB.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

MAX_GAIN_DB = 3.0

_KNEE = 0.9
_ROOM = 1 - _KNEE

F32 = NDArray[np.float32]


class DialogGain:
    """Brings a voice of speech level ``voice_level_db`` to ``target_db`` (dBFS), as far as ``MAX_GAIN_DB`` goes.

    Raises ``ValueError`` for a target outside -60..0 and a level that is no number.
    """

    def __init__(self, target_db: float, voice_level_db: float) -> None:
        if not -60 <= target_db <= 0 or not math.isfinite(voice_level_db):
            raise ValueError("target_db must lie in -60..0, voice_level_db be finite")
        self.gain_db = min(MAX_GAIN_DB, max(-MAX_GAIN_DB, target_db - voice_level_db))

    def apply(self, pcm: F32) -> F32:
        """The samples with the gain; peaks over 0.9 bend and stay under 1."""
        if self.gain_db == 0 or len(pcm) == 0:
            return pcm
        louder: F32 = (pcm * np.float32(10 ** (self.gain_db / 20))).astype(np.float32)
        over = np.abs(louder) > np.maximum(_KNEE, np.abs(pcm))
        if over.any():
            bent = _KNEE + 0.99 * _ROOM * np.tanh((np.abs(louder[over]) - _KNEE) / _ROOM)
            louder[over] = np.sign(louder[over]) * np.maximum(bent, np.minimum(np.abs(pcm[over]), 1))
        return louder
