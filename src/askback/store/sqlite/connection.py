"""Connections to the database file: checks before opening, setup, and migrations.

A file that is not ours, damaged or too new is left unchanged, byte for byte.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import apsw

from askback.core.errors import RefusalCode, Unavailable
from askback.core.queue import party, priority
from askback.core.runs import Run
from askback.store.sql import connection as shared
from askback.store.sql import rows
from askback.store.sql.connection import Connection, Values
from askback.store.sqlite import errors

T = TypeVar("T")

APPLICATION_ID = 0x41736B42
MOVED_ID = 0x41736B4D
"""Of a file that was imported into another database. Earlier versions refuse it as that of another program."""
PATIENCE_MS = 30_000
"""How long to wait for another process that has locked the file."""

_MAGIC = b"SQLite format 3\x00"
_CHECKED_BYTES = 4 * 2**20
"""A file up to this size is checked completely when it is opened, in about 10 ms. The pages of a larger one are checked
as they are read."""
_CHECKED_WITH_LOG_BYTES = 64 * 2**20
"""The same if there is a log: the last program crashed, or the file was replaced."""


_FOLDER = files("askback.store.sqlite").joinpath("sql")
DIALECT = shared.Dialect(_FOLDER)


@cache
def migrations() -> tuple[str, ...]:
    return shared.migrations(_FOLDER.joinpath("migrations"))


class QueueRows:
    """Rows of the table `queue`, one for every run that is queued. Implements `store.sql.connection.QueueWriter`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, number: int, run: Run) -> None:
        row = {"run": number, "owner": run.owner, "engine": run.engine, "priority": int(priority(run))}
        self._connection.execute(self._connection.sql["enqueue"], row | {"party": party(run)})

    def remove(self, number: int, before: Run, *, claimed: bool) -> None:
        self._connection.execute(self._connection.sql["dequeue"], {"run": number})
        if claimed:
            served = {"party": party(before), "priority": int(priority(before))}
            self._connection.execute(self._connection.sql["serve"], served)

    def hand_over(self, number: int, run: Run) -> None:
        self._connection.execute(self._connection.sql["hand_over"], {"run": number, "owner": run.owner})

    def forget(self, run_id: str) -> None:
        """Nothing: a run that may be deleted is not queued."""


class SqliteConnection(apsw.Connection):
    """Implements `store.sql.Connection`."""

    @property
    def sql(self) -> Mapping[str, str]:
        return DIALECT.sql

    @property
    def queue(self) -> QueueRows:
        return QueueRows(self)

    def fetch(self, sql: str, values: Values | None = None) -> list[Any]:
        """Fetch all rows at once: an unfinished statement would prevent checkpoints of the log."""
        found: list[Any] = self.execute(sql, values).fetchall()
        return found

    def fetch_page(self, sql: str, values: Values, *, size: int, max_bytes: int) -> tuple[list[Any], bool]:
        with closing(self.execute(sql, values)) as cursor:
            return shared.first_rows(cursor, size=size, max_bytes=max_bytes)

    def value(self, sql: str, values: Values | None = None) -> Any:
        return self.execute(sql, values).get

    def exclude_others(self, what: str) -> None:
        """Nothing: only one transaction writes at a time."""


def open_writer(path: Path, scripts: Sequence[str] | None = None) -> SqliteConnection:
    """The connection that writes. Creates the file if needed, and migrates its schema."""
    scripts = migrations() if scripts is None else scripts
    with errors.faults_of(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _refuse_unfit(path)
        if not path.exists():
            # Questions and answers are private to this user. SQLite gives its other files the same mode.
            path.touch(mode=0o600)
        connection = _connect(path)
    try:
        with errors.faults_of(path, connection):
            empty = _refuse_foreign(connection, path, len(scripts))
            _refuse_damaged(connection, path, empty=empty)
            _retry_busy(lambda: connection.pragma("journal_mode", "wal"))
            _migrate(connection, scripts)
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
    except BaseException:
        connection.close()
        raise
    return connection


def open_existing(path: Path, first: str, check: Callable[[SqliteConnection], None]) -> SqliteConnection:
    """A connection to a file that exists and is not migrated. `first` is executed before the file is read, and `check` is
    called before any of its tables is."""
    with errors.faults_of(path):
        _refuse_unfit(path)
        connection = _connect(path, apsw.SQLITE_OPEN_READWRITE, first=first)
    try:
        with errors.faults_of(path, connection):
            empty = _refuse_foreign(connection, path, len(migrations()))
            check(connection)
            _refuse_damaged(connection, path, empty=empty)
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(path: Path) -> SqliteConnection:
    # Without SQLITE_OPEN_CREATE: if the file has been removed, there is nothing to read.
    connection = _connect(path, apsw.SQLITE_OPEN_READWRITE)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
    connection.pragma("query_only", True)
    return connection


def _connect(
    path: Path, flags: int = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE, first: str = ""
) -> SqliteConnection:
    connection = SqliteConnection(os.fspath(path), flags=flags)
    connection.execute(first)
    # Closing must not checkpoint the log into a file that may turn out not to be ours.
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.set_busy_timeout(PATIENCE_MS)
    # A file may have been prepared by somebody else: its schema calls no function that could do harm.
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.create_scalar_function("mentions", rows.mentions, 2, deterministic=True)
    connection.execute("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA journal_size_limit = 16777216")
    # Deleted content must not remain in the free part of a page. What a failed statement would undo stays in memory.
    connection.execute("PRAGMA secure_delete = FAST; PRAGMA temp_store = MEMORY")
    return connection


def _refuse_unfit(path: Path) -> None:
    """Check the file without SQLite, which may write to a file just by opening it."""
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise errors.read_only(path)
    if not path.exists():
        if _log_size(path):
            # SQLite would delete the log, which may hold changes that a backup of the database lacks.
            raise errors.corrupt(path, "it is missing, but its log is there")
        return
    if not os.access(path, os.W_OK):
        raise errors.read_only(path)
    with path.open("rb") as file:
        head = file.read(len(_MAGIC))
    if head and head != _MAGIC:
        raise errors.corrupt(path, "it does not start with an SQLite header")
    if not head and _log_size(path):
        raise errors.corrupt(path, "it is empty, but its log is not")


def _log_size(path: Path) -> int:
    log = path.with_name(path.name + "-wal")
    return log.stat().st_size if log.exists() else 0


def _refuse_foreign(connection: SqliteConnection, path: Path, known: int) -> bool:
    """Refuse a file that this version must not use, without reading its tables. Returns whether the file is empty."""
    found = _retry_busy(lambda: int(connection.pragma("user_version")))
    empty = connection.execute("SELECT count(*) = 0 FROM sqlite_schema").get
    application_id = connection.pragma("application_id")
    if application_id == MOVED_ID:
        raise errors.moved(path)
    if not empty and application_id != APPLICATION_ID:
        raise errors.foreign(path)
    if found > known:
        raise errors.newer(path, found, known)
    return bool(empty)


def _refuse_damaged(connection: SqliteConnection, path: Path, *, empty: bool) -> None:
    with_log = _log_size(path) > 0
    if with_log and not empty and not _belongs(connection, path):
        raise errors.corrupt(path, "its log belongs to another database")
    if path.stat().st_size <= (_CHECKED_WITH_LOG_BYTES if with_log else _CHECKED_BYTES):
        refuse_unsound(connection, path)


def _belongs(connection: SqliteConnection, path: Path) -> bool:
    """Whether the log belongs to this database: a run must have the same number with and without the log."""
    sql = "SELECT number, id FROM runs ORDER BY number LIMIT 1"
    address = f"file:{quote(os.fsencode(path))}?immutable=1"
    without_log = SqliteConnection(address, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    try:
        first = without_log.fetch(sql)
    except apsw.Error:
        # The database is still being created: there is nothing to compare with.
        return True
    finally:
        without_log.close()
    return all(connection.fetch("SELECT id FROM runs WHERE number = ?", row[:1]) in ([], [row[1:]]) for row in first)


def refuse_unsound(connection: SqliteConnection, path: Path) -> None:
    verdict = connection.execute("PRAGMA quick_check(1)").get
    if verdict != "ok":
        raise errors.corrupt(path, str(verdict).strip())


def _migrate(connection: SqliteConnection, scripts: Sequence[str]) -> None:
    if connection.pragma("user_version") == len(scripts):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for script in scripts[int(connection.pragma("user_version")) :]:
            connection.execute(script)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {len(scripts)}; COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _retry_busy(attempt: Callable[[], T]) -> T:
    """Retry while the file is busy: SQLite's own timeout does not apply while another program switches it to WAL."""
    give_up_at = time.monotonic() + PATIENCE_MS / 1000
    while True:
        try:
            return attempt()
        except apsw.BusyError:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(0.01)


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    path: Path
    files: tuple[tuple[str, tuple[int, int]], ...]
    """Every file by name, with its device and inode at the time of opening."""

    @classmethod
    def of(cls, path: Path) -> Presence:
        """Call this while the database is open: only then do the log and its index stay the same files."""
        names = [os.fspath(path) + suffix for suffix in ("", "-wal", "-shm")]
        found = [(name, _identity(name)) for name in names]
        return cls(path=path, files=tuple((name, known) for name, known in found if known is not None))

    def missing(self) -> str | None:
        """The first file that was removed or replaced."""
        return next((name for name, known in self.files if _identity(name) != known), None)

    def fault(self) -> Unavailable | None:
        name = self.missing()
        if name is None:
            return None
        what = "is gone" if not os.path.lexists(name) else "was replaced"
        message = (
            f"{name} {what}: it is not the file that this program opened, so nothing more is stored;"
            " stop every program on this data folder, put the file back or restore a backup, and start again"
        )
        return Unavailable(RefusalCode.STORE_UNUSABLE, message)

    @property
    def only_log_is_gone(self) -> bool:
        """Whether only the log was removed: its open copy can still be checkpointed into the database."""
        return self.missing() == f"{self.path}-wal" and not os.path.lexists(f"{self.path}-wal")


def _identity(name: str) -> tuple[int, int] | None:
    try:
        # Six times for every commit, and a path object would take longer than the call.
        status = os.stat(name)  # noqa: PTH116
    except OSError:
        return None
    return status.st_dev, status.st_ino
