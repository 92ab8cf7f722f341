"""The only thread that writes: all waiting writes share one transaction and one fsync.

Each of several writes has its own savepoint, so a failed write does not affect the others. Callers are answered after the
commit, and listeners are notified after the callers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import apsw

from askback.background.loops import start_thread
from askback.store.sql.connection import Connection
from askback.store.sql.writes import Change
from askback.store.sqlite import errors
from askback.store.sqlite.connection import Presence, SqliteConnection

T = TypeVar("T")

MAX_BATCH = 256
CHECKPOINT_PAGES = 1000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    work: Callable[[Connection], Any]
    answer: asyncio.Future[Any]


Settled = tuple[Job, Any]
"""A job with its result, or with its error: an `Exception`."""


class TransactionLost(Exception):
    """SQLite has rolled back the whole transaction, including the other writes in it."""


class Writer:
    """After a commit, `notify` is called in the event loop with each change and the time of the commit, on the monotonic
    clock, and `wake` in the writer's thread.

    `measure` gets the duration of every commit, in the writer's thread.
    """

    def __init__(
        self,
        connection: SqliteConnection,
        path: Path,
        *,
        notify: Callable[[Change, float], None],
        wake: Callable[[Collection[str]], None],
        measure: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self._connection = connection
        self._path = path
        self.presence = Presence.of(path)
        self._lost = False
        self._notify = notify
        self._wake = wake
        self._measure = measure
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._log_pages = 0
        self._closed = False

        def record_log(connection: apsw.Connection, database: str, pages: int) -> int:
            self._log_pages = pages
            return apsw.SQLITE_OK

        connection.set_wal_hook(record_log)
        self._thread = start_thread(self._run, name="askback-store-writer")

    async def write(self, work: Callable[[Connection], T]) -> T:
        if self._closed:
            raise errors.closed(self._path)
        job = Job(work=work, answer=self._loop.create_future())
        self._jobs.put(job)
        answer: T = await job.answer
        return answer

    async def close(self) -> None:
        """Finish pending writes and end the thread."""
        if not self._closed:
            self._closed = True
            self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        open_ = True
        while open_:
            batch, open_ = self._take()
            if batch:
                self._answer(self._settle(batch))
                self._checkpoint()
        self._connection.set_busy_timeout(0)
        with contextlib.suppress(apsw.Error):
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        self._connection.close()

    def _take(self) -> tuple[list[Job], bool]:
        """All jobs that are waiting, and whether there will be more."""
        batch: list[Job] = []
        with contextlib.suppress(queue.Empty):
            while len(batch) < MAX_BATCH:
                job = self._jobs.get(block=not batch)
                if job is None:
                    return batch, False
                batch.append(job)
        return batch, True

    # Inside the transaction.

    def _settle(self, batch: Sequence[Job]) -> Sequence[Settled]:
        try:
            return self._commit(batch)
        except Exception as error:  # no error may end this thread: all later writes would wait forever
            if len(batch) == 1:
                return [
                    (batch[0], self._public_error(error.__cause__ if isinstance(error, TransactionLost) else error))
                ]
        # One write may be too large for the disk: try each in its own transaction.
        return [settled for job in batch for settled in self._settle([job])]

    def _commit(self, batch: Sequence[Job]) -> Sequence[Settled]:
        if (fault := self._fault()) is not None:
            return [(job, fault) for job in batch]
        began = time.monotonic()
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except apsw.Error as error:
            return [(job, self._public_error(error)) for job in batch]
        try:
            settled = [(job, self._attempt(job.work, alone=len(batch) == 1)) for job in batch]
            if self._connection.in_transaction:
                self._connection.execute("COMMIT")
            self._measure(time.monotonic() - began)
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        # Check again: a write to a file that was removed meanwhile must not be reported as stored.
        if (fault := self._fault()) is not None:
            return [(job, fault) for job in batch]
        return settled

    def _fault(self) -> Exception | None:
        """Why nothing can be stored now. Logged once, when it starts."""
        fault = self.presence.fault()
        if fault is not None and not self._lost:
            log.error("%s", fault.message)
            if self.presence.only_log_is_gone:
                with contextlib.suppress(apsw.Error):
                    self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        self._lost = fault is not None
        return fault

    def _attempt(self, work: Callable[[Connection], Any], *, alone: bool) -> Any:
        """`alone`: it is the only write of the transaction, which is rolled back with it."""
        if not alone:
            self._connection.execute("SAVEPOINT one")
        try:
            result = work(self._connection)
        except Exception as error:  # any error goes to the caller of this write
            if not self._connection.in_transaction:
                raise TransactionLost from error
            self._connection.execute("ROLLBACK" if alone else "ROLLBACK TO one; RELEASE one")
            return self._public_error(error)
        if not alone:
            self._connection.execute("RELEASE one")
        return result

    def _public_error(self, error: BaseException | None) -> Exception:
        """Errors of the database file become `Unavailable`; others are unchanged."""
        if isinstance(error, apsw.Error) and not isinstance(error, apsw.ConstraintError):
            public = errors.unavailable(error, self._path, self._connection)
            public.__cause__ = error
            return public
        return error if isinstance(error, Exception) else RuntimeError(repr(error))

    # After the commit.

    def _answer(self, settled: Sequence[Settled]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, so nobody waits for an answer
            self._loop.call_soon_threadsafe(self._deliver, settled, time.monotonic())
        changes = (outcome for _, outcome in settled if isinstance(outcome, Change))
        if changed := {change.changed_id for change in changes if change.changed_id is not None}:
            self._wake(changed)

    def _deliver(self, settled: Sequence[Settled], committed_at: float) -> None:
        for job, outcome in settled:
            if job.answer.done():
                continue
            if isinstance(outcome, Exception):
                job.answer.set_exception(outcome)
            else:
                job.answer.set_result(outcome)
        for _, outcome in settled:
            if isinstance(outcome, Change) and outcome.changed_id is not None:
                self._notify(outcome, committed_at)

    # The log.

    def _checkpoint(self) -> None:
        """Checkpoint the log after the callers have been answered. Passive, so it does not wait for readers."""
        if self._log_pages < CHECKPOINT_PAGES:
            return
        self._log_pages = 0
        try:
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error as error:
            log.warning("checkpoint postponed", extra={"error": str(error)})
