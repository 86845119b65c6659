"""The table of records in SQLite. Synchronous; to be called from one thread at a time."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from adapters.stores.names import MAX_VERSION, Name
from sidecar.faults import Conflict, StoreUnavailable
from sidecar.ports import Stored

SCHEMA_VERSION = 1
"""What ``PRAGMA user_version`` says in a file that this module writes."""

APPLICATION_ID = 0x53646372
"""What ``PRAGMA application_id`` says in a file of ours (``Sdcr``)."""

SWEEP_EVERY_S = 60.0
"""Expired records are looked for at least this often, as long as the store is used."""

SWEEP_RECORDS = 1_000
"""Expired records deleted by one sweep at most."""

SWEEP_PER_WRITE = 8
"""Expired records that every write deletes at most: more than it adds, so they cannot pile up."""

_BUSY_TRIES = 20
_BUSY_PAUSE_S = 0.05

# SQLite keeps a value of any type in any column. Types are asked of it there: one text that is not UTF-8 would end
# the reading of all rows.
_SOUND_VERSION = f"""CASE WHEN typeof(version) = 'integer' AND version BETWEEN 1 AND {MAX_VERSION}
    THEN version ELSE 0 END"""
_SOUND = f"typeof(value) = 'blob' AND typeof(expires_s) IN ('null', 'real') AND {_SOUND_VERSION} > 0"
_GET = f"""SELECT CASE WHEN {_SOUND} THEN value ELSE x'' END, {_SOUND_VERSION} FROM records
    WHERE tenant = ? AND kind = ? AND key = ? AND (expires_s IS NULL OR expires_s > ?)"""  # noqa: S608  of constants
_VERSION = f"""SELECT {_SOUND_VERSION} FROM records
    WHERE tenant = ? AND kind = ? AND key = ? AND (expires_s IS NULL OR expires_s > ?)"""  # noqa: S608  of constants
_KEYS = """SELECT CAST(key AS BLOB) FROM records
    WHERE tenant = ? AND kind = ? AND typeof(key) = 'text' AND (expires_s IS NULL OR expires_s > ?) ORDER BY key"""
_HEADS = f"""SELECT CAST(key AS BLOB), {_SOUND_VERSION},
    coalesce(CASE WHEN {_SOUND} THEN substr(value, 1, ?) END, x'') FROM records
    WHERE tenant = ? AND kind = ? AND typeof(key) = 'text' AND (expires_s IS NULL OR expires_s > ?) ORDER BY key"""  # noqa: S608  of constants
_WRITE = """INSERT OR REPLACE INTO records (tenant, kind, key, version, expires_s, value)
    VALUES (?, ?, ?, ?, ?, ?)"""
_DELETE = "DELETE FROM records WHERE tenant = ? AND kind = ? AND key = ?"
_SWEEP = """DELETE FROM records WHERE rowid IN
    (SELECT rowid FROM records WHERE expires_s <= ? ORDER BY expires_s LIMIT ?)"""

_SCHEMA = (
    """CREATE TABLE records (
        tenant TEXT NOT NULL,
        kind TEXT NOT NULL,
        key TEXT NOT NULL,
        version INTEGER NOT NULL,
        expires_s REAL,
        value BLOB NOT NULL,
        PRIMARY KEY (tenant, kind, key)
    )""",
    "CREATE INDEX records_expiry ON records (expires_s) WHERE expires_s IS NOT NULL",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)


class Records:
    """Records by (tenant, kind, key), with versions and expiry by ``now_s``.

    A row whose columns are not of our types is damaged by itself: see ``sidecar.ports.Store``. One whose key is no
    text has no name and is passed over. Methods raise ``sqlite3.Error``, ``OSError`` or ``UnicodeError`` as they come;
    ``unavailable`` makes a fault of them.
    """

    def __init__(self, path: Path | None, *, now_s: Callable[[], float], max_bytes: int, busy_timeout_s: float) -> None:
        self._path = path
        self._now_s = now_s
        self._max_bytes = max_bytes
        self._busy_timeout_s = busy_timeout_s
        self._connection: sqlite3.Connection | None = None
        self._swept_s = 0.0

    def open(self) -> None:
        """Open the file, made if need be (for its owner only), or an empty store in memory.

        Raises ``StoreUnavailable`` for a file that is not ours or is newer than this program.
        """
        if self._path is not None:
            _make_private(self._path)
        connection = sqlite3.connect(
            ":memory:" if self._path is None else self._path.absolute(),
            timeout=self._busy_timeout_s,
            isolation_level=None,
            check_same_thread=False,
        )
        self._connection = connection
        try:
            self._set_up(connection)
            self._swept_s = self._now_s()
            with contextlib.suppress(sqlite3.Error):
                self._sweep(SWEEP_RECORDS)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file. Idempotent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def get(self, name: Name) -> Stored | None:
        """Return the living record."""
        self._sweep_if_due()
        row = self._db.execute(_GET, (*name, self._now_s())).fetchone()
        return None if row is None else Stored(*row)

    def put(self, name: Name, value: bytes, ttl_s: float | None) -> int:
        """Write in any case; returns the new version."""
        self._sweep_if_due()
        with self._transaction():
            return self._write(name, value, ttl_s, self._version(name))

    def swap(self, name: Name, value: bytes, ttl_s: float | None, expected: int | None) -> int:
        """Write if the living record's version is ``expected`` (None: there is none), else ``Conflict``."""
        self._sweep_if_due()
        with self._transaction():
            version = self._version(name)
            if version != expected:
                raise Conflict("The record was changed by somebody else.")
            return self._write(name, value, ttl_s, version)

    def delete(self, name: Name) -> bool:
        """Delete the record; False if there was no living one."""
        self._sweep_if_due()
        with self._transaction():
            alive = self._version(name) is not None
            self._db.execute(_DELETE, name)
            return alive

    def keys(self, tenant: str, kind: str) -> list[str]:
        """Return the keys of all living records, sorted by code point."""
        self._sweep_if_due()
        rows = self._db.execute(_KEYS, (tenant, kind, self._now_s()))
        return [key for (raw,) in rows if (key := _text(raw)) is not None]

    def heads(self, tenant: str, kind: str, head_bytes: int) -> list[tuple[str, Stored]]:
        """Return all living records, sorted by code point, each value cut to its first ``head_bytes``."""
        self._sweep_if_due()
        rows = self._db.execute(_HEADS, (head_bytes, tenant, kind, self._now_s()))
        return [(key, Stored(head, version)) for raw, version, head in rows if (key := _text(raw)) is not None]

    @property
    def _db(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StoreUnavailable("The store is not open.")
        return self._connection

    def _version(self, name: Name) -> int | None:
        """That of the living record; 0 if it is damaged."""
        row = self._db.execute(_VERSION, (*name, self._now_s())).fetchone()
        return None if row is None else int(row[0])

    def _write(self, name: Name, value: bytes, ttl_s: float | None, version: int | None) -> int:
        # First: the pages that this frees may be the ones that are needed.
        self._sweep(SWEEP_PER_WRITE)
        new_version = (version or 0) % MAX_VERSION + 1
        expires_s = None if ttl_s is None else self._now_s() + ttl_s
        self._db.execute(_WRITE, (*name, new_version, expires_s, value))
        return new_version

    def _sweep_if_due(self) -> None:
        now_s = self._now_s()
        if 0.0 <= now_s - self._swept_s < SWEEP_EVERY_S:
            return
        self._swept_s = now_s
        # A store that can only be read still answers.
        with contextlib.suppress(sqlite3.Error):
            self._sweep(SWEEP_RECORDS)

    def _sweep(self, records: int) -> None:
        self._db.execute(_SWEEP, (self._now_s(), records))

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
            raise

    def _set_up(self, connection: sqlite3.Connection) -> None:
        _use_wal(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        # What was deleted (a voice, a dialog) shall not linger in free pages.
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA journal_size_limit = 16777216")
        page_bytes = connection.execute("PRAGMA page_size").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {max(1, self._max_bytes // page_bytes)}")
        if not _is_ours(connection):
            with self._transaction():
                # Another process may have been faster.
                if not _is_ours(connection):
                    for statement in _SCHEMA:
                        connection.execute(statement)


def unavailable(error: sqlite3.Error | OSError | UnicodeError) -> StoreUnavailable:
    """Return the fault for ``error``; its message names the cause but no path."""
    if isinstance(error, OSError):
        return StoreUnavailable("The store cannot be opened.")
    if isinstance(error, UnicodeError):
        # Text in a damaged file, even as part of SQLite's own message about it.
        return StoreUnavailable(_DAMAGED)
    # The low byte is the kind of error, the rest its details.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    return StoreUnavailable(_REASONS.get(code, "The store does not answer."))


_DAMAGED = "The store's file is damaged."

_REASONS = {
    sqlite3.SQLITE_FULL: "The store is full.",
    sqlite3.SQLITE_READONLY: "The store cannot be written.",
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_BUSY: "The store is busy.",
    sqlite3.SQLITE_LOCKED: "The store is busy.",
    sqlite3.SQLITE_CANTOPEN: "The store cannot be opened.",
    sqlite3.SQLITE_PERM: "The store cannot be opened.",
}


def _text(raw: bytes) -> str | None:
    """A key; None for bytes that no key can be."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def _make_private(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Never touch an existing file: closing it would drop the locks that this process holds on it.
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _use_wal(connection: sqlite3.Connection) -> None:
    for left in reversed(range(_BUSY_TRIES)):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            # Two processes that start at once: for this pragma SQLite does not always wait by itself.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or not left:
                raise
            time.sleep(_BUSY_PAUSE_S)
        else:
            return


def _is_ours(connection: sqlite3.Connection) -> bool:
    """True if the schema is there, False if the file is empty; raises ``StoreUnavailable`` otherwise."""
    application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application_id == APPLICATION_ID:
        if version > SCHEMA_VERSION:
            raise StoreUnavailable("The store was written by a newer version of this program; update this one.")
        return True
    if application_id or version or connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
        raise StoreUnavailable("The store's file belongs to another program.")
    return False
