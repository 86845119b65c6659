"""What PyAV needs to be told: frames from arrays, and not to start threads."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import av
from numpy.typing import NDArray


def audio_frame(samples: NDArray[Any], sample_format: str, rate_hz: int, position: int) -> av.AudioFrame:
    """Return mono ``samples`` as a frame whose first sample has index ``position`` in its stream.

    ``sample_format`` is FFmpeg's name for the array's type: ``flt``/``fltp`` (float32) or ``s16`` (int16).
    """
    frame = av.AudioFrame.from_ndarray(samples.reshape(1, -1), format=sample_format, layout="mono")
    frame.sample_rate = rate_hz
    frame.time_base = Fraction(1, rate_hz)
    frame.pts = position
    return frame


@contextlib.contextmanager
def single_cpu() -> Iterator[None]:
    """Let FFmpeg see one CPU while the block runs in the calling thread.

    PyAV cuts samples into codec frames with a filter graph of its own, for which FFmpeg starts a thread per CPU
    (up to 15 for every encoder) that never has work; it counts the CPUs of the thread that sets the graph up. No
    effect where a thread's affinity cannot be set.
    """
    if sys.platform != "linux":
        yield
        return
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
    except OSError:
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, allowed)
