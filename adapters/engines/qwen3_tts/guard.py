"""Notices a talker that has lost its way: codes that go round in circles or stand still.

A language model over codec frames can fall into a loop from which it never draws its end. Nothing in the samples of
one frame tells; the codes of the last seconds do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from adapters.engines.qwen3_tts.stages import Frame

Loop = Literal["periodic", "frozen"]


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """When codes count as a loop (frames of 80 ms).

    ``max_period``: the longest phrase whose repetition is noticed. A period counts once it has come ``repeats``
    times and for at least ``min_frames`` frames, exactly, in codebook 0: sampled speech, held vowels and silence
    included, does not do that for five seconds. ``frozen_frames`` successive frames that share ``frozen_codes`` of
    their 16 codes with the one before are no speech either.
    """

    max_period: int = 40
    repeats: int = 4
    min_frames: int = 64
    frozen_codes: int = 12
    frozen_frames: int = 50

    def __post_init__(self) -> None:
        if self.max_period < 1 or self.repeats < 2 or self.min_frames < 2 or self.frozen_frames < 2:
            raise ValueError("max_period must be at least 1, repeats, min_frames and frozen_frames at least 2")
        if not 1 <= self.frozen_codes <= 16:
            raise ValueError("frozen_codes must lie in 1..16")


class LoopGuard:
    """Watches the frames of one row. Costs a few comparisons of ``max_period`` integers per frame."""

    def __init__(self, settings: GuardSettings) -> None:
        self._settings = settings
        periods = np.arange(1, settings.max_period + 1)
        # matches[p - 1] frames equal to the one p earlier mean matches + p frames of period p
        self._enough = np.maximum(settings.min_frames - periods, (settings.repeats - 1) * periods)
        self._recent: NDArray[np.int64] = np.full(settings.max_period, -1, np.int64)  # newest first
        self._matches: NDArray[np.int64] = np.zeros(settings.max_period, np.int64)
        self._last: Frame | None = None
        self._alike = 0

    def see(self, frame: Frame) -> Loop | None:
        """Take the next frame, shape ``(16,)``; says what kind of loop the row is in, if it is."""
        same = self._recent == frame[0]
        self._matches = np.where(same, self._matches + 1, 0)
        self._recent[1:] = self._recent[:-1].copy()
        self._recent[0] = frame[0]
        if self._last is not None:
            shared = int(np.count_nonzero(self._last == frame))
            self._alike = self._alike + 1 if shared >= self._settings.frozen_codes else 0
        self._last = frame.copy()
        if self._alike + 1 >= self._settings.frozen_frames:
            return "frozen"
        return "periodic" if bool((self._matches >= self._enough).any()) else None
