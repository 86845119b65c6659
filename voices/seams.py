"""Joins without clicks, and without moving anything in time.

Where one stretch of samples follows another, the step between them is heard as a click if it is over -54 dBFS and
more than twice as large as the steps within the calmer of the two. Then, and only then, the new stretch begins where
the old one ended: the difference is added to it and fades within 10 ms. Everything else passes through bit for bit,
and word times stay true, which blind crossfades would shift.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

AUDIBLE_STEP = 10 ** (-54 / 20)
"""A smaller step between two samples is not heard as a click (full scale 1)."""

SMOOTHING_SAMPLES = 240
"""10 ms at 24 kHz."""

_NEIGHBOURS = 24
_STANDS_OUT = 2.0
_FADE = (0.5 + 0.5 * np.cos(np.arange(SMOOTHING_SAMPLES) * np.pi / SMOOTHING_SAMPLES)).astype(np.float32)

F32 = NDArray[np.float32]


def audible_step(tail: F32, head: F32) -> float:
    """The signed step from ``tail`` to ``head`` if it is a click, else 0. Empty arrays make no step."""
    if len(tail) == 0 or len(head) == 0:
        return 0.0
    step = float(head[0]) - float(tail[-1])
    slew = min(
        float(np.abs(np.diff(tail[-_NEIGHBOURS:])).max(initial=0.0)),
        float(np.abs(np.diff(head[:_NEIGHBOURS])).max(initial=0.0)),
    )
    return step if abs(step) > AUDIBLE_STEP and abs(step) > _STANDS_OUT * slew else 0.0


class SeamSmoother:
    """Everything a listener gets passes through here in order; ``join`` marks where something new begins.

    The first samples begin from silence. ``smoothed`` counts the joins that needed it. A chunk that needs nothing is
    returned as it is (the same array); inputs are never changed.
    """

    def __init__(self) -> None:
        self._tail = np.zeros(1, np.float32)
        self._at_join = True
        self._fading = 0.0
        self._faded = SMOOTHING_SAMPLES
        self.smoothed = 0

    def join(self) -> None:
        """What is fed next does not continue what was fed last: a segment, or a pause, begins."""
        self._at_join = True

    def feed(self, pcm: F32) -> F32:
        """The next samples, smoothed if they are the first of something new that begins with a click."""
        if len(pcm) == 0:
            return pcm
        if self._at_join:
            self._at_join = False
            left = self._left_over()
            if step := audible_step(self._tail, pcm + np.float32(left)):
                self._fading, self._faded = left - step, 0
                self.smoothed += 1
        out = pcm
        if self._faded < SMOOTHING_SAMPLES:
            fade = _FADE[self._faded : self._faded + len(pcm)] * np.float32(self._fading)
            out = pcm.copy()
            out[: len(fade)] += fade
            np.clip(out, -1, 1, out=out)
            self._faded += len(fade)
        self._tail = np.concatenate((self._tail, out[-_NEIGHBOURS:]))[-_NEIGHBOURS:]
        return out

    def _left_over(self) -> float:
        """What a fade that still goes on would add to the next sample."""
        return float(_FADE[self._faded]) * self._fading if self._faded < SMOOTHING_SAMPLES else 0.0
