"""For the tests of LocalStore: a clock by hand, and what is done to files."""

import asyncio
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

from adapters.stores.local import LocalStore


class HandClock:
    now_s = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now_s


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


async def run_script(script: str, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return out.decode()
