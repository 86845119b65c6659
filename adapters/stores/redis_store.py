"""The Store port on Redis: what several instances share."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from math import ceil
from typing import Any

from adapters.stores.breaker import Breaker
from adapters.stores.changes import Changes
from adapters.stores.names import MAX_VALUE_BYTES, Name, check_ttl, checked_name, checked_value
from adapters.stores.redis import Away, Foreign, Full, RedisLink
from adapters.stores.redis_layout import (
    ABSENT,
    ANY,
    DAMAGED,
    DELETE,
    HEAD_BYTES,
    HEADS,
    INDEX,
    MOST_KEYS_SEARCHED,
    REBUILD,
    WRITE,
    Announcement,
    Layout,
    Script,
    heads,
    index_keys,
    stored,
)
from adapters.stores.redis_url import RedisAddress
from adapters.stores.write_queue import Write, WriteQueue
from sidecar.faults import Conflict, StoreUnavailable
from sidecar.ports import Clock, Invalidation, Stored

log = logging.getLogger(__name__)

LISTED_AT_ONCE = 512
"""Records that one call of a list looks at."""

LISTS_TAKE = 10.0
"""So many times longer than other calls may the calls of a list take."""

TEND_EVERY_MS = 200.0
"""How often a store that is away, or writes that wait, are looked after."""

FLUSH_ON_CLOSE_S = 1.0
"""How long waiting writes may take when the store is closed."""

_ANNOUNCED_KEPT = 4_096


class RedisStore:
    """Records in a Redis (6.2 to 8, or Valkey), a Sentinel group or a cluster, under ``prefix``.

    While the server is away, every call but ``put`` raises ``StoreUnavailable`` (at once, when it has been away for
    some calls), and ``start`` does too if it ``must_answer``. ``put`` keeps the write and returns 0 for its version;
    ``get`` and the lists of this instance know it already; it is made when the server is back. A server that is full
    counts as away for what is put with a time to live. At most 1,000 such writes are kept, of one name the newest. Puts
    of one name that are under way at the same time have no order.

    Times to live count by the server's clock. ``changes`` tells this instance's changes at once, those of others as
    they are published: what is changed while the connection is broken is not told.

    Methods raise the same as ``LocalStore``'s for names, values and times to live that cannot be. A call that is
    cancelled may have been carried out.
    """

    def __init__(
        self,
        address: RedisAddress,
        clock: Clock,
        *,
        prefix: str = "sidecar",
        timeout_s: float = 0.15,
        max_value_bytes: int = MAX_VALUE_BYTES,
        must_answer: bool = True,
    ) -> None:
        self._address = address
        self._clock = clock
        self._layout = Layout(prefix)
        self._timeout_s = timeout_s
        self._max_value_bytes = max_value_bytes
        self._must_answer = must_answer
        self._link: RedisLink | None = None
        self._breaker = Breaker()
        self._queue = WriteQueue()
        self._changes = Changes()
        self._sender = secrets.token_hex(8)
        self._numbers = 0
        self._announced: OrderedDict[int, None] = OrderedDict()
        self._tasks: list[asyncio.Task[None]] = []
        self._trouble = asyncio.Event()
        self._full = False

    @property
    def answers(self) -> bool:
        """False while the server is taken to be away."""
        return self._link is not None and not self._breaker.open

    async def start(self) -> None:
        """Connect. Nothing happens if it is started. Not after ``close``.

        Raises ``StoreUnavailable`` if the server does not answer and must; else it is tried again in the background.
        """
        if self._link is not None:
            return
        if self._changes.closed:
            raise StoreUnavailable("The store is closed.")
        link = self._link = RedisLink(self._address, self._timeout_s)
        try:
            # The first call also connects, perhaps by way of sentinels and with TLS.
            await link.call("PING", timeout_s=max(1.0, self._timeout_s))
        except StoreUnavailable as fault:
            if self._must_answer:
                self._link = None
                await link.close()
                raise
            log.warning("starting without the store: %s", fault.message)
            self._breaker.open = True
            self._trouble.set()
        self._tasks = [asyncio.create_task(self._listen(link)), asyncio.create_task(self._tend(link))]

    async def get(self, tenant: str, kind: str, key: str) -> Stored | None:
        """Return the living record, or None. Its version is 0 if it waits to be written."""
        name = checked_name(tenant, kind, key)
        if (waiting := self._queue.get(name, self._clock.now_ms())) is not None:
            return Stored(waiting.value, 0)
        try:
            return stored(*await self._call("HMGET", self._layout.record(name), "n", "h", "v"))
        except Foreign:
            return DAMAGED

    async def put(self, tenant: str, kind: str, key: str, value: bytes, ttl_s: float | None = None) -> int:
        """Write in any case; returns the new version, or 0 if the write waits for the server to come back."""
        name, value = checked_name(tenant, kind, key), checked_value(value, self._max_value_bytes)
        check_ttl(ttl_s)
        self._linked()
        now_ms = self._clock.now_ms()
        write = Write(name, value, None if ttl_s is None else now_ms + ttl_s * 1_000)
        if name not in self._queue:
            try:
                return await self._write(write, ANY)
            except Away:
                pass
            except Full:
                if ttl_s is None:
                    raise
                self._is_full()
        self._keep(write)
        return 0

    async def swap(
        self, tenant: str, kind: str, key: str, value: bytes, expected: int | None, ttl_s: float | None = None
    ) -> int:
        """Write if the version is still ``expected`` (None: no living record), else raise ``Conflict``."""
        name, value = checked_name(tenant, kind, key), checked_value(value, self._max_value_bytes)
        check_ttl(ttl_s)
        if name in self._queue:
            raise StoreUnavailable("An earlier write still waits for the store.", retry_after_s=1.0)
        expires_ms = None if ttl_s is None else self._clock.now_ms() + ttl_s * 1_000
        version = ABSENT if expected is None else b"%d" % expected
        written = await self._write(Write(name, value, expires_ms), version)
        if written == 0:
            raise Conflict("The record was changed by somebody else.")
        return written

    async def delete(self, tenant: str, kind: str, key: str) -> bool:
        """Delete; False (and nothing announced) if there was no living record."""
        name = checked_name(tenant, kind, key)
        waited = self._queue.remove(name)
        number, message = self._announcement(name)
        keys = (self._layout.record(name), self._layout.index(tenant, kind))
        deleted = bool(await self._run(DELETE, keys, (key.encode(), self._layout.channel, message)))
        if deleted or waited:
            self._announce(number, name)
        return deleted or waited

    async def keys(self, tenant: str, kind: str) -> Sequence[str]:
        """Return the living keys, sorted by code point."""
        return [key for key, _ in await self.heads(tenant, kind, 0)]

    async def heads(self, tenant: str, kind: str, head_bytes: int) -> Sequence[tuple[str, Stored]]:
        """Return the living records, sorted by key, each value cut to its first ``head_bytes``."""
        checked_name(tenant, kind, "")
        timeout_s = self._timeout_s * LISTS_TAKE
        index = self._layout.index(tenant, kind)
        found: dict[str, Stored] = {}
        try:
            members = await self._members(tenant, kind, timeout_s)
            for start in range(0, len(members), LISTED_AT_ONCE):
                part = members[start : start + LISTED_AT_ONCE]
                names = [member.decode(errors="replace") for member in part]
                records = self._layout.records(tenant, kind, names)
                packed = await self._run(HEADS, (index, *records), (head_bytes, *part), timeout_s=timeout_s)
                for key, (version, head) in zip(names, heads(packed), strict=True):
                    if version >= 0:
                        found[key] = Stored(head, version)
        except ValueError as error:
            raise StoreUnavailable("The store's list is damaged.") from error
        for write in self._queue.living(tenant, kind, self._clock.now_ms()):
            found[write.name[2]] = Stored(write.value[:head_bytes], 0)
        return sorted(found.items())

    async def _members(self, tenant: str, kind: str, timeout_s: float) -> list[bytes]:
        """The keys of an index, which is made anew if something else lies in its place. Raises ``ValueError``."""
        keys = (self._layout.index(tenant, kind),)
        try:
            return index_keys(await self._run(INDEX, keys, (), timeout_s=timeout_s))
        except Foreign:
            search = (*self._layout.search(tenant, kind), MOST_KEYS_SEARCHED)
            if not await self._run(REBUILD, keys, search, timeout_s=timeout_s):
                raise StoreUnavailable("The store's list was overwritten by another program; delete its key.") from None
            log.warning("a list in the store was overwritten by another program and is made anew")
        return index_keys(await self._run(INDEX, keys, (), timeout_s=timeout_s))

    def changes(self) -> AsyncIterator[Invalidation]:
        """Return the changes from this call on; ends after ``close``."""
        return self._changes.subscribe()

    async def close(self) -> None:
        """Make the writes that wait, if that can be done soon, and disconnect. Idempotent."""
        self._changes.close()
        link, self._link = self._link, None
        if link is None:
            return
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if len(self._queue):
            with contextlib.suppress(StoreUnavailable, TimeoutError):
                async with asyncio.timeout(FLUSH_ON_CLOSE_S):
                    await self._flush(link)
        if left := len(self._queue):
            why = "full" if self._full else "away"
            log.warning("writes are lost: the store was %s until the end", why, extra={"writes": left})
        await link.close()
        # Only now: a task may have missed that it was cancelled, and ends with its connection.
        await asyncio.gather(*tasks, return_exceptions=True)

    # ------------------------------------------------------------ calls
    def _linked(self) -> RedisLink:
        if self._link is None:
            raise StoreUnavailable("The store is not open.")
        return self._link

    async def _call(self, command: str, *arguments: str | bytes | int, timeout_s: float | None = None) -> Any:
        link = self._admitted()
        with self._judged():
            return await link.call(command, *arguments, timeout_s=timeout_s)

    async def _run(
        self, script: Script, keys: Sequence[str], arguments: Sequence[Any], timeout_s: float | None = None
    ) -> Any:
        link = self._admitted()
        with self._judged():
            return await link.run(script, keys, arguments, timeout_s=timeout_s)

    def _admitted(self) -> RedisLink:
        link = self._linked()
        if self._breaker.open:
            raise Away("The store does not answer.", retry_after_s=1.0)
        return link

    @contextlib.contextmanager
    def _judged(self) -> Any:
        """Tell the breaker how a call went."""
        try:
            yield
        except Away:
            self._failed()
            raise
        self._breaker.succeeded()

    def _failed(self) -> None:
        was_open = self._breaker.open
        self._breaker.failed(self._clock.now_ms())
        if self._breaker.open and not was_open:
            log.warning("the store is away")
            self._trouble.set()

    async def _write(self, write: Write, expected: bytes) -> int:
        """The new version, or 0 if another one than ``expected`` was there."""
        keys, arguments, number = self._write_arguments(write, expected)
        version = int(await self._run(WRITE, keys, arguments))
        if version:
            self._announce(number, write.name)
        return version

    def _write_arguments(self, write: Write, expected: bytes) -> tuple[tuple[str, str], tuple[Any, ...], int]:
        tenant, kind, key = write.name
        left_ms = write.ttl_ms(self._clock.now_ms())
        ttl = b"" if left_ms is None else b"%d" % max(1, ceil(left_ms))
        number, message = self._announcement(write.name)
        keys = (self._layout.record(write.name), self._layout.index(tenant, kind))
        write_id = f"{self._sender}:{number}"
        head, rest = write.value[:HEAD_BYTES], write.value[HEAD_BYTES:]
        return keys, (key.encode(), head, ttl, expected, write_id, self._layout.channel, message, rest), number

    # ------------------------------------------------------------ changes
    def _announcement(self, name: Name) -> tuple[int, bytes]:
        self._numbers += 1
        return self._numbers, Announcement(self._sender, self._numbers, Invalidation(*name)).to_bytes()

    def _announce(self, number: int, name: Name) -> None:
        """Tell the readers of this instance, once, whichever comes first: the answer or the message."""
        if number in self._announced:
            return
        self._announced[number] = None
        if len(self._announced) > _ANNOUNCED_KEPT:
            self._announced.popitem(last=False)
        self._changes.publish(Invalidation(*name))

    async def _listen(self, link: RedisLink) -> None:
        """Pass on what others change, for ever."""
        pause_ms = TEND_EVERY_MS
        while not self._changes.closed:
            try:
                async for data in link.messages(self._layout.channel):
                    pause_ms = TEND_EVERY_MS
                    if data is not None:
                        self._heard(data)
            except Away:
                # A store that nobody asks is known to be away all the same.
                self._failed()
            except StoreUnavailable as fault:
                log.warning("changes of other instances are not told: %s", fault.message)
            await self._clock.sleep(pause_ms)
            pause_ms = min(2 * pause_ms, 1_000.0)

    def _heard(self, data: bytes) -> None:
        announcement = Announcement.from_bytes(data)
        if announcement is None:
            return
        change = announcement.change
        if announcement.sender == self._sender:
            self._announce(announcement.number, (change.tenant, change.kind, change.key))
        else:
            self._changes.publish(change)

    # ------------------------------------------------------------ while it is away
    def _keep(self, write: Write) -> None:
        dropped = self._queue.dropped
        self._queue.add(write)
        if self._queue.dropped > dropped:
            log.warning("too many writes wait for the store: the oldest is dropped")
        self._announce(self._announcement(write.name)[0], write.name)
        self._trouble.set()

    def _is_full(self) -> None:
        if not self._full:
            self._full = True
            log.warning("the store is full: writes wait until it has room")

    def _has_room(self) -> None:
        if self._full:
            self._full = False
            log.warning("the store has room again")

    async def _tend(self, link: RedisLink) -> None:
        """While there is trouble: ask whether the server is back, then make the writes that wait."""
        while not self._changes.closed:
            await self._trouble.wait()
            with contextlib.suppress(StoreUnavailable):
                if self._breaker.probe_due(self._clock.now_ms()):
                    await link.call("PING", timeout_s=max(1.0, self._timeout_s))
                    self._breaker.succeeded()
                    log.warning("the store is back")
                if not self._breaker.open:
                    await self._flush(link)
            if not self._breaker.open and not len(self._queue):
                self._trouble.clear()
                continue
            await self._clock.sleep(TEND_EVERY_MS)

    async def _flush(self, link: RedisLink) -> None:
        while (write := self._queue.first()) is not None:
            left_ms = write.ttl_ms(self._clock.now_ms())
            if left_ms is None or left_ms > 0:
                keys, arguments, _ = self._write_arguments(write, ANY)
                try:
                    with self._judged():
                        await link.run(WRITE, keys, arguments)
                        self._has_room()
                except Away:
                    raise
                except Full:
                    self._is_full()
                    raise
                except StoreUnavailable as fault:
                    log.warning("a write that waited is dropped: %s", fault.message)
            self._queue.made(write)
        self._full = False
