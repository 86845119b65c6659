"""What the engines of this process share: a bounded number of rows, and how chunks grow."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence

from sidecar.faults import EngineLost, EngineOverloaded


class Rows:
    """At most ``size`` utterances at once; at most ``max_waiting`` more wait, each up to ``wait_ms``, in order.

    Lives in one event loop. ``sleep`` takes milliseconds, so that a test can own the time.
    """

    def __init__(
        self, size: int, *, max_waiting: int, wait_ms: float, sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        self.size = size
        self.active = 0
        self._max_waiting = max_waiting
        self._wait_ms = wait_ms
        self._sleep = sleep
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.closed = False

    async def take(self) -> None:
        """Wait for a row and hold it; raises ``EngineOverloaded`` or ``EngineLost`` (closed)."""
        if self.closed:
            raise EngineLost("The speech engine is not running.")
        if self.active < self.size and not self._waiting:
            self.active += 1
            return
        if len(self._waiting) >= self._max_waiting or self._wait_ms <= 0:
            raise self._overloaded()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        limit = asyncio.ensure_future(self._sleep(self._wait_ms))
        try:
            await asyncio.wait({turn, limit}, return_when=asyncio.FIRST_COMPLETED)
            if not turn.done():
                raise self._overloaded()
            turn.result()
        except BaseException:
            self._give_up(turn)
            raise
        finally:
            limit.cancel()

    def give(self) -> None:
        """Hand a row back; the longest waiting utterance gets it."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.active -= 1

    def close(self) -> None:
        """End every wait with ``EngineLost``. Idempotent."""
        self.closed = True
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_exception(EngineLost("The speech engine was stopped."))

    def _give_up(self, turn: asyncio.Future[None]) -> None:
        if not turn.done():
            self._waiting.remove(turn)
            turn.cancel()
        elif not turn.cancelled() and turn.exception() is None:
            self.give()

    def _overloaded(self) -> EngineOverloaded:
        return EngineOverloaded("The speech engine is busy; try again shortly.", retry_after_s=1.0)


def chunk_frames(ramp: Sequence[int], first: int | None = None) -> Iterator[int]:
    """Chunk lengths in frames without end: ``first`` if given, then those of ``ramp`` that are longer.

    The last length of ``ramp`` repeats and also caps ``first``: ``(1, 2, 4), first=2`` gives 2, 4, 4, 4, ...
    """
    lengths = list(ramp)
    if first is not None:
        start = min(max(first, 1), lengths[-1])
        lengths = [start, *(length for length in ramp if length > start)]
    yield from lengths
    while True:
        yield ramp[-1]
