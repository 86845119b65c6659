"""Sums, quantiles and the state of the machine, for all benchmarks."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path

import psutil


def quantile(values: Sequence[float], q: float) -> float:
    """The smallest value that at least ``q`` of all values do not exceed (nearest rank); NaN for no values."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[max(0, -int(-len(ordered) * q // 1) - 1)]


def median(values: Sequence[float]) -> float:
    """The middle value, the lower one of two."""
    return quantile(values, 0.5)


def spread(values: Sequence[float]) -> dict[str, float]:
    """``count``, ``p50``, ``p95``, ``p99`` and ``max`` to the microsecond (of milliseconds)."""
    return {
        "count": len(values),
        "p50": round(quantile(values, 0.5), 3),
        "p95": round(quantile(values, 0.95), 3),
        "p99": round(quantile(values, 0.99), 3),
        "max": round(max(values, default=float("nan")), 3),
    }


def machine() -> str:
    """Cores, processor model, system and Python, as a line for a report."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    return f"{os.cpu_count()} cores, {model}, {platform.system()}, Python {platform.python_version()}"


class Neighbours:
    """How busy everything else on this machine was in a span of time, and how much its host took away."""

    def __init__(self) -> None:
        self._busy_s = _busy_s()
        self._stolen_s = _stolen_s()

    def cores_used(self, ours_s: float, wall_s: float) -> float:
        """Cores that others kept busy on average, given the CPU seconds of our own processes."""
        return max(0.0, (_busy_s() - self._busy_s - ours_s) / wall_s)

    def cores_stolen(self, wall_s: float) -> float:
        """Cores that the host of a virtual machine gave to others meanwhile."""
        return (_stolen_s() - self._stolen_s) / wall_s


def _busy_s() -> float:
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    idle += _stolen_s()
    guest = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # counted in user and nice as well
    return float(sum(times) - idle - guest)


def _stolen_s() -> float:
    return float(getattr(psutil.cpu_times(), "steal", 0.0))


def core_ms() -> float:
    """CPU milliseconds of a fixed loop: how fast a core is just now (virtual ones change by half with neighbors)."""
    return min(_loop_ms() for _ in range(5))


def _loop_ms() -> float:
    began_s = time.thread_time()
    total = 0
    for number in range(300_000):
        total += number
    return (time.thread_time() - began_s) * 1000


def load_average() -> float:
    """The load of the last minute."""
    return os.getloadavg()[0]
