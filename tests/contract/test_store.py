"""What every Store promises. Another store joins by a maker in ``MAKERS``."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.stores.changes import CHANGES_KEPT
from adapters.stores.local import LocalStore
from adapters.stores.redis_store import RedisStore
from adapters.stores.redis_url import parse_redis_url
from sidecar.clock import SystemClock
from sidecar.faults import BadRequest, Conflict, StoreUnavailable, TooLarge
from sidecar.ports import Invalidation, Store, Stored
from tests.adapters.stores.redis_server import RedisServer, binary, needs_redis, pass_time, redis_server


@dataclass
class Bench:
    """A started store, and how its clock is made to go on by some seconds."""

    store: Store
    pass_time: Callable[[float], Awaitable[None]]


class HandClock:
    def __init__(self) -> None:
        self.now_s = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now_s

    async def pass_time(self, seconds: float) -> None:
        self.now_s += seconds


@contextlib.asynccontextmanager
async def local_memory(folder: Path) -> AsyncIterator[Bench]:
    clock = HandClock()
    store = LocalStore(None, now_s=clock)
    await store.start()
    try:
        yield Bench(store, clock.pass_time)
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def local_file(folder: Path) -> AsyncIterator[Bench]:
    clock = HandClock()
    store = LocalStore(folder / "store.db", now_s=clock)
    await store.start()
    try:
        yield Bench(store, clock.pass_time)
    finally:
        await store.close()


SERVERS: list[RedisServer] = []
"""The one Redis that this module starts, if it can."""


@pytest.fixture(scope="module", autouse=True)
def _redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    if binary() is None:
        yield
        return
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        SERVERS.append(server)
        yield
        SERVERS.clear()


@contextlib.asynccontextmanager
async def redis(folder: Path) -> AsyncIterator[Bench]:
    (server,) = SERVERS
    prefix = uuid.uuid4().hex
    store = RedisStore(parse_redis_url(server.url), SystemClock(), prefix=prefix, timeout_s=30)
    await store.start()
    try:
        async with server.client() as client:
            yield Bench(store, lambda seconds: pass_time(client, seconds, prefix))
    finally:
        await store.close()


MAKERS: dict[str, Callable[[Path], AbstractAsyncContextManager[Bench]]] = {
    "local-memory": local_memory,
    "local-file": local_file,
    "redis": redis,
}


EVERY = [pytest.param(name, marks=needs_redis if name.startswith("redis") else ()) for name in MAKERS]


@pytest.fixture(params=EVERY)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    async with MAKERS[request.param](tmp_path) as bench:
        yield bench


@pytest.fixture
def store(bench: Bench) -> Store:
    return bench.store


@pytest.fixture
def tenant() -> str:
    """Fresh for every test: a store may outlive it."""
    return uuid.uuid4().hex


async def next_change(changes: AsyncIterator[Invalidation]) -> Invalidation:
    return await asyncio.wait_for(anext(changes), 10)


# ---------------------------------------------------------------- records
async def test_what_is_put_can_be_got(store: Store, tenant: str) -> None:
    value = bytes(range(256)) * 40
    assert await store.put(tenant, "voice", "anna", value) == 1
    assert await store.get(tenant, "voice", "anna") == Stored(value, 1)


async def test_absent_is_none(store: Store, tenant: str) -> None:
    assert await store.get(tenant, "voice", "nobody") is None
    assert list(await store.keys(tenant, "voice")) == []
    assert await store.delete(tenant, "voice", "nobody") is False


async def test_versions_count_up(store: Store, tenant: str) -> None:
    assert [await store.put(tenant, "k", "a", b"x") for _ in range(3)] == [1, 2, 3]
    assert await store.put(tenant, "k", "b", b"x") == 1


async def test_empty_value_is_a_record(store: Store, tenant: str) -> None:
    await store.put(tenant, "k", "a", b"")
    assert await store.get(tenant, "k", "a") == Stored(b"", 1)


async def test_delete_removes_once(store: Store, tenant: str) -> None:
    await store.put(tenant, "k", "a", b"x")
    assert await store.delete(tenant, "k", "a") is True
    assert await store.get(tenant, "k", "a") is None
    assert await store.delete(tenant, "k", "a") is False


async def test_tenants_and_kinds_are_apart(store: Store, tenant: str) -> None:
    # No separator may make two names one.
    places = [(tenant, "k", "a:b"), (tenant, "k:a", "b"), (tenant + ":k", "a", "b"), (tenant, "K", "a:b")]
    for index, place in enumerate(places):
        await store.put(*place, str(index).encode())
    for index, place in enumerate(places):
        assert await store.get(*place) == Stored(str(index).encode(), 1)
    assert list(await store.keys(tenant, "k")) == ["a:b"]
    assert await store.delete(*places[0])
    assert await store.get(*places[1]) is not None


async def test_keys_are_sorted_by_code_point(store: Store, tenant: str) -> None:
    keys = ["b", "a", "Z", "é", "ß", "日本", "a b", "a%", "a*", "\U0001f600", "\uffee", ""]
    for key in keys:
        await store.put(tenant, "k", key, b"x")
    assert list(await store.keys(tenant, "k")) == sorted(keys)


async def test_large_value_is_kept_and_a_too_large_one_refused(store: Store, tenant: str) -> None:
    large = bytes(1024 * 1024)
    await store.put(tenant, "k", "a", large)
    assert await store.get(tenant, "k", "a") == Stored(large, 1)
    with pytest.raises(TooLarge):
        await store.put(tenant, "k", "a", bytes(17 * 1024 * 1024))
    with pytest.raises(TooLarge):
        await store.swap(tenant, "k", "b", bytes(17 * 1024 * 1024), None)
    assert await store.get(tenant, "k", "a") == Stored(large, 1)


async def test_heads_are_the_records_cut_short(bench: Bench, tenant: str) -> None:
    store = bench.store
    for index in range(600):
        await store.put(tenant, "k", f"{index:03}", b"%03d" % index * 9)
    await store.put(tenant, "k", "000", b"")
    await store.put(tenant, "k", "gone", b"x", ttl_s=2)
    await store.put(tenant, "other", "001", b"x")
    await bench.pass_time(2.5)
    expected = [(f"{index:03}", Stored(b"%03d" % index * 2, 1)) for index in range(600)]
    assert list(await store.heads(tenant, "k", 6)) == [("000", Stored(b"", 2)), *expected[1:]]
    assert (await store.heads(tenant, "k", 100))[7] == ("007", Stored(b"007" * 9, 1))
    await store.put(tenant, "k", "000", bytes(range(256)) * 20)
    for size in (0, 1_023, 1_024, 1_025, 3_000, 9_000):
        assert (await store.heads(tenant, "k", size))[0] == ("000", Stored((bytes(range(256)) * 20)[:size], 3))
    assert list(await store.heads(tenant, "none", 6)) == []


@pytest.mark.parametrize("key", ["x" * 5_000, "\ud800"], ids=["long", "surrogate"])
async def test_impossible_names_are_refused(store: Store, tenant: str, key: str) -> None:
    with pytest.raises(BadRequest):
        await store.put(tenant, "k", key, b"x")
    with pytest.raises(BadRequest):
        await store.get(tenant, "k", key)


# ---------------------------------------------------------------- compare and set
async def test_swap_creates_only_what_is_absent(store: Store, tenant: str) -> None:
    assert await store.swap(tenant, "k", "a", b"1", None) == 1
    with pytest.raises(Conflict):
        await store.swap(tenant, "k", "a", b"2", None)
    assert await store.get(tenant, "k", "a") == Stored(b"1", 1)


async def test_swap_needs_the_version_that_is_there(store: Store, tenant: str) -> None:
    await store.put(tenant, "k", "a", b"1")
    assert await store.swap(tenant, "k", "a", b"2", 1) == 2
    for stale in (1, 3, 0):
        with pytest.raises(Conflict):
            await store.swap(tenant, "k", "a", b"no", stale)
    with pytest.raises(Conflict):
        await store.swap(tenant, "k", "absent", b"no", 1)
    assert await store.get(tenant, "k", "a") == Stored(b"2", 2)
    assert await store.get(tenant, "k", "absent") is None


async def test_no_update_is_lost(store: Store, tenant: str) -> None:
    await store.put(tenant, "k", "count", b"0")

    async def count_up() -> None:
        for _ in range(10):
            while True:
                stored = await store.get(tenant, "k", "count")
                assert stored is not None
                with contextlib.suppress(Conflict):
                    await store.swap(tenant, "k", "count", b"%d" % (int(stored.value) + 1), stored.version)
                    break

    await asyncio.gather(*(count_up() for _ in range(8)))
    assert await store.get(tenant, "k", "count") == Stored(b"80", 81)


# ---------------------------------------------------------------- time to live
async def test_record_expires(bench: Bench, tenant: str) -> None:
    store = bench.store
    await store.put(tenant, "k", "short", b"x", ttl_s=2)
    await store.put(tenant, "k", "long", b"x", ttl_s=600)
    await store.put(tenant, "k", "ever", b"x")
    assert list(await store.keys(tenant, "k")) == ["ever", "long", "short"]
    await bench.pass_time(2.5)
    assert await store.get(tenant, "k", "short") is None
    assert list(await store.keys(tenant, "k")) == ["ever", "long"]
    assert await store.delete(tenant, "k", "short") is False


async def test_expired_record_is_absent_for_swap(bench: Bench, tenant: str) -> None:
    store = bench.store
    await store.swap(tenant, "k", "a", b"1", None, ttl_s=2)
    await bench.pass_time(2.5)
    with pytest.raises(Conflict):
        await store.swap(tenant, "k", "a", b"2", 1)
    await store.swap(tenant, "k", "a", b"2", None)
    stored = await store.get(tenant, "k", "a")
    assert stored is not None
    assert stored.value == b"2"


async def test_every_write_sets_the_time_to_live_anew(bench: Bench, tenant: str) -> None:
    store = bench.store
    await store.put(tenant, "k", "a", b"1", ttl_s=2)
    await store.put(tenant, "k", "a", b"2")
    await store.put(tenant, "k", "b", b"1")
    await store.swap(tenant, "k", "b", b"2", 1, ttl_s=2)
    await bench.pass_time(2.5)
    assert await store.get(tenant, "k", "a") == Stored(b"2", 2)
    assert await store.get(tenant, "k", "b") is None


@pytest.mark.parametrize("ttl_s", [0, -1, float("nan"), float("inf")])
async def test_senseless_time_to_live_is_refused(store: Store, tenant: str, ttl_s: float) -> None:
    with pytest.raises(ValueError):
        await store.put(tenant, "k", "a", b"x", ttl_s=ttl_s)
    assert await store.get(tenant, "k", "a") is None


# ---------------------------------------------------------------- changes
async def test_changes_tell_puts_swaps_and_deletes_in_order(store: Store, tenant: str) -> None:
    await store.put(tenant, "k", "before", b"x")
    changes = store.changes()
    await store.put(tenant, "k", "a", b"x")
    await store.swap(tenant, "k", "b", b"x", None)
    with pytest.raises(Conflict):
        await store.swap(tenant, "k", "a", b"x", 99)
    await store.delete(tenant, "k", "absent")
    await store.delete(tenant, "k", "a")
    seen = [await next_change(changes) for _ in range(3)]
    assert seen == [Invalidation(tenant, "k", "a"), Invalidation(tenant, "k", "b"), Invalidation(tenant, "k", "a")]


async def test_every_reader_sees_every_change(store: Store, tenant: str) -> None:
    readers = [store.changes() for _ in range(3)]
    waiting = [asyncio.ensure_future(next_change(reader)) for reader in readers]
    await asyncio.sleep(0)
    await store.put(tenant, "k", "a", b"x")
    assert await asyncio.gather(*waiting) == [Invalidation(tenant, "k", "a")] * 3


async def test_reader_that_lags_loses_the_oldest(store: Store, tenant: str) -> None:
    changes = store.changes()
    keys = [f"{index:05}" for index in range(CHANGES_KEPT + 5)]
    for key in keys:
        await store.put(tenant, "k", key, b"")
    seen = [(await next_change(changes)).key for _ in range(CHANGES_KEPT)]
    assert seen == keys[5:]


async def test_changes_end_when_the_store_is_closed(store: Store, tenant: str) -> None:
    changes = store.changes()
    waiting = asyncio.ensure_future(next_change(store.changes()))
    await asyncio.sleep(0)
    await store.put(tenant, "k", "a", b"x")
    await waiting
    await store.close()
    assert [change.key async for change in changes] == ["a"]
    assert [change async for change in store.changes()] == []


# ---------------------------------------------------------------- life
async def test_closed_store_is_unavailable(store: Store, tenant: str) -> None:
    assert store.answers
    await store.close()
    await store.close()
    assert not store.answers
    for call in (
        store.get(tenant, "k", "a"),
        store.put(tenant, "k", "a", b"x"),
        store.swap(tenant, "k", "a", b"x", None),
        store.delete(tenant, "k", "a"),
        store.keys(tenant, "k"),
        store.heads(tenant, "k", 8),
    ):
        with pytest.raises(StoreUnavailable):
            await call


# ---------------------------------------------------------------- against a model
KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.binary(max_size=8)
TTLS = st.sampled_from([None, 5.0, 50.0])
STEPS = st.one_of(
    st.tuples(st.just("put"), KEYS, VALUES, TTLS),
    st.tuples(st.just("swap"), KEYS, VALUES, st.sampled_from(["right", "stale", "absent"]), TTLS),
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.just("pass"), st.sampled_from([2.0, 20.0, 200.0])),
)


@pytest.mark.parametrize("maker", EVERY)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, max_size=20))
async def test_behaves_like_a_dictionary(maker: str, tmp_path: Path, steps: list[tuple[object, ...]]) -> None:
    tenant = uuid.uuid4().hex
    async with MAKERS[maker](tmp_path) as bench:
        store = bench.store
        model: dict[str, tuple[bytes, int, float | None]] = {}
        now_s = 0.0
        for step in steps:
            match step:
                case ("pass", float(seconds)):
                    await bench.pass_time(seconds)
                    now_s += seconds
                    model = {key: kept for key, kept in model.items() if kept[2] is None or kept[2] > now_s}
                case ("delete", str(key)):
                    assert await store.delete(tenant, "k", key) == (model.pop(key, None) is not None)
                case ("put", str(key), bytes(value), ttl_s):
                    assert ttl_s is None or isinstance(ttl_s, float)
                    version = model[key][1] + 1 if key in model else 1
                    assert await store.put(tenant, "k", key, value, ttl_s=ttl_s) == version
                    model[key] = (value, version, None if ttl_s is None else now_s + ttl_s)
                case ("swap", str(key), bytes(value), how, ttl_s):
                    assert ttl_s is None or isinstance(ttl_s, float)
                    there = model[key][1] if key in model else None
                    expected = {"right": there, "stale": (there or 0) + 7, "absent": None}[str(how)]
                    if expected != there:
                        with pytest.raises(Conflict):
                            await store.swap(tenant, "k", key, value, expected, ttl_s=ttl_s)
                        continue
                    version = (there or 0) + 1
                    assert await store.swap(tenant, "k", key, value, expected, ttl_s=ttl_s) == version
                    model[key] = (value, version, None if ttl_s is None else now_s + ttl_s)
            assert list(await store.keys(tenant, "k")) == sorted(model)
            for key in ("a", "b", "c"):
                kept = model.get(key)
                assert await store.get(tenant, "k", key) == (Stored(kept[0], kept[1]) if kept else None)
