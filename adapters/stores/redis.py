"""The connection to a Redis: calls with a time limit, one retry, and the messages of a channel."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

from redis import exceptions as wrong
from redis.asyncio import Redis, RedisCluster, Sentinel
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from adapters.stores.redis_layout import Script
from adapters.stores.redis_url import RedisAddress
from sidecar.faults import StoreUnavailable

CONNECTIONS = 32
"""Calls that may be under way at once; more wait."""

MAX_CALLS = 1_024
"""Calls that may wait or be under way; one more is refused."""

SILENCE_S = 1.0
"""A channel that is silent for so long is asked whether it is still there."""

Argument = str | bytes | int | float

_AWAY = (
    wrong.ConnectionError,
    wrong.TimeoutError,
    wrong.ReadOnlyError,
    wrong.ClusterDownError,
    wrong.TryAgainError,
    wrong.MovedError,
    wrong.AskError,
    wrong.RedisClusterException,
    OSError,
)
"""What a server that is away, moves, loads or changes its role answers, and what the library makes of it."""


class Away(StoreUnavailable):
    """The server cannot be reached or does not answer in time: worth another try later."""


class Full(StoreUnavailable):
    """The server has no memory left: worth another try when something has expired or was deleted."""


class Foreign(StoreUnavailable):
    """What lies under a key is of another type than ours."""


class RedisLink:
    """Talks to one Redis, Sentinel group or cluster, with connections of its own.

    ``timeout_s`` bounds every call, with waiting, connecting and the one retry. Calls raise ``Away`` while the
    server is not there, ``Full``, ``Foreign`` or another ``StoreUnavailable`` for what it refuses.
    """

    def __init__(self, address: RedisAddress, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._sentinels: Sequence[Any] = ()
        self._client = self._connected(address)
        self._room = asyncio.Semaphore(CONNECTIONS)
        self._calls: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def call(self, command: str, *arguments: Argument, timeout_s: float | None = None) -> Any:
        """The server's answer to a command that may be sent twice."""
        return await self._limited((command, *arguments), timeout_s)

    async def run(
        self, script: Script, keys: Sequence[str], arguments: Sequence[Argument], timeout_s: float | None = None
    ) -> Any:
        """What a script returns; one that may be run twice."""
        try:
            return await self._limited(("EVALSHA", script.sha, len(keys), *keys, *arguments), timeout_s)
        except _Unknown:
            return await self._limited(("EVAL", script.source, len(keys), *keys, *arguments), timeout_s)

    async def messages(self, channel: str) -> AsyncIterator[bytes | None]:
        """None once it listens, then every message; ends by raising ``Away``."""
        pubsub: Any = self._client.pubsub()
        try:
            async with asyncio.timeout(max(1.0, self._timeout_s)):
                await pubsub.subscribe(channel)
            asked = True
            while True:
                message = await pubsub.get_message(timeout=SILENCE_S)
                if message is None:
                    if asked:
                        raise Away("The store does not answer.")
                    async with asyncio.timeout(SILENCE_S):
                        await pubsub.ping()
                    asked = True
                    continue
                asked = False
                if message["type"] == "subscribe":
                    yield None
                elif message["type"] == "message":
                    yield message["data"]
        except (*_AWAY, TimeoutError, wrong.RedisError) as error:
            raise _fault(error) from None
        finally:
            with contextlib.suppress(Exception):
                await pubsub.aclose()

    async def close(self) -> None:
        """Close every connection. Idempotent."""
        self._closed = True
        with contextlib.suppress(Exception):
            await self._client.aclose()
        for sentinel in self._sentinels:
            with contextlib.suppress(Exception):
                await sentinel.aclose()

    async def _limited(self, command: tuple[Argument, ...], timeout_s: float | None) -> Any:
        if self._closed:
            raise StoreUnavailable("The store is closed.")
        if len(self._calls) >= MAX_CALLS:
            raise StoreUnavailable("The store is busy.", retry_after_s=1.0)
        call = asyncio.create_task(self._held(command))
        self._calls.add(call)
        call.add_done_callback(self._ended)
        try:
            # Not asyncio.timeout: while it connects, the library swallows a cancellation.
            await asyncio.wait((call,), timeout=timeout_s or self._timeout_s)
        finally:
            call.cancel()
        if not call.done() or call.cancelled():
            raise Away("The store does not answer.", retry_after_s=1.0)
        try:
            return call.result()
        except (*_AWAY, wrong.RedisError) as error:
            raise _fault(error) from None

    async def _held(self, command: tuple[Argument, ...]) -> Any:
        async with self._room:
            return await self._twice(command)

    def _ended(self, call: asyncio.Task[Any]) -> None:
        self._calls.discard(call)
        if not call.cancelled():
            # Nobody waits for a call that came too late.
            call.exception()

    async def _twice(self, command: tuple[Argument, ...]) -> Any:
        """Again on a fresh connection if the first one was broken, or led to a server that may not write any more."""
        try:
            return await self._once(command)
        except (wrong.AuthenticationError, wrong.AuthorizationError, wrong.BusyLoadingError):
            raise
        except _AWAY:
            if isinstance(self._client, Redis):
                # The others that wait in the pool broke for the same reason.
                await self._client.connection_pool.disconnect(inuse_connections=False)
        return await self._once(command)

    async def _once(self, command: tuple[Argument, ...]) -> Any:
        try:
            return await self._client.execute_command(*command)
        except wrong.NoScriptError:
            raise _Unknown from None
        except wrong.ResponseError as error:
            # Redis 6.2 wraps what a command in a script was answered.
            if "-READONLY " in str(error):
                raise wrong.ReadOnlyError from None
            if "-OOM " in str(error):
                raise wrong.OutOfMemoryError from None
            raise

    def _connected(self, address: RedisAddress) -> Redis | RedisCluster:
        """A client, which connects when it is used."""
        shared: dict[str, Any] = {
            "username": address.user,
            "password": address.password,
            "protocol": 2,
            # The limit of the whole call is kept here; this one only ends what hangs by itself.
            "socket_timeout": max(5.0, self._timeout_s),
            "socket_connect_timeout": max(1.0, self._timeout_s),
            "socket_keepalive": True,
            "retry": Retry(NoBackoff(), 0),
        } | _tls_options(address)
        if address.topology == "cluster":
            nodes = [ClusterNode(host, port) for host, port in address.hosts]
            return RedisCluster(startup_nodes=nodes, require_full_coverage=False, **shared)
        shared["db"] = address.database
        if address.topology == "sentinel":
            asked = {k: v for k, v in shared.items() if k.startswith(("ssl", "socket_", "retry", "protocol"))}
            asked |= {"username": address.sentinel_user, "password": address.sentinel_password}
            group = cast(Any, Sentinel)(address.hosts, sentinel_kwargs=asked, **shared)
            self._sentinels = group.sentinels
            client: Redis = group.master_for(address.service)
            return client
        if address.path is not None:
            return Redis(unix_socket_path=address.path, **shared)
        ((host, port),) = address.hosts
        return Redis(host=host, port=port, **shared)


class _Unknown(Exception):
    """The server does not know this script yet."""


def _tls_options(address: RedisAddress) -> dict[str, Any]:
    tls = address.tls
    if tls is None:
        return {}
    return {
        "ssl": True,
        "ssl_ca_certs": tls.ca,
        "ssl_certfile": tls.cert,
        "ssl_keyfile": tls.key,
        "ssl_check_hostname": tls.check_hostname,
    }


def _fault(error: Exception) -> StoreUnavailable:
    """The fault for ``error``; its message has no address, key or password."""
    if isinstance(error, wrong.AuthenticationError | wrong.AuthorizationError):
        return Away("The store refuses the user or password.")
    if isinstance(error, wrong.BusyLoadingError):
        return Away("The store is loading its data.", retry_after_s=1.0)
    if isinstance(error, wrong.MovedError | wrong.AskError):
        return Away("The store is a cluster: its URL begins with redis+cluster://.")
    if isinstance(error, (*_AWAY, TimeoutError)):
        return Away("The store does not answer.", retry_after_s=1.0)
    if isinstance(error, wrong.OutOfMemoryError):
        return Full("The store is full.")
    if isinstance(error, wrong.NoPermissionError):
        return StoreUnavailable("The store does not allow this user what is needed.")
    if "WRONGTYPE" in str(error):
        return Foreign("A record in the store belongs to another program.")
    return StoreUnavailable("The store refuses the command.")
