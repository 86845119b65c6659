"""LocalStore on bad files and bad disks."""

import os
import random
import sqlite3
from pathlib import Path

import pytest

from adapters.stores.local import LocalStore
from adapters.stores.records import APPLICATION_ID, SCHEMA_VERSION
from sidecar.clock import SystemClock
from sidecar.faults import Conflict, DamagedVoice, Fault, StoreUnavailable
from sidecar.ports import Stored
from sidecar.voice_library import VoiceLibrary
from tests.adapters.stores.helpers import HandClock, content, count, filled, protect, replace, run_script
from tests.voices.records import record


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "kept" / "store.db"


# ---------------------------------------------------------------- bad files and disks
def safe(fault: Fault, file: Path) -> bool:
    return str(file) not in fault.message and file.name not in fault.message and "/" not in fault.message


@pytest.mark.parametrize("content", [b"not a database, but text" * 500, bytes(100), random.Random(1).randbytes(9_000)])
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


DAMAGE = {
    "text for a value": ("value = 'hello'", 2),
    "number for a value": ("value = 7", 2),
    "text that is not UTF-8": ("value = CAST(x'ff00' AS TEXT)", 2),
    "word for a version": ("version = 'abc'", 0),
    "version that is not UTF-8": ("version = CAST(x'ff' AS TEXT)", 0),
    "negative version": ("version = -3", 0),
    "version 0": ("version = 0", 0),
    "half a version": ("version = 1.5", 0),
    "largest integer": ("version = 9223372036854775807", 0),
    "word for an expiry": ("expires_s = 'soon'", 2),
}
"""What may happen to a row of version 2, and the version that it has then."""


def execute(file: Path, statement: str) -> None:
    connection = sqlite3.connect(file)
    connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_damaged_row_harms_nobody_else_and_can_be_repaired(file: Path, damage: str) -> None:
    change, version = DAMAGE[damage]
    store = LocalStore(file)
    await store.start()

    async def damaged() -> None:
        await store.delete("t", "k", "a")
        await store.put("t", "k", "a", b"1")
        await store.put("t", "k", "a", b"2")
        execute(file, f"UPDATE records SET {change} WHERE key = 'a'")

    await store.put("t", "k", "b", b"whole")
    await damaged()
    assert await store.get("t", "k", "a") == Stored(b"", version)
    assert await store.keys("t", "k") == ["a", "b"]
    assert await store.heads("t", "k", 9) == [("a", Stored(b"", version)), ("b", Stored(b"whole", 1))]
    for seen in (None, 1, 3):
        with pytest.raises(Conflict):
            await store.swap("t", "k", "a", b"no", seen)
    assert await store.swap("t", "k", "a", b"ours", version) == version + 1
    assert await store.get("t", "k", "a") == Stored(b"ours", version + 1)

    await damaged()
    assert await store.put("t", "k", "a", b"put") == version + 1
    assert await store.get("t", "k", "a") == Stored(b"put", version + 1)

    await damaged()
    assert await store.delete("t", "k", "a") is True
    assert await store.keys("t", "k") == ["b"]
    assert await store.swap("t", "k", "a", b"new", None) == 1
    await store.close()


@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_damaged_row_costs_a_tenant_one_voice(file: Path, damage: str) -> None:
    store = LocalStore(file)
    await store.start()
    library = VoiceLibrary(store, SystemClock())
    for name in ("anna", "bert"):
        await library.save(record(name=name), None)
    execute(file, f"UPDATE records SET {DAMAGE[damage][0]} WHERE key = 'anna'")
    assert [card.name for card in await library.cards("local")] == ["bert"]
    with pytest.raises(DamagedVoice):
        await library.get("local", "anna")
    assert await library.get("local", "bert") is not None
    outcome = await library.save_all("local", [record(name="anna"), record(name="carl")], True)
    assert outcome == {"anna": None, "carl": None}
    assert [card.name for card in await library.cards("local")] == ["anna", "bert", "carl"]
    execute(file, f"UPDATE records SET {DAMAGE[damage][0]} WHERE key = 'anna'")
    await library.delete("local", "anna")
    assert await library.get("local", "anna") is None
    await store.close()


@pytest.mark.parametrize("key", ["x'ff'", "CAST(x'ff' AS TEXT)", "CAST(x'eda080' AS TEXT)"])
async def test_a_row_whose_key_is_no_text_is_passed_over(file: Path, key: str) -> None:
    await filled(file, records=3)
    execute(file, f"UPDATE records SET key = {key} WHERE key = '0001'")
    store = LocalStore(file)
    await store.start()
    assert await store.keys("t", "k") == ["0000", "0002"]
    assert [listed for listed, _ in await store.heads("t", "k", 9)] == ["0000", "0002"]
    assert await store.put("t", "k", "0001", b"again") == 1
    await store.close()


async def test_a_version_at_its_end_begins_anew(file: Path) -> None:
    await filled(file, records=1)
    execute(file, "UPDATE records SET version = 9007199254740991")
    store = LocalStore(file)
    await store.start()
    assert await store.swap("t", "k", "0000", b"x", 9_007_199_254_740_991) == 1
    await store.close()


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
