"""The store in one SQLite file, which several programs on one machine may have open.

Owns the file: its checks, migrations, the one thread that writes, the threads that read, and the messages between processes.
Knows nothing of PostgreSQL. Start with `SqliteStore` here, then `writer`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import apsw

from askback.core.errors import AskbackError
from askback.core.queue import UNLIMITED, Shares, priority
from askback.core.runs import Run
from askback.store.base import Store
from askback.store.sql.connection import Connection
from askback.store.sql.readers import Readers
from askback.store.sqlite import errors as faults
from askback.store.sqlite.connection import Presence, SqliteConnection, open_reader, open_writer, refuse_unsound
from askback.store.sqlite.wake import Wake
from askback.store.sqlite.writer import Writer
from askback.store.turns import Room, Ticket

T = TypeVar("T")

CHECK_SEC = 5.0


class FileReaders(Readers[SqliteConnection]):
    def __init__(self, path: Path, presence: Presence) -> None:
        super().__init__(lambda: faults.closed(path))
        self._path = path
        self._presence = presence

    def open(self) -> SqliteConnection:
        self._refuse_absent()
        with faults.faults_of(self._path):
            return open_reader(self._path)

    def use(self, opened: SqliteConnection, work: Callable[[SqliteConnection], T], began: float) -> T:
        self._refuse_absent()
        with faults.faults_of(self._path, opened):
            return work(opened)

    def _refuse_absent(self) -> None:
        if (fault := self._presence.fault()) is not None:
            raise fault


class SqliteStore(Store):
    def __init__(self, path: Path, connection: SqliteConnection) -> None:
        """Use `open` instead."""
        super().__init__(lambda: faults.closed(path))
        self._path = path
        with faults.faults_of(path):
            self._wake = Wake.open(path.parent / "wake", self._listeners.notify_elsewhere)
        self._writer = Writer(connection, path, notify=self._notify, wake=self._wake.send, measure=self._measure)
        self.readers = FileReaders(path, self._writer.presence)
        self._closed = False

    @classmethod
    async def open(cls, path: Path) -> SqliteStore:
        """Open the store. If the file cannot be used, raises `Unavailable` and leaves it unchanged."""
        connection = await asyncio.to_thread(open_writer, path)
        try:
            return cls(path, connection)
        except (AskbackError, OSError):
            connection.close()
            raise

    async def close(self) -> None:
        """Finish pending writes, and leave nothing behind but the file."""
        if self._closed:
            return
        self._closed = True
        self._listeners.close()
        await self._writer.close()
        await self.readers.close()
        self._wake.close()

    async def read(self, work: Callable[[Connection], T]) -> T:
        return await self.readers.read(work)

    async def write(self, work: Callable[[Connection], T], run_id: str | None = None) -> T:
        return await self._writer.write(work)

    def turns(self, owners: Collection[str]) -> QueueView:
        return QueueView(self, owners)

    async def repair_queue(self) -> Sequence[str]:
        """Nothing: a place in the queue is a row that is written with its run."""
        return ()

    async def has_unshared_files(self) -> bool:
        """Always: the programs of one machine have the same files, so nobody marks them."""
        return True

    async def mark_files(self, *, shared: bool) -> None:
        """Nothing: see `has_unshared_files`."""

    async def check(self) -> str:
        return await self.readers.read(self._check)

    def _check(self, connection: SqliteConnection) -> str:
        give_up_at = time.monotonic() + CHECK_SEC
        connection.set_progress_handler(lambda: time.monotonic() > give_up_at, 1000)
        try:
            refuse_unsound(connection, self._path)
            extent = f"{connection.value(connection.sql['count_all_runs'])} runs"
        except apsw.InterruptError:
            extent = f"only partly checked, in {CHECK_SEC:g} s"
        finally:
            connection.set_progress_handler(None)
        mode = str(connection.pragma("journal_mode")).upper()
        size_mb = self._path.stat().st_size / 2**20
        return f"SQLite {apsw.sqlite_lib_version()}, {mode}, {extent}, {size_mb:.0f} MB"


class QueueView:
    """Implements `store.turns.Turns` for a queue without jobs: a claim takes the run out of it.

    A worker reads the queue once and then follows the changes that the store reports. That saves a read for every run that
    is queued and for every slot that becomes free.
    """

    def __init__(self, store: Store, owners: Collection[str]) -> None:
        self._store = store
        self._owners = owners
        self._fresh: list[Run] = []
        """Queued since the queue was last read, in order."""
        self._complete = False
        """Whether nothing but `_fresh` can be in the queue."""
        self._outdated = False
        """Whether the queue may have changed in an unknown way since the last read began."""
        self._read: set[tuple[str, int]] = set()
        """Ids and versions of the runs that were last read. Their changes may be reported after that."""

    def notify(self, changed: Mapping[str, Run | None]) -> bool:
        """Take changes of the store. Returns whether a run may have been queued."""
        if None in changed.values():
            self._complete, self._outdated = False, True
            return True
        queued = [run for run in changed.values() if run is not None and run.in_queue]
        self._fresh += [run for run in queued if run.owner in self._owners and (run.id, run.version) not in self._read]
        return bool(queued)

    async def take(self, room: Room) -> Sequence[Ticket]:
        runs = await self.heads(without_engines=room.full_engines, limit=room.total, shares=room.shares)
        return [Ticket(run=run) for run in runs]

    def claimed(self, ticket: Ticket) -> None:
        """Nothing: the run is not in the queue any more."""

    done = claimed

    def put_back(self, ticket: Ticket) -> None:
        self._complete, self._outdated = False, True

    async def tend(self, wake: Callable[[], None]) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        pass

    async def heads(self, *, without_engines: Collection[str], limit: int, shares: Shares = UNLIMITED) -> Sequence[Run]:
        """The runs to take next; empty if there are none. The claim refuses those that exceed the share of a token."""
        fresh, self._fresh = self._fresh, []
        if self._complete and not without_engines and len(fresh) <= limit:
            return sorted(fresh, key=priority, reverse=True)
        if self._complete and not fresh:
            return ()
        # Until the read is done, others rely on nothing. What is queued meanwhile is noted.
        self._complete, self._outdated = False, False
        runs = await self._store.queued(self._owners, without_engines=without_engines, limit=limit, shares=shares)
        self._read = {(run.id, run.version) for run in runs}
        self._fresh = [run for run in self._fresh if (run.id, run.version) not in self._read]
        self._complete = not (len(runs) == limit or runs.held_back or without_engines or self._outdated)
        return runs
