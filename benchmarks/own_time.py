"""How much of a span of time a thread has computed: what it would have taken had nobody else wanted the core."""

from __future__ import annotations

import time
from array import array
from bisect import bisect_right

_KEPT = 20_000
_APART_MS = 0.5


class OwnTime:
    """Reads the calling thread's CPU clock at many moments, to tell it for any moment between them.

    Between two readings computing is taken to be spread evenly: a span is told to within what the thread computes
    from one reading to the next.
    """

    def __init__(self) -> None:
        self._moments_ms = array("d")
        self._cpu_ms = array("d")
        self._read(time.monotonic() * 1000)

    def read(self) -> None:
        """Read the clock; to be called often."""
        now_ms = time.monotonic() * 1000
        if now_ms - self._moments_ms[-1] >= _APART_MS:
            self._read(now_ms)

    def _read(self, now_ms: float) -> None:
        self._moments_ms.append(now_ms)
        self._cpu_ms.append(time.thread_time() * 1000)
        if len(self._moments_ms) > _KEPT:
            del self._moments_ms[: _KEPT // 2], self._cpu_ms[: _KEPT // 2]

    def since_ms(self, begin_ms: float) -> float:
        """Milliseconds of CPU since a moment of the monotonic clock."""
        self._read(time.monotonic() * 1000)
        after = bisect_right(self._moments_ms, begin_ms)
        if after == 0:
            return self._cpu_ms[-1] - self._cpu_ms[0]
        if after == len(self._moments_ms):
            return 0.0
        moments, cpu = self._moments_ms, self._cpu_ms
        share = (begin_ms - moments[after - 1]) / (moments[after] - moments[after - 1])
        return cpu[-1] - (cpu[after - 1] + share * (cpu[after] - cpu[after - 1]))
