"""Decides whether a server that failed is asked again. Told the time; no clock, no waiting."""

from __future__ import annotations

from collections import deque


class Breaker:
    """Closed while the server answers. Opens after ``failures`` of them within ``within_ms``.

    While it is open nobody asks the server but one probe every ``probe_ms``; the first success closes it.
    """

    def __init__(self, failures: int = 5, within_ms: float = 10_000.0, probe_ms: float = 1_000.0) -> None:
        self._within_ms = within_ms
        self._probe_ms = probe_ms
        self._failed_ms: deque[float] = deque(maxlen=failures)
        self._next_probe_ms = 0.0
        self.open = False

    def succeeded(self) -> None:
        """The server answered."""
        self._failed_ms.clear()
        self.open = False

    def failed(self, now_ms: float) -> None:
        """The server did not answer."""
        self._failed_ms.append(now_ms)
        if self.open:
            return
        if len(self._failed_ms) == self._failed_ms.maxlen and now_ms - self._failed_ms[0] <= self._within_ms:
            self.open = True
            self._next_probe_ms = now_ms + self._probe_ms

    def probe_due(self, now_ms: float) -> bool:
        """True once every ``probe_ms`` while it is open: whoever asked shall try the server."""
        if not self.open or now_ms < self._next_probe_ms:
            return False
        self._next_probe_ms = now_ms + self._probe_ms
        return True
