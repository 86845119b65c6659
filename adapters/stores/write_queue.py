"""Writes that wait for a store which is away. Bounded; told the time; no clock, no waiting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from adapters.stores.names import Name


@dataclass(frozen=True, slots=True, eq=False)
class Write:
    """A put that was not made yet. ``expires_ms``: when its record will be gone, None for never."""

    name: Name
    value: bytes
    expires_ms: float | None

    def ttl_ms(self, now_ms: float) -> float | None:
        """What is left of its time to live; not positive once that is over."""
        return None if self.expires_ms is None else self.expires_ms - now_ms


class WriteQueue:
    """The newest write of each name, oldest name first; the oldest are dropped when there are too many.

    ``dropped`` counts them.
    """

    def __init__(self, max_writes: int = 1_000, max_bytes: int = 16 * 1024 * 1024) -> None:
        self._max_writes = max_writes
        self._max_bytes = max_bytes
        self._writes: dict[Name, Write] = {}
        self._bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._writes)

    def __contains__(self, name: Name) -> bool:
        return name in self._writes

    def add(self, write: Write) -> None:
        """Keep a write instead of an older one of the same name."""
        self.remove(write.name)
        self._writes[write.name] = write
        self._bytes += len(write.value)
        while len(self._writes) > self._max_writes or self._bytes > self._max_bytes:
            self.remove(next(iter(self._writes)))
            self.dropped += 1

    def remove(self, name: Name) -> bool:
        """Forget a write; False if there was none."""
        write = self._writes.pop(name, None)
        if write is None:
            return False
        self._bytes -= len(write.value)
        return True

    def get(self, name: Name, now_ms: float) -> Write | None:
        """The write of a name, unless its record would be gone by now."""
        write = self._writes.get(name)
        if write is None:
            return None
        left_ms = write.ttl_ms(now_ms)
        return write if left_ms is None or left_ms > 0 else None

    def living(self, tenant: str, kind: str, now_ms: float) -> Iterator[Write]:
        """The writes of one kind whose records would be there by now."""
        for name in list(self._writes):
            if name[:2] == (tenant, kind) and (write := self.get(name, now_ms)) is not None:
                yield write

    def first(self) -> Write | None:
        """The write that waits longest."""
        return next(iter(self._writes.values()), None)

    def made(self, write: Write) -> None:
        """Forget a write that was made, unless a newer one took its place meanwhile."""
        if self._writes.get(write.name) is write:
            self.remove(write.name)
