"""What LocalStore promises beyond the port: restart, other processes, bounds, life."""

import asyncio
import gc
import sqlite3
import threading
from pathlib import Path

import pytest

from adapters.stores import local
from adapters.stores.local import LocalStore
from adapters.stores.records import SWEEP_RECORDS
from sidecar.faults import Conflict, StoreUnavailable
from sidecar.ports import Invalidation, Stored
from tests.adapters.stores.helpers import HandClock, content, count, fill_up, filled, mode, run_script


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "kept" / "store.db"


# ---------------------------------------------------------------- restart and other processes
async def test_survives_a_restart(file: Path) -> None:
    clock = HandClock()
    store = LocalStore(file, now_s=clock)
    await store.start()
    await store.put("t", "k", "ever", b"1")
    await store.put("t", "k", "ever", b"2")
    await store.put("t", "k", "short", b"x", ttl_s=60)
    await store.close()

    clock.now_s += 61
    again = LocalStore(file, now_s=clock)
    await again.start()
    assert await again.get("t", "k", "ever") == Stored(b"2", 2)
    assert await again.keys("t", "k") == ["ever"]
    assert await again.swap("t", "k", "ever", b"3", 2) == 3
    await again.close()


async def test_file_is_for_its_owner_only(file: Path) -> None:
    await filled(file)
    assert mode(file) == 0o600
    assert mode(file.parent) == 0o700


async def test_deleted_values_leave_the_file(file: Path) -> None:
    store = LocalStore(file)
    await store.start()
    await store.put("t", "k", "a", b"a very secret voice" * 100)
    await store.delete("t", "k", "a")
    await store.close()
    assert b"a very secret voice" not in content(file)


async def test_two_stores_on_one_file_see_each_other(file: Path) -> None:
    one, two = LocalStore(file), LocalStore(file)
    await asyncio.gather(one.start(), two.start())
    await one.put("t", "k", "a", b"1")
    assert await two.get("t", "k", "a") == Stored(b"1", 1)
    assert await two.swap("t", "k", "a", b"2", 1) == 2
    with pytest.raises(Conflict):
        await one.swap("t", "k", "a", b"2", 1)
    await one.close()
    assert await two.get("t", "k", "a") == Stored(b"2", 2)
    await two.close()


COUNTER = """
import asyncio, sys
from pathlib import Path
from adapters.stores.local import LocalStore
from sidecar.faults import Conflict

async def main():
    store = LocalStore(Path(sys.argv[1]), busy_timeout_s=60)
    await store.start()
    done = 0
    while done < 100:
        there = await store.get("t", "k", "count")
        value = b"%d" % (int(there.value) + 1 if there else 1)
        try:
            await store.swap("t", "k", "count", value, there.version if there else None)
            done += 1
        except Conflict:
            pass
    await store.close()

asyncio.run(main())
"""


async def test_processes_lose_no_update(file: Path) -> None:
    await asyncio.gather(run_script(COUNTER, str(file)), run_script(COUNTER, str(file)))
    store = LocalStore(file)
    await store.start()
    assert await store.get("t", "k", "count") == Stored(b"200", 200)
    await store.close()


# ---------------------------------------------------------------- bounds
async def test_expired_records_are_purged_by_reading(file: Path) -> None:
    clock = HandClock()
    store = LocalStore(file, now_s=clock)
    await store.start()
    for index in range(30):
        await store.put("t", "k", str(index), b"x", ttl_s=10)
    await store.put("t", "k", "ever", b"x")
    assert count(file) == 31
    clock.now_s += 61
    await store.get("other", "k", "a")
    assert count(file) == 1
    await store.close()


async def test_writes_purge_faster_than_they_add(file: Path) -> None:
    clock = HandClock()
    store = LocalStore(file, now_s=clock)
    await store.start()
    for index in range(200):
        await store.put("t", "k", str(index), b"x", ttl_s=0.5)
        clock.now_s += 0.1
    assert count(file) < 20
    await store.close()


async def test_one_sweep_is_bounded(file: Path) -> None:
    clock = HandClock()
    await filled(file, records=1)
    connection = sqlite3.connect(file)
    connection.executemany(
        "INSERT INTO records (tenant, kind, key, version, expires_s, value) VALUES ('t', 'k', ?, 1, 5.0, x'')",
        [(f"old-{index}",) for index in range(3 * SWEEP_RECORDS)],
    )
    connection.commit()
    connection.close()
    store = LocalStore(file, now_s=clock)
    await store.start()
    assert await store.keys("t", "k") == ["0000"]
    assert count(file) == 1 + 2 * SWEEP_RECORDS
    await store.close()


@pytest.mark.parametrize("on_disk", [True, False])
async def test_full_store_refuses_writes_and_recovers(file: Path, on_disk: bool) -> None:
    store = LocalStore(file if on_disk else None, max_bytes=400_000)
    await store.start()
    with pytest.raises(StoreUnavailable, match="full"):
        await fill_up(store)
    kept = await store.keys("t", "k")
    assert 10 <= len(kept) < 25
    with pytest.raises(StoreUnavailable, match="full"):
        await store.swap("t", "k", "new", bytes(100_000), None)
    assert await store.get("t", "k", kept[0]) == Stored(bytes(20_000), 1)
    for key in kept[:8]:
        assert await store.delete("t", "k", key)
    assert await store.swap("t", "k", "new", bytes(100_000), None) == 1
    await store.close()


async def test_expired_records_make_room_in_a_full_store() -> None:
    clock = HandClock()
    store = LocalStore(None, now_s=clock, max_bytes=400_000)
    await store.start()
    with pytest.raises(StoreUnavailable, match="full"):
        await fill_up(store, ttl_s=10)
    clock.now_s += 11
    assert await store.put("t", "k", "new", bytes(100_000)) == 1
    await store.close()


async def test_calls_at_once_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "MAX_CALLS", 3)
    store = LocalStore(None)
    await store.start()
    answers = await asyncio.gather(*(store.put("t", "k", str(n), b"") for n in range(10)), return_exceptions=True)
    assert answers[:3] == [1, 1, 1]
    assert all(isinstance(answer, StoreUnavailable) for answer in answers[3:])
    assert await store.keys("t", "k") == ["0", "1", "2"]
    await store.close()


# ---------------------------------------------------------------- life
async def test_calls_before_start_are_refused() -> None:
    with pytest.raises(StoreUnavailable):
        await LocalStore(None).get("t", "k", "a")


async def test_start_is_idempotent_and_close_is_final() -> None:
    store = LocalStore(None)
    await store.start()
    await store.put("t", "k", "a", b"x")
    await store.start()
    assert await store.get("t", "k", "a") == Stored(b"x", 1)
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.start()


async def test_close_finishes_the_calls_under_way(file: Path) -> None:
    store = LocalStore(file)
    await store.start()
    writing = [asyncio.ensure_future(store.put("t", "k", str(n), b"x")) for n in range(20)]
    await asyncio.sleep(0)
    await store.close()
    assert await asyncio.gather(*writing) == [1] * 20
    assert count(file) == 20


async def test_nothing_is_left_behind(file: Path) -> None:
    threads = threading.active_count()
    for place in (file, None):
        store = LocalStore(place)
        await store.start()
        await store.put("t", "k", "a", b"x")
        await store.close()
    failing = LocalStore(file.parent)
    with pytest.raises(StoreUnavailable):
        await failing.start()
    for thread in threading.enumerate():
        if thread.name.startswith("store"):
            await asyncio.to_thread(thread.join, 10)
            assert not thread.is_alive()
    gc.collect()
    assert [left.name for left in file.parent.iterdir()] == ["store.db"]
    assert threading.active_count() <= threads + 1  # the one that joined


async def test_change_by_a_cancelled_caller_is_announced(file: Path) -> None:
    begun = threading.Event()

    def now_s() -> float:
        begun.set()
        return 1_700_000_000.0

    store = LocalStore(file, now_s=now_s)
    await store.start()
    changes = store.changes()
    blocker = sqlite3.connect(file, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    begun.clear()
    writing = asyncio.ensure_future(store.put("t", "k", "a", b"x"))
    # The store's thread has the call now and asks for the time.
    assert await asyncio.to_thread(begun.wait, 10)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    blocker.execute("ROLLBACK")
    blocker.close()
    assert await asyncio.wait_for(anext(changes), 10) == Invalidation("t", "k", "a")
    assert await store.get("t", "k", "a") == Stored(b"x", 1)
    await store.close()


async def test_forgotten_readers_are_forgotten() -> None:
    store = LocalStore(None)
    await store.start()
    readers = [store.changes() for _ in range(5)]
    assert len(store._changes._subscriptions) == 5
    readers.clear()
    gc.collect()
    assert len(store._changes._subscriptions) == 0
    await store.close()
