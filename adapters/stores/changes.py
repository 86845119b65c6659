"""Announces changes to readers in this process, each with a bounded backlog."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import AsyncIterator

from sidecar.ports import Invalidation

CHANGES_KEPT = 1_024
"""Changes that a reader may lag behind before it loses the oldest."""


class Subscription(AsyncIterator[Invalidation]):
    """The changes from its making on, for one reader; ends when the hub is closed.

    Forgotten by the hub when nobody refers to it any more.
    """

    def __init__(self) -> None:
        self._backlog: deque[Invalidation] = deque(maxlen=CHANGES_KEPT)
        self._stirred = asyncio.Event()
        self._ended = False

    async def __anext__(self) -> Invalidation:
        while not self._backlog:
            if self._ended:
                raise StopAsyncIteration
            self._stirred.clear()
            await self._stirred.wait()
        return self._backlog.popleft()

    def offer(self, change: Invalidation) -> None:
        """Add a change; the oldest is dropped if there are too many."""
        self._backlog.append(change)
        self._stirred.set()

    def end(self) -> None:
        """Let the reader take what is there, then stop. Idempotent."""
        self._ended = True
        self._stirred.set()


class Changes:
    """Hub between the writers and any number of subscriptions. To be used from the event loop only."""

    def __init__(self) -> None:
        self._subscriptions: weakref.WeakSet[Subscription] = weakref.WeakSet()
        self._closed = False

    @property
    def closed(self) -> bool:
        """True after ``close``."""
        return self._closed

    def subscribe(self) -> Subscription:
        """Return the changes from now on; one that has ended if the hub is closed."""
        subscription = Subscription()
        if self._closed:
            subscription.end()
        else:
            self._subscriptions.add(subscription)
        return subscription

    def publish(self, change: Invalidation) -> None:
        """Hand ``change`` to every subscription; never waits."""
        for subscription in tuple(self._subscriptions):
            subscription.offer(change)

    def close(self) -> None:
        """End every subscription. Idempotent."""
        self._closed = True
        for subscription in tuple(self._subscriptions):
            subscription.end()
        self._subscriptions.clear()
