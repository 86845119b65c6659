"""The Redis store when the server is away, frozen, slow, full, or not itself."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from adapters.stores.redis import RedisLink
from adapters.stores.redis_store import RedisStore
from adapters.stores.redis_url import parse_redis_url
from sidecar.clock import SystemClock
from sidecar.core.dialog import SpokenTurn
from sidecar.faults import StoreUnavailable
from sidecar.memory import DialogMemory
from sidecar.ports import Stored
from tests.adapters.stores.redis_server import RedisServer, free_port, needs_redis, redis_server

TIMEOUT_S = 30.0


@contextlib.asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[RedisStore]:
    store = RedisStore(parse_redis_url(url), SystemClock(), **{"timeout_s": TIMEOUT_S} | options)
    await store.start()
    try:
        yield store
    finally:
        await store.close()


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            with contextlib.suppress(StoreUnavailable):
                if await true():
                    return
            await asyncio.sleep(0.01)


async def until_away(store: RedisStore) -> None:
    async def away() -> bool:
        with contextlib.suppress(StoreUnavailable):
            await store.get("t", "k", "none")
        return not store.answers

    await until(away)


# ---------------------------------------------------------------- away
async def test_a_server_that_is_not_there_stops_only_who_needs_it() -> None:
    url = f"redis://127.0.0.1:{free_port()}"
    with pytest.raises(StoreUnavailable):
        async with opened(url, must_answer=True):
            pass
    async with opened(url, must_answer=False) as store:
        assert not store.answers
        for call in (
            store.get("t", "k", "a"),
            store.swap("t", "k", "a", b"x", None),
            store.delete("t", "k", "a"),
            store.keys("t", "k"),
            store.heads("t", "k", 9),
        ):
            with pytest.raises(StoreUnavailable) as caught:
                await call
            assert caught.value.retry_after_s
        assert await store.put("t", "k", "a", b"x") == 0
        assert await store.get("t", "k", "a") == Stored(b"x", 0)


@needs_redis
async def test_a_server_that_comes_later_is_used(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    try:
        async with opened(server.url, must_answer=False) as store:
            await store.put("t", "k", "a", b"x")
            server.start()
            await until(lambda: _is(store.get("t", "k", "a"), Stored(b"x", 1)))
            assert store.answers
    finally:
        server.kill()


async def _is(call: Awaitable[object], expected: object) -> bool:
    return await call == expected


@needs_redis
async def test_a_store_that_nobody_asks_is_known_to_be_away(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        async with opened(server.url) as store:
            server.kill()
            async with asyncio.timeout(TIMEOUT_S):
                while store.answers:
                    await asyncio.sleep(0.01)
            server.start()
            async with asyncio.timeout(TIMEOUT_S):
                while not store.answers:
                    await asyncio.sleep(0.01)


@needs_redis
async def test_what_is_put_while_it_is_away_is_written_when_it_is_back(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        async with opened(server.url) as store:
            await store.put("t", "k", "old", b"1")
            server.kill()
            for index in range(100):
                assert await store.put("t", "k", f"{index:02}", b"%d" % index, ttl_s=600) == 0
            assert await store.put("t", "k", "00", b"newer") == 0
            assert await store.put("t", "k", "short", b"x", ttl_s=0.001) == 0
            await until_away(store)
            assert await store.get("t", "k", "00") == Stored(b"newer", 0)
            with pytest.raises(StoreUnavailable):
                await store.swap("t", "k", "00", b"no", 0)
            changes = store.changes()
            server.start()
            await until(lambda: _is(store.get("t", "k", "99"), Stored(b"99", 1)))
            await until(lambda: _is(store.get("t", "k", "00"), Stored(b"newer", 1)))
            assert list(await store.keys("t", "k")) == [f"{index:02}" for index in range(100)]
            async with server.client() as client:
                assert 0 < await client.pttl("sidecar:{t/k}:r:01") <= 600_000
                assert await client.pttl("sidecar:{t/k}:r:00") == -1
            await store.put("t", "k", "after", b"x")
            async with asyncio.timeout(TIMEOUT_S):
                while (await anext(changes)).key != "after":
                    pass


@needs_redis
async def test_a_deleted_record_does_not_come_back_from_the_queue(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        async with opened(server.url) as store:
            server.kill()
            await store.put("t", "k", "a", b"x")
            with pytest.raises(StoreUnavailable):
                await store.delete("t", "k", "a")
            await store.put("t", "k", "b", b"x")
            server.start()
            await until(lambda: _is(store.get("t", "k", "b"), Stored(b"x", 1)))
            assert await store.get("t", "k", "a") is None


@needs_redis
async def test_a_closing_store_makes_the_writes_that_wait(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        store = RedisStore(parse_redis_url(server.url), SystemClock(), timeout_s=TIMEOUT_S)
        await store.start()
        server.kill()
        await store.put("t", "k", "a", b"x")
        server.start()
        await store.close()
        async with opened(server.url) as other:
            assert await other.get("t", "k", "a") == Stored(b"x", 1)


async def test_writes_that_cannot_be_made_are_counted_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    async with opened(f"redis://127.0.0.1:{free_port()}", must_answer=False) as store:
        for index in range(1_001):
            await store.put("t", "k", str(index), b"x")
    said = [(record.message, getattr(record, "writes", None)) for record in caplog.records]
    assert ("writes are lost: the store was away until the end", 1_000) in said
    assert ("too many writes wait for the store: the oldest is dropped", None) in said


@needs_redis
async def test_a_frozen_server_costs_a_few_calls_their_time_limit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with redis_server(tmp_path) as server:
        async with opened(server.url, timeout_s=0.3) as store:
            await store.put("t", "k", "a", b"1")
            server.freeze()
            try:
                failed = 0
                while store.answers:
                    with pytest.raises(StoreUnavailable):
                        await store.get("t", "k", "a")
                    failed += 1
                assert failed <= 5
                assert [record.message for record in caplog.records].count("the store is away") == 1
            finally:
                server.thaw()
            await until(lambda: _is(store.get("t", "k", "a"), Stored(b"1", 1)))


@needs_redis
async def test_connections_that_broke_while_idle_cost_nobody_a_call(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        async with opened(server.url) as store:
            await asyncio.gather(*(store.get("t", "k", str(index)) for index in range(32)))
            server.kill()
            server.start()
            assert await asyncio.gather(*(store.get("t", "k", str(index)) for index in range(64))) == [None] * 64


@needs_redis
async def test_a_full_server_says_so(tmp_path: Path) -> None:
    async def fill(store: RedisStore) -> None:
        for index in range(300):
            await store.put("t", "k", str(index), bytes(50_000))

    with redis_server(tmp_path, "--maxmemory", "6mb", "--maxmemory-policy", "noeviction") as server:
        async with opened(server.url) as store:
            with pytest.raises(StoreUnavailable, match="full"):
                await fill(store)
            assert store.answers
            assert await store.get("t", "k", "0") == Stored(bytes(50_000), 1)
            assert await store.delete("t", "k", "0") is True


async def fill(store: RedisStore) -> None:
    """Until there is room for nothing more."""
    for value in (bytes(50_000), bytes(100)):
        with contextlib.suppress(StoreUnavailable):
            for index in range(3_000):
                await store.put("t", f"of {len(value)}", f"{index:03}", value)
    with pytest.raises(StoreUnavailable, match="full"):
        await store.put("t", "k", "no", bytes(5_000))


@needs_redis
async def test_what_may_expire_waits_for_room_in_a_full_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with redis_server(tmp_path, "--maxmemory", "6mb", "--maxmemory-policy", "noeviction") as server:
        async with opened(server.url) as store:
            await fill(store)
            assert await store.put("t", "turn", "a", bytes(5_000), ttl_s=600) == 0
            assert await store.put("t", "turn", "b", bytes(5_000), ttl_s=600) == 0
            assert await store.get("t", "turn", "a") == Stored(bytes(5_000), 0)
            assert list(await store.keys("t", "turn")) == ["a", "b"]
            with pytest.raises(StoreUnavailable, match="full"):
                await store.put("t", "turn", "c", bytes(5_000))
            assert store.answers
            for index in range(10):
                assert await store.delete("t", "of 50000", f"{index:03}") is True
            await until(lambda: _is(store.get("t", "turn", "b"), Stored(bytes(5_000), 1)))
            assert await store.get("t", "turn", "a") == Stored(bytes(5_000), 1)
            async with server.client() as client:
                assert 0 < await client.pttl("sidecar:{t/turn}:r:a") <= 600_000
    said = [record.message for record in caplog.records]
    assert said == ["the store is full: writes wait until it has room", "the store has room again"]


@needs_redis
async def test_writes_that_a_full_server_never_took_are_counted_with_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with redis_server(tmp_path, "--maxmemory", "6mb", "--maxmemory-policy", "noeviction") as server:
        async with opened(server.url) as store:
            await fill(store)
            await store.put("t", "turn", "a", bytes(5_000), ttl_s=600)
    said = [(record.message, getattr(record, "writes", None)) for record in caplog.records]
    assert said[-1] == ("writes are lost: the store was full until the end", 1)


@needs_redis
async def test_a_replica_counts_as_away_for_writers(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    with (
        redis_server(folders[0]) as master,
        redis_server(folders[1], "--replicaof", "127.0.0.1", str(master.port)) as copy,
    ):
        async with opened(copy.url) as store:
            assert await store.get("t", "k", "a") is None
            with pytest.raises(StoreUnavailable, match="does not answer"):
                await store.swap("t", "k", "a", b"x", None)
            assert await store.put("t", "k", "b", b"x") == 0


@needs_redis
async def test_evicted_records_are_absent(tmp_path: Path) -> None:
    with redis_server(tmp_path, "--maxmemory", "3mb", "--maxmemory-policy", "allkeys-lru") as server:
        async with opened(server.url) as store:
            for index in range(300):
                await store.put("t", f"k{index % 7}", str(index), bytes(20_000))
            for kind in range(7):
                listed = await store.keys("t", f"k{kind}")
                for key in listed:
                    assert await store.get("t", f"k{kind}", key) is not None


@needs_redis
async def test_a_dialog_goes_on_elsewhere_and_over_an_outage(tmp_path: Path) -> None:
    turn = SpokenTurn("What was said.", 7, 0, 1_900_000_000)
    with redis_server(tmp_path) as server:
        async with opened(server.url) as here, opened(server.url) as there:
            mine, other = DialogMemory(here, SystemClock(), 600), DialogMemory(there, SystemClock(), 600)
            await mine.remember("anna", "audio_1", turn)
            assert await other.recall("anna", ["audio_1"]) == {"audio_1": turn}
            assert await other.recall("bert", ["audio_1"]) == {}
            server.kill()
            await mine.remember("anna", "audio_2", turn)
            assert await mine.recall("anna", ["audio_2"]) == {"audio_2": turn}
            server.start()
            await until(lambda: _is(other.recall("anna", ["audio_2"]), {"audio_2": turn}))


# ---------------------------------------------------------------- servers that are not themselves
Behaviour = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def pretending(behave: Behaviour) -> AsyncIterator[str]:
    """A server that answers every command as it likes; counts connections."""

    serving: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        try:
            await answer(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            serving.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readline():
            parts = []
            for _ in range(int(head[1:])):
                size = int((await reader.readline())[1:])
                parts.append((await reader.readexactly(size + 2))[:-2])
            if parts[0] in (b"CLIENT", b"SELECT", b"HELLO"):
                writer.write(b"+OK\r\n")
            else:
                await behave(b" ".join(parts), writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in serving:
            task.cancel()
        while serving:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    "answer",
    [
        b"-LOADING Redis is loading the dataset in memory\r\n",
        b"-READONLY You can't write against a read only replica.\r\n",
        b"-MOVED 1 127.0.0.1:1\r\n",
        b"-CLUSTERDOWN The cluster is down\r\n",
        b"-MASTERDOWN Link with MASTER is down\r\n",
        b"-NOPERM this user has no permissions\r\n",
        b"-ERR unknown command\r\n",
        b"nonsense\r\n",
    ],
)
async def test_what_a_server_may_answer_is_a_fault_after_two_tries_at_most(answer: bytes) -> None:
    asked = []

    async def behave(command: bytes, writer: asyncio.StreamWriter) -> None:
        asked.append(command)
        writer.write(answer)

    async with pretending(behave) as url:
        link = RedisLink(parse_redis_url(url), TIMEOUT_S)
        with pytest.raises(StoreUnavailable) as caught:
            await link.call("GET", "canary")
        await link.close()
    assert 1 <= len(asked) <= 2
    assert "canary" not in caught.value.message


async def test_half_an_answer_is_never_taken_for_another_callers() -> None:
    """The server stops in the middle of some answers; what it sends later must reach nobody."""
    turn = 0

    async def behave(command: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal turn
        turn += 1
        value = command.split()[1]
        whole = b"$%d\r\n%s\r\n" % (len(value), value)
        if turn % 7 == 0:
            writer.write(whole[: len(whole) // 2])
            await asyncio.sleep(0.1)
            writer.write(whole[len(whole) // 2 :])
        else:
            writer.write(whole)

    async with pretending(behave) as url:
        link = RedisLink(parse_redis_url(url), 0.05)
        late = 0

        async def ask(number: int) -> None:
            nonlocal late
            name = f"value-of-{number:06}"
            try:
                assert await link.call("GET", name) == name.encode()
            except StoreUnavailable:
                late += 1

        for start in range(0, 2_000, 20):
            await asyncio.gather(*(ask(start + index) for index in range(20)))
        await link.close()
    assert 0 < late < 2_000


async def test_a_cancelled_call_leaves_its_connection_to_nobody() -> None:
    async def behave(command: bytes, writer: asyncio.StreamWriter) -> None:
        value = command.split()[1]
        if value.endswith(b"slow"):
            await asyncio.sleep(0.02)
        writer.write(b"$%d\r\n%s\r\n" % (len(value), value))

    async with pretending(behave) as url:
        link = RedisLink(parse_redis_url(url), TIMEOUT_S)
        for number in range(50):
            slow = asyncio.create_task(link.call("GET", f"{number}slow"))
            await asyncio.sleep(0.001 * (number % 5))
            slow.cancel()
            assert await link.call("GET", f"{number}") == str(number).encode()
            with contextlib.suppress(asyncio.CancelledError):
                await slow
        await link.close()


async def test_more_calls_than_may_wait_are_refused() -> None:
    async def behave(command: bytes, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(3_600)

    async with pretending(behave) as url:
        link = RedisLink(parse_redis_url(url), TIMEOUT_S)
        calls = [asyncio.create_task(link.call("GET", str(index))) for index in range(1_100)]
        done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        faults = [call.exception() for call in done]
        assert all(isinstance(fault, StoreUnavailable) and "busy" in fault.message for fault in faults)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await link.close()
