"""The Redis store on real servers: shared by instances, in a cluster, behind sentinels, with TLS and passwords."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from redis.asyncio import Redis

from adapters.stores.redis_store import RedisStore
from adapters.stores.redis_url import parse_redis_url
from sidecar.clock import SystemClock
from sidecar.faults import Conflict, StoreUnavailable
from sidecar.ports import Invalidation, Stored
from sidecar.voice_shelf import VoiceShelf
from tests.adapters.stores.redis_server import RedisServer, needs_redis, redis_server
from tests.voices.records import anchor, record
from voices.record import VoiceRecord

pytestmark = needs_redis

TIMEOUT_S = 30


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
async def client(server: RedisServer) -> AsyncIterator[Redis]:
    async with server.client() as client:
        await client.flushall()
        yield client


@contextlib.asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[RedisStore]:
    store = RedisStore(parse_redis_url(url), SystemClock(), **{"timeout_s": TIMEOUT_S} | options)
    await store.start()
    try:
        yield store
    finally:
        await store.close()


async def listening(client: Any, count: int, channel: str = "sidecar:changes") -> None:
    """Wait until so many listen."""
    async with asyncio.timeout(TIMEOUT_S):
        while (await client.pubsub_numsub(channel))[0][1] < count:
            await asyncio.sleep(0.005)


async def every_promise_in_short(store: RedisStore) -> None:
    for tenant in ("a", "b", "c", "d", "e"):
        assert await store.swap(tenant, "k", "x", b"1", None) == 1
        with pytest.raises(Conflict):
            await store.swap(tenant, "k", "x", b"2", None)
        assert await store.put(tenant, "k", "y", b"2", ttl_s=60) == 1
        assert await store.get(tenant, "k", "x") == Stored(b"1", 1)
        assert list(await store.keys(tenant, "k")) == ["x", "y"]
        assert await store.delete(tenant, "k", "x") is True
        assert list(await store.keys(tenant, "k")) == ["y"]


# ---------------------------------------------------------------- instances
async def test_what_one_instance_changes_the_others_are_told(server: RedisServer, client: Redis) -> None:
    async with opened(server.url) as one, opened(server.url) as two:
        await listening(client, 2)
        changes = two.changes()
        await one.put("t", "k", "a", b"x")
        await one.delete("t", "k", "a")
        await two.put("t", "k", "b", b"x")
        async with asyncio.timeout(TIMEOUT_S):
            seen = [await anext(changes) for _ in range(3)]
        assert sorted(change.key for change in seen) == ["a", "a", "b"]
        assert await one.get("t", "k", "b") == Stored(b"x", 1)


async def test_a_voice_that_is_changed_or_deleted_is_so_on_every_instance(server: RedisServer, client: Redis) -> None:
    async with opened(server.url) as one, opened(server.url) as two:
        here, there = VoiceShelf(one, SystemClock()), VoiceShelf(two, SystemClock())
        await here.start()
        await there.start()
        await listening(client, 2)

        async def until_there(seed: int | None) -> None:
            async with asyncio.timeout(TIMEOUT_S):
                while True:
                    found = await there.get("local", "anna")
                    if (None if found is None else found.base_seed) == seed:
                        return
                    await asyncio.sleep(0)

        await until_there(None)
        saved = await here.save(record(base_seed=1), None)
        await until_there(1)
        await here.save(record(base_seed=2), saved.version)
        await until_there(2)
        await here.delete("local", "anna")
        await until_there(None)
        with pytest.raises(Conflict):
            await there.save(record(base_seed=3), 2)
        await here.close()
        await there.close()


async def test_foreign_messages_stop_nobody(server: RedisServer, client: Redis) -> None:
    async with opened(server.url) as store:
        await listening(client, 1)
        changes = store.changes()
        for data in (b"", b"nonsense", bytes(100_000)):
            await client.publish("sidecar:changes", data)
        await client.publish("sidecar:changes", b'["other", 1, "t", "k", "a"]')
        async with asyncio.timeout(TIMEOUT_S):
            assert await anext(changes) == Invalidation("t", "k", "a")


async def test_two_prefixes_are_two_stores(server: RedisServer, client: Redis) -> None:
    async with opened(server.url) as one, opened(server.url, prefix="other") as two:
        await one.put("t", "k", "a", b"x")
        assert await two.get("t", "k", "a") is None
        assert list(await two.keys("t", "k")) == []


WRITER = """
import asyncio, struct, sys
from adapters.stores.redis_store import RedisStore
from adapters.stores.redis_url import parse_redis_url
from sidecar.clock import SystemClock
from sidecar.faults import Conflict
from voices.record import VoiceRecord
from dataclasses import replace

async def main(url, writes):
    store = RedisStore(parse_redis_url(url), SystemClock(), timeout_s=60)
    await store.start()
    made = 0
    while made < writes:
        stored = await store.get("local", "voice", "anna")
        voice = VoiceRecord.from_bytes(stored.value)
        try:
            await store.swap("local", "voice", "anna", replace(voice, base_seed=voice.base_seed + 1).to_bytes(),
                             stored.version)
            made += 1
        except Conflict:
            pass
    await store.close()

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


async def test_two_processes_write_one_voice_and_lose_nothing(server: RedisServer, client: Redis) -> None:
    async with opened(server.url) as store:
        first = record(anchors=(anchor(64),), base_seed=0)
        await store.swap("local", "voice", "anna", first.to_bytes(), None)
        writers = [
            await asyncio.create_subprocess_exec(sys.executable, "-c", WRITER, server.url, "500", stderr=-1)
            for _ in range(2)
        ]
        torn = 0
        while any(writer.returncode is None for writer in writers):
            stored = await store.get("local", "voice", "anna")
            assert stored is not None
            torn += VoiceRecord.from_bytes(stored.value).base_seed != stored.version - 1
            await asyncio.sleep(0)
        for writer in writers:
            _, errors = await writer.communicate()
            assert writer.returncode == 0, errors.decode()
        stored = await store.get("local", "voice", "anna")
    assert stored is not None
    assert (torn, stored.version, VoiceRecord.from_bytes(stored.value).base_seed) == (0, 1_001, 1_000)


# ---------------------------------------------------------------- what lies there
RECORD, INDEX = "sidecar:{t/k}:r:a", "sidecar:{t/k}:i"

DAMAGE: dict[str, tuple[Callable[[Redis], Awaitable[Any]], int]] = {
    "text": (lambda client: client.set(RECORD, b"text"), 0),
    "list": (lambda client: _instead(client, client.lpush(RECORD, b"x")), 0),
    "word": (lambda client: client.hset(RECORD, "n", b"abc"), 0),
    "negative": (lambda client: client.hset(RECORD, "n", b"-3"), 0),
    "nought": (lambda client: client.hset(RECORD, "n", b"0"), 0),
    "padded": (lambda client: client.hset(RECORD, "n", b"02"), 0),
    "no number": (lambda client: client.hset(RECORD, "n", b"nan"), 0),
    "endless": (lambda client: client.hset(RECORD, "n", b"inf"), 0),
    "huge": (lambda client: client.hset(RECORD, "n", b"9" * 40), 0),
    "too large": (lambda client: client.hset(RECORD, "n", b"9007199254740992"), 0),
    "no version": (lambda client: client.hdel(RECORD, "n"), 0),
    "no head": (lambda client: client.hdel(RECORD, "h"), 2),
    "no rest": (lambda client: client.hdel(RECORD, "v"), 2),
}
"""What may happen to the record ``a`` of version 2, and the version that it has then."""


async def _instead(client: Redis, write: Awaitable[Any]) -> None:
    await client.delete(RECORD)
    await write


@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_damaged_record_harms_nobody_else_and_can_be_repaired(
    server: RedisServer, client: Redis, damage: str
) -> None:
    harm, version = DAMAGE[damage]
    async with opened(server.url) as store:

        async def damaged() -> None:
            await store.delete("t", "k", "a")
            await store.put("t", "k", "a", b"1")
            await store.put("t", "k", "a", b"2")
            await harm(client)

        await store.put("t", "k", "b", b"whole")
        await damaged()
        assert await store.get("t", "k", "a") == Stored(b"", version)
        assert list(await store.keys("t", "k")) == ["a", "b"]
        (_, listed), whole = await store.heads("t", "k", 5_000)
        assert (listed, whole) == (Stored(b"", version), ("b", Stored(b"whole", 1)))
        for seen in (None, 1, 3):
            with pytest.raises(Conflict):
                await store.swap("t", "k", "a", b"no", seen)
        assert await store.swap("t", "k", "a", b"ours", version) == version + 1
        assert await store.get("t", "k", "a") == Stored(b"ours", version + 1)

        await damaged()
        assert await store.put("t", "k", "a", b"put") == version + 1
        assert (await store.heads("t", "k", 9))[0] == ("a", Stored(b"put", version + 1))

        await damaged()
        assert await store.delete("t", "k", "a") is True
        assert await store.get("t", "k", "a") is None
        assert list(await store.keys("t", "k")) == ["b"]
        assert await store.swap("t", "k", "a", b"new", None) == 1


async def test_a_hash_of_another_program_is_no_record(server: RedisServer, client: Redis) -> None:
    async with opened(server.url) as store:
        await store.put("t", "k", "a", b"x")
        await client.delete(RECORD)
        await client.hset(RECORD, "colour", b"red")
        assert await store.get("t", "k", "a") is None
        assert list(await store.keys("t", "k")) == []
        assert await store.swap("t", "k", "a", b"ours", None) == 1


async def test_a_version_at_its_end_begins_anew(server: RedisServer, client: Redis) -> None:
    async with opened(server.url) as store:
        await store.put("t", "k", "a", b"x")
        await client.hset(RECORD, "n", b"9007199254740991")
        assert await store.swap("t", "k", "a", b"y", 9_007_199_254_740_991) == 1


@pytest.mark.parametrize("prefix", ["sidecar", "o[d]*d?\\"])
async def test_a_list_that_was_overwritten_is_made_anew(server: RedisServer, client: Redis, prefix: str) -> None:
    keys = sorted(["a", "é b", "100%", "a/b*{}", ""])
    index = f"{prefix}:{{t/k}}:i"
    async with opened(server.url, prefix=prefix) as store:
        for key in keys:
            await store.put("t", "k", key, b"x", ttl_s=600 if key == "a" else None)
        await store.put("t", "kk", "other", b"x")
        await client.set(index, b"text")
        assert list(await store.keys("t", "k")) == keys
        assert await client.zcard(index) == len(keys)
        assert await client.pttl(index) == -1

        await client.set(index, b"text")
        assert await store.put("t", "k", "b", b"new") == 1
        assert await store.delete("t", "k", "100%") is True
        assert await store.swap("t", "k", "a", b"changed", 1) == 2
        assert list(await store.keys("t", "k")) == sorted([*(key for key in keys if key != "100%"), "b"])
        assert dict(await store.heads("t", "k", 9))["a"] == Stored(b"changed", 2)


async def test_a_list_made_anew_ends_with_the_last_of_its_records(server: RedisServer, client: Redis) -> None:
    async with opened(server.url) as store:
        await client.set(INDEX, b"text")
        assert list(await store.keys("t", "k")) == []
        await client.set(INDEX, b"text")
        for index in range(3):
            await store.put("t", "k", str(index), b"x", ttl_s=600)
        assert list(await store.keys("t", "k")) == ["0", "1", "2"]
        record_ms, index_ms = await client.pttl("sidecar:{t/k}:r:2"), await client.pttl(INDEX)
        assert 0 < record_ms <= index_ms <= record_ms + 1_200


async def test_a_list_is_not_searched_for_on_a_server_that_is_too_large(
    server: RedisServer, client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.stores.redis_store.MOST_KEYS_SEARCHED", 2)
    async with opened(server.url) as store:
        for key in ("a", "b"):
            await store.put("t", "k", key, b"x")
        await client.set(INDEX, b"text")
        with pytest.raises(StoreUnavailable, match="overwritten by another program"):
            await store.keys("t", "k")
        assert await store.get("t", "k", "a") == Stored(b"x", 1)
        await client.delete(INDEX)
        await store.put("t", "k", "c", b"x")
        assert list(await store.keys("t", "k")) == ["c"]


async def test_an_index_that_is_wrong_lists_only_what_is_there(server: RedisServer, client: Redis) -> None:
    async with opened(server.url) as store:
        await store.put("t", "k", "a", b"x")
        await store.put("t", "k", "b", b"x")
        await client.delete("sidecar:{t/k}:r:a")
        await client.zadd("sidecar:{t/k}:i", {b"\xff": float("inf")})
        assert list(await store.keys("t", "k")) == ["b"]
        assert await client.zcard("sidecar:{t/k}:i") == 1


async def test_nothing_stays_when_all_has_expired(server: RedisServer, client: Redis) -> None:
    async with opened(server.url) as store:
        for index in range(5):
            await store.put("t", "k", str(index), b"x", ttl_s=600)
        index_ms, record_ms = await client.pttl("sidecar:{t/k}:i"), await client.pttl("sidecar:{t/k}:r:4")
        assert 0 < record_ms <= index_ms <= record_ms + 1_100
        await store.put("t", "k", "ever", b"x")
        assert await client.pttl("sidecar:{t/k}:i") == -1
        await store.delete("t", "k", "ever")
        await store.put("t", "k", "0", b"x", ttl_s=600)
        assert await client.pttl("sidecar:{t/k}:i") > 0


async def test_a_flush_leaves_an_empty_store_that_works(server: RedisServer, client: Redis) -> None:
    async with opened(server.url) as store:
        await store.put("t", "k", "a", b"x")
        await client.flushall()
        await client.script_flush()
        assert await store.get("t", "k", "a") is None
        assert await store.put("t", "k", "a", b"x") == 1


# ---------------------------------------------------------------- passwords, TLS
async def test_users_and_passwords(tmp_path: Path) -> None:
    users = tmp_path / "users.acl"
    users.write_text("user default off\nuser anna on >geheim@ ~* &* +@all\n")
    with redis_server(tmp_path, "--aclfile", str(users)) as server:
        host = server.url.removeprefix("redis://")
        async with opened(f"redis://anna:geheim%40@{host}") as store:
            await every_promise_in_short(store)
        for who in ("", "anna:wrong@", ":geheim%40@"):
            with pytest.raises(StoreUnavailable) as caught:
                async with opened(f"redis://{who}{host}"):
                    pass
            assert "geheim" not in str(caught.value)


async def test_a_unix_socket(tmp_path: Path) -> None:
    with redis_server(tmp_path, "--unixsocket", str(tmp_path / "r.sock")):
        async with opened(f"unix://{tmp_path / 'r.sock'}?db=3") as store:
            await every_promise_in_short(store)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@contextlib.asynccontextmanager
async def tls_before(server: RedisServer, authority: trustme.CA, host: str) -> AsyncIterator[int]:
    """A port that speaks TLS and hands everything on to the server."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, ahead = await asyncio.open_connection("127.0.0.1", server.port)
        await asyncio.gather(pump(reader, ahead), pump(behind, writer))

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(host).configure_cert(context)
    front = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield front.sockets[0].getsockname()[1]
    finally:
        front.close()


async def test_tls_with_a_certificate_that_is_checked(
    server: RedisServer, client: Redis, authority: trustme.CA, tmp_path: Path
) -> None:
    ca = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca))
    async with tls_before(server, authority, "127.0.0.1") as port:
        async with opened(f"rediss://127.0.0.1:{port}?ca={ca}") as store:
            await every_promise_in_short(store)
        with pytest.raises(StoreUnavailable):
            async with opened(f"rediss://127.0.0.1:{port}"):
                pass
    async with tls_before(server, authority, "redis.example") as port:
        with pytest.raises(StoreUnavailable):
            async with opened(f"rediss://127.0.0.1:{port}?ca={ca}"):
                pass
        async with opened(f"rediss://127.0.0.1:{port}?ca={ca}&check_hostname=no") as store:
            assert await store.get("t", "k", "a") is None


# ---------------------------------------------------------------- many servers
async def test_a_cluster(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    with (
        redis_server(folders[0], "--cluster-enabled", "yes") as one,
        redis_server(folders[1], "--cluster-enabled", "yes") as two,
    ):
        async with one.client() as first, two.client() as second:
            await first.execute_command("CLUSTER", "ADDSLOTS", *range(8_192))
            await second.execute_command("CLUSTER", "ADDSLOTS", *range(8_192, 16_384))
            await first.execute_command("CLUSTER", "MEET", "127.0.0.1", two.port)
            async with asyncio.timeout(TIMEOUT_S):
                for node in (first, second):
                    while b"cluster_state:ok" not in (await node.execute_command("CLUSTER", "INFO")):
                        await asyncio.sleep(0.02)
            url = f"redis+cluster://127.0.0.1:{one.port}"
            async with opened(url) as store, opened(url) as other:
                await every_promise_in_short(store)
                assert store._link is not None
                for tenant in ("a", "b", "c", "d", "e"):
                    await store._link.call("SET", f"sidecar:{{{tenant}/k}}:i", "text")
                    assert list(await store.keys(tenant, "k")) == ["y"]
                assert await first.dbsize() > 0
                assert await second.dbsize() > 0
                changes = other.changes()
                async with asyncio.timeout(TIMEOUT_S):
                    while True:
                        await store.put("t", "k", "a", b"x")
                        with contextlib.suppress(TimeoutError):
                            if await asyncio.wait_for(anext(changes), 0.2) == Invalidation("t", "k", "a"):
                                break
            async with opened(one.url) as alone:
                answers = [alone.get(tenant, "k", "x") for tenant in ("a", "b", "c", "d", "e")]
                faults = [fault for fault in await asyncio.gather(*answers, return_exceptions=True) if fault]
                assert faults
                assert all(isinstance(fault, StoreUnavailable) and "cluster" in fault.message for fault in faults)


async def test_sentinels_lead_to_the_new_master(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b", "c")]
    for folder in folders:
        folder.mkdir()
    with contextlib.ExitStack() as stack:
        master = stack.enter_context(redis_server(folders[0]))
        replica = stack.enter_context(redis_server(folders[1], "--replicaof", "127.0.0.1", str(master.port)))
        sentinel = RedisServer(folders[2])
        stack.callback(sentinel.kill)
        sentinel.start_sentinel(master, "main")
        async with replica.client() as copy, sentinel.client() as watcher:
            async with asyncio.timeout(TIMEOUT_S):
                while not await watcher.execute_command("SENTINEL", "SLAVES", "main"):
                    await asyncio.sleep(0.05)
            async with opened(f"redis+sentinel://127.0.0.1:{sentinel.port}/main") as store:
                await every_promise_in_short(store)
                await store.put("t", "k", "a", b"x")
                async with asyncio.timeout(TIMEOUT_S):
                    while not await copy.exists("sidecar:{t/k}:r:a"):
                        await asyncio.sleep(0.01)
                master.kill()
                async with asyncio.timeout(60):
                    while True:
                        with contextlib.suppress(StoreUnavailable, TimeoutError):
                            if await store.swap("t", "k", "b", b"x", None):
                                break
                        await asyncio.sleep(0.05)
                assert await store.get("t", "k", "a") == Stored(b"x", 1)
                assert await copy.exists("sidecar:{t/k}:r:b")
