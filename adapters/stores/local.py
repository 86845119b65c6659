"""The Store port on a SQLite file or in memory: what ships, and what one machine needs."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from adapters.stores.changes import Changes
from adapters.stores.names import MAX_VALUE_BYTES, Name, check_ttl, checked_name, checked_value
from adapters.stores.records import Records, unavailable
from sidecar.faults import StoreUnavailable
from sidecar.ports import Invalidation, Stored

T = TypeVar("T")

MAX_CALLS = 1_024
"""Calls that may be under way at once; one more is refused."""

MAX_MEMORY_BYTES = 256 * 1024 * 1024
"""What a store in memory may hold, unless told otherwise."""

MAX_FILE_BYTES = 4 * 1024 * 1024 * 1024
"""What a store's file may grow to, unless told otherwise."""


class LocalStore:
    """Records in a SQLite file that several processes may share, or in memory if ``path`` is None.

    ``now_s`` (Unix seconds) is the store's clock for times to live. A store that would grow beyond ``max_bytes`` is
    full: writes raise ``StoreUnavailable`` until something is deleted or expires. ``changes`` tells what this
    object wrote, not what other processes did. A key that was deleted or has expired counts its versions from 1
    again.

    Beyond what the port says, methods raise ``BadRequest`` for a tenant, kind or key that is too long or not valid
    Unicode, ``TooLarge`` for a value over ``max_value_bytes``, ``ValueError`` for a time to live that is not
    positive. A call that is cancelled before its turn is not carried out.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        now_s: Callable[[], float] = time.time,
        max_value_bytes: int = MAX_VALUE_BYTES,
        max_bytes: int | None = None,
        busy_timeout_s: float = 5.0,
    ) -> None:
        if max_bytes is None:
            max_bytes = MAX_MEMORY_BYTES if path is None else MAX_FILE_BYTES
        self._records = Records(path, now_s=now_s, max_bytes=max_bytes, busy_timeout_s=busy_timeout_s)
        self._max_value_bytes = max_value_bytes
        self._changes = Changes()
        # SQLite blocks; one thread keeps the calls in order.
        self._worker: ThreadPoolExecutor | None = None
        self._calls = 0

    @property
    def answers(self) -> bool:
        """True while it is open."""
        return self._worker is not None

    async def start(self) -> None:
        """Open the store; may be tried again after a fault. Nothing happens if it is open. Not after ``close``.

        Raises ``StoreUnavailable`` if the file cannot be opened, is damaged, newer or another program's.
        """
        if self._worker is not None:
            return
        if self._changes.closed:
            raise StoreUnavailable("The store is closed.")
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        try:
            await self._call(self._records.open)
        except BaseException:
            await self._stop()
            raise

    async def get(self, tenant: str, kind: str, key: str) -> Stored | None:
        """Return the living record, or None."""
        name = checked_name(tenant, kind, key)
        return await self._call(lambda: self._records.get(name))

    async def put(self, tenant: str, kind: str, key: str, value: bytes, ttl_s: float | None = None) -> int:
        """Write in any case; returns the new version."""
        name, value = checked_name(tenant, kind, key), checked_value(value, self._max_value_bytes)
        check_ttl(ttl_s)
        return await self._call(lambda: self._records.put(name, value, ttl_s), changes=name)

    async def swap(
        self, tenant: str, kind: str, key: str, value: bytes, expected: int | None, ttl_s: float | None = None
    ) -> int:
        """Write if the version is still ``expected`` (None: no living record), else raise ``Conflict``."""
        name, value = checked_name(tenant, kind, key), checked_value(value, self._max_value_bytes)
        check_ttl(ttl_s)
        return await self._call(lambda: self._records.swap(name, value, ttl_s, expected), changes=name)

    async def delete(self, tenant: str, kind: str, key: str) -> bool:
        """Delete; False (and nothing announced) if there was no living record."""
        name = checked_name(tenant, kind, key)
        return await self._call(lambda: self._records.delete(name), changes=name)

    async def keys(self, tenant: str, kind: str) -> Sequence[str]:
        """Return the living keys, sorted by code point."""
        checked_name(tenant, kind, "")
        return await self._call(lambda: self._records.keys(tenant, kind))

    async def heads(self, tenant: str, kind: str, head_bytes: int) -> Sequence[tuple[str, Stored]]:
        """Return the living records, sorted by key, each value cut to its first ``head_bytes``."""
        checked_name(tenant, kind, "")
        return await self._call(lambda: self._records.heads(tenant, kind, head_bytes))

    def changes(self) -> AsyncIterator[Invalidation]:
        """Return the changes from this call on; ends after ``close``."""
        return self._changes.subscribe()

    async def close(self) -> None:
        """Finish the calls under way and close the file. Idempotent; further calls raise ``StoreUnavailable``."""
        self._changes.close()
        await self._stop()

    async def _stop(self) -> None:
        worker, self._worker = self._worker, None
        if worker is None:
            return
        try:
            await asyncio.get_running_loop().run_in_executor(worker, self._records.close)
        finally:
            worker.shutdown(wait=False)

    async def _call(self, work: Callable[[], T], changes: Name | None = None) -> T:
        """Run ``work`` on the store's thread; announce ``changes`` unless the result is False."""
        if self._worker is None:
            raise StoreUnavailable("The store is not open.")
        if self._calls >= MAX_CALLS:
            raise StoreUnavailable("The store is busy.", retry_after_s=1.0)
        loop = asyncio.get_running_loop()

        def run() -> T:
            try:
                result = work()
            except (sqlite3.Error, OSError, UnicodeError) as error:
                raise unavailable(error) from error
            if changes is not None and result is not False:
                # Here and not after the await: the caller may be cancelled, the change is made.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._changes.publish, Invalidation(*changes))
            return result

        self._calls += 1
        try:
            return await loop.run_in_executor(self._worker, run)
        finally:
            self._calls -= 1
