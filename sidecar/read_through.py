"""Reads records of one kind through a cache that never serves what is old for long."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from sidecar.faults import Fault, StoreUnavailable
from sidecar.ports import Clock, Store, Stored

T = TypeVar("T")

FRESH_MS = 1_000.0
"""A record is served from the cache for so long; then the store is asked whether it is still the same."""

STALE_MS = 300_000.0
"""While the store is away a record is served for so long after it was last seen there."""

PATIENCE_MS = 250.0
"""A record that was seen lately is served as it was when the store takes longer to say whether it still is."""

MAX_KEPT = 2_048
"""Records (and absences) kept; the one that was not asked for longest goes first."""

_Name = tuple[str, str]


@dataclass(slots=True)
class _Kept(Generic[T]):
    """What was read: a value, None for an absent record, or the fault of one that cannot be read."""

    value: T | None
    fault: Fault | None
    mark: tuple[int, int] | None
    seen_ms: float
    fresh_until_ms: float

    def answer(self) -> T | None:
        if self.fault is not None:
            # Raised again and again: without this it would collect a traceback each time.
            raise self.fault.with_traceback(None)
        return self.value


ECHO_MS = 2_000.0
"""For so long the next news of a record that was written here is taken for the echo of that."""

MAX_ECHOES = 1_024


class ReadThrough(Generic[T]):
    """Records of one ``kind``, read from their bytes once for each state that they have.

    ``read`` makes a value of (tenant, key, record) and raises a ``Fault`` for one that cannot be used. A change is
    seen as soon as the store tells of it (``follow``), and after ``FRESH_MS`` in any case.
    """

    def __init__(
        self, store: Store, clock: Clock, kind: str, read: Callable[[str, str, Stored], T], most: int = MAX_KEPT
    ) -> None:
        self._store = store
        self._clock = clock
        self._kind = kind
        self._read = read
        self._most = most
        self._kept: OrderedDict[_Name, _Kept[T]] = OrderedDict()
        self._asking: dict[_Name, asyncio.Task[_Kept[T]]] = {}
        self._written: dict[_Name, float] = {}

    def use(self, store: Store) -> None:
        """Read from another store from now on."""
        self._store = store
        for name in [*self._kept, *self._asking]:
            self.forget(*name)

    async def get(self, tenant: str, key: str) -> T | None:
        """The value, None if there is no record.

        Raises what ``read`` raises, and ``StoreUnavailable`` for a record that was not seen lately.
        """
        name = (tenant, key)
        kept = self._kept.get(name)
        if kept is not None and self._clock.now_ms() < kept.fresh_until_ms:
            self._kept.move_to_end(name)
            return kept.answer()
        asking = self._asking.get(name)
        if asking is None:
            asking = self._asking[name] = asyncio.create_task(self._ask(name, kept))
            asking.add_done_callback(_seen)
        if kept is not None and self._clock.now_ms() - kept.seen_ms <= STALE_MS:
            await asyncio.wait({asking}, timeout=PATIENCE_MS / 1_000)
            if not asking.done():
                return kept.answer()
        # Others may wait for the same answer.
        return (await asyncio.shield(asking)).answer()

    def forget(self, tenant: str, key: str) -> None:
        """Ask the store next time; an answer that is on its way is not kept."""
        name = (tenant, key)
        self._kept.pop(name, None)
        self._asking.pop(name, None)

    def put(self, tenant: str, key: str, value: T, stored: Stored) -> None:
        """What was just written: it serves while the store is away, and is asked for anew as soon as it is there."""
        now_ms = self._clock.now_ms()
        self._asking.pop((tenant, key), None)
        self._written[tenant, key] = now_ms + ECHO_MS
        if len(self._written) > MAX_ECHOES:
            self._written.clear()
        self._keep((tenant, key), _Kept(value, None, (stored.version, hash(stored.value)), now_ms, now_ms))

    async def follow(self) -> None:
        """Forget what changes, until the store is closed or the task cancelled."""
        async for change in self._store.changes():
            name = (change.tenant, change.key)
            if change.kind != self._kind:
                continue
            if self._clock.now_ms() >= self._written.pop(name, 0.0):
                self.forget(*name)
            elif (kept := self._kept.get(name)) is not None:
                # Most likely the echo of what was written here: asked for anew, and kept if nobody answers.
                self._asking.pop(name, None)
                kept.fresh_until_ms = 0.0

    async def _ask(self, name: _Name, old: _Kept[T] | None) -> _Kept[T]:
        task = asyncio.current_task()
        try:
            now_ms = self._clock.now_ms()
            try:
                new = self._made(name, await self._store.get(name[0], self._kind, name[1]), old, now_ms)
            except StoreUnavailable:
                if old is None or now_ms - old.seen_ms > STALE_MS:
                    raise
                old.fresh_until_ms = self._clock.now_ms() + FRESH_MS
                new = old
            if self._asking.get(name) is task:
                self._keep(name, new)
            return new
        finally:
            if self._asking.get(name) is task:
                del self._asking[name]

    def _made(self, name: _Name, stored: Stored | None, old: _Kept[T] | None, now_ms: float) -> _Kept[T]:
        mark = None if stored is None else (stored.version, hash(stored.value))
        value, fault = None, None
        if stored is not None:
            if old is not None and old.mark == mark:
                value, fault = old.value, old.fault
            else:
                try:
                    value = self._read(*name, stored)
                except Fault as wrong:
                    fault = wrong
        return _Kept(value, fault, mark, now_ms, now_ms + FRESH_MS)

    def _keep(self, name: _Name, kept: _Kept[T]) -> None:
        self._kept[name] = kept
        self._kept.move_to_end(name)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)


def _seen(asking: asyncio.Task[_Kept[T]]) -> None:
    """Whoever waited may be gone."""
    if not asking.cancelled():
        asking.exception()
