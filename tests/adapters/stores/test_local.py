"""What LocalStore promises beyond the port: files, disks, other processes, bounds."""

import asyncio
import gc
import os
import random
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from adapters.stores import local
from adapters.stores.local import LocalStore
from adapters.stores.records import APPLICATION_ID, SCHEMA_VERSION, SWEEP_RECORDS
from sidecar.faults import Conflict, Fault, StoreUnavailable
from sidecar.ports import Invalidation, Stored


class HandClock:
    now_s = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "kept" / "store.db"


async def filled(file: Path, *, records: int = 20) -> None:
    store = LocalStore(file)
    await store.start()
    for index in range(records):
        await store.put("t", "k", f"{index:04}", b"value" * 50)
    await store.close()


def count(file: Path) -> int:
    connection = sqlite3.connect(file)
    try:
        return int(connection.execute("SELECT count(*) FROM records").fetchone()[0])
    finally:
        connection.close()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def content(file: Path) -> bytes:
    return file.read_bytes()


def protect(file: Path, file_mode: int, folder_mode: int) -> None:
    file.chmod(file_mode)
    file.parent.chmod(folder_mode)


def replace(file: Path, data: bytes) -> None:
    for left in file.parent.iterdir():
        left.unlink()
    file.write_bytes(data)


async def fill_up(store: LocalStore, ttl_s: float | None = None) -> None:
    for index in range(100):
        await store.put("t", "k", f"{index:03}", bytes(20_000), ttl_s=ttl_s)


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


async def run_script(script: str, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return out.decode()


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


# ---------------------------------------------------------------- bad files and disks
def safe(fault: Fault, file: Path) -> bool:
    return str(file) not in fault.message and file.name not in fault.message and "/" not in fault.message


@pytest.mark.parametrize(
    "content", [b"not a database, but text" * 500, bytes(100), random.Random(1).randbytes(9_000)]
)
async def test_foreign_bytes_are_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "store.db"
    file.write_bytes(content)
    store = LocalStore(file)
    with pytest.raises(StoreUnavailable) as caught:
        await store.start()
    assert safe(caught.value, file)
    with pytest.raises(StoreUnavailable):
        await store.get("t", "k", "a")
    assert file.read_bytes() == content
    await store.close()


async def test_newer_schema_is_refused(file: Path) -> None:
    await filled(file)
    connection = sqlite3.connect(file)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()
    store = LocalStore(file)
    with pytest.raises(StoreUnavailable, match="newer"):
        await store.start()
    await store.close()
    assert count(file) == 20


@pytest.mark.parametrize(
    "statement", ["CREATE TABLE records (a)", "PRAGMA user_version = 5", "PRAGMA application_id = 7"]
)
async def test_database_of_another_program_is_left_alone(tmp_path: Path, statement: str) -> None:
    file = tmp_path / "other.db"
    connection = sqlite3.connect(file)
    connection.execute(statement)
    connection.commit()
    connection.close()
    with pytest.raises(StoreUnavailable, match="another program"):
        await LocalStore(file).start()


async def test_schema_is_marked_as_ours(file: Path) -> None:
    await filled(file)
    connection = sqlite3.connect(file)
    assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


async def use(file: Path) -> StoreUnavailable | None:
    """Everything one does with a store; the fault that ended it."""
    store = LocalStore(file)
    try:
        await store.start()
        for key in await store.keys("t", "k"):
            stored = await store.get("t", "k", key)
            assert stored is None or isinstance(stored.value, bytes)
        await store.put("t", "k", "0001", b"new")
        await store.delete("t", "k", "0002")
    except StoreUnavailable as fault:
        return fault
    finally:
        await store.close()
    return None


async def test_damaged_files_never_crash(file: Path) -> None:
    await filled(file, records=60)
    whole = content(file)
    draw = random.Random(7)
    faults = []
    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(draw.choice([1, 20, 400])):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        replace(file, bytes(damaged[: draw.choice([len(damaged), draw.randrange(len(damaged))])]))
        faults.append(await use(file))
    refused = [fault for fault in faults if fault is not None]
    assert 0 < len(refused) < len(faults)
    assert all(safe(fault, file) for fault in refused)


DISK_FULL = """
import asyncio, resource, sys
from pathlib import Path
from adapters.stores.local import LocalStore
from sidecar.faults import StoreUnavailable

async def main():
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
    store = LocalStore(Path(sys.argv[1]))
    await store.start()
    await store.put("t", "k", "small", b"x")
    refused = 0
    for index in range(50):
        try:
            await store.put("t", "k", str(index), bytes(20_000))
        except StoreUnavailable:
            refused += 1
    assert refused
    assert (await store.get("t", "k", "small")).value == b"x"
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert await store.put("t", "k", "small", bytes(500_000)) == 2
    await store.close()

asyncio.run(main())
print("came through")
"""


async def test_full_disk_refuses_writes_and_recovers(file: Path) -> None:
    # The limit on a file's size stands for the disk: the write itself fails.
    assert await run_script(DISK_FULL, str(file)) == "came through\n"


async def test_place_that_cannot_be_made_is_refused_and_may_be_tried_again(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_bytes(b"")
    store = LocalStore(blocked / "store.db")
    with pytest.raises(StoreUnavailable) as caught:
        await store.start()
    assert safe(caught.value, blocked)
    blocked.unlink()
    await store.start()
    assert await store.put("t", "k", "a", b"x") == 1
    await store.close()


async def test_folder_instead_of_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        await LocalStore(tmp_path).start()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_read_only_place_is_refused(file: Path) -> None:
    await filled(file)
    protect(file, 0o400, 0o500)
    try:
        fault = await use(file)
    finally:
        protect(file, 0o600, 0o700)
    assert fault is not None
    assert safe(fault, file)
    assert await use(file) is None


async def test_disk_that_turns_read_only_is_still_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def remembering(*args: object, **options: object) -> sqlite3.Connection:
        opened.append(connect(*args, **options))  # type: ignore[call-overload]
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", remembering)
    clock = HandClock()
    store = LocalStore(file, now_s=clock)
    await store.start()
    await store.put("t", "k", "a", b"x", ttl_s=100)
    opened[0].execute("PRAGMA query_only = ON")
    with pytest.raises(StoreUnavailable, match="cannot be written"):
        await store.put("t", "k", "a", b"y")
    clock.now_s += 90
    assert await store.get("t", "k", "a") == Stored(b"x", 1)
    opened[0].execute("PRAGMA query_only = OFF")
    assert await store.put("t", "k", "a", b"y") == 2
    await store.close()


async def test_file_locked_by_another_process_is_busy(file: Path) -> None:
    await filled(file)
    store = LocalStore(file, busy_timeout_s=0.01)
    await store.start()
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="busy"):
        await store.put("t", "k", "a", b"x")
    assert await store.get("t", "k", "0000") is not None
    other.execute("ROLLBACK")
    assert await store.put("t", "k", "a", b"x") == 1
    other.close()
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
    store = LocalStore(file)
    await store.start()
    changes = store.changes()
    blocker = sqlite3.connect(file, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    writing = asyncio.ensure_future(store.put("t", "k", "a", b"x"))
    await asyncio.sleep(0.05)
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
