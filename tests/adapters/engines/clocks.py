from __future__ import annotations

import asyncio
import heapq
import itertools


class ManualClock:
    """Time that moves only when a test says so."""

    def __init__(self) -> None:
        self._now_ms = 0.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now_ms(self) -> float:
        return self._now_ms

    def unix_s(self) -> float:
        return self._now_ms / 1e3

    async def sleep(self, ms: float) -> None:
        wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now_ms + ms, next(self._order), wake))
        await wake

    async def advance(self, ms: float) -> None:
        """Let that much time pass, waking whoever is due on the way."""
        until = self._now_ms + ms
        await settle()
        while self._sleepers and self._sleepers[0][0] <= until:
            self._now_ms, _, wake = heapq.heappop(self._sleepers)
            if not wake.done():
                wake.set_result(None)
            await settle()
        self._now_ms = until


async def settle() -> None:
    """Let everything run that can run without time passing."""
    for _ in range(20):
        await asyncio.sleep(0)
