"""The real clock."""

from __future__ import annotations

import asyncio
import time


class SystemClock:
    """Monotonic and wall-clock time of this machine."""

    def now_ms(self) -> float:
        """Monotonic milliseconds."""
        return time.monotonic() * 1000

    def unix_s(self) -> float:
        """Seconds since 1970."""
        return time.time()

    async def sleep(self, ms: float) -> None:
        """Sleep that long."""
        await asyncio.sleep(max(0.0, ms) / 1000)
