"""The threads that write, each with its own connection: one transaction for each write.

All writes of a run go through one thread, so that listeners are notified in the order of the commits.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import queue
import secrets
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import psycopg
from psycopg import errors as kinds

from askback.background.loops import start_thread
from askback.store.postgres import errors
from askback.store.postgres.connection import PostgresConnection
from askback.store.postgres.link import ConnectionLost, Link, Server
from askback.store.postgres.wake import message
from askback.store.sql.connection import Connection
from askback.store.sql.writes import Change

THREADS = 4
_MAX_COLLISIONS = 10

_RACES = (kinds.DeadlockDetected, kinds.SerializationFailure, kinds.UniqueViolation)
"""What another transaction at the same moment can cause. The write is decided again on what that one has left."""

T = TypeVar("T")
Work = Callable[[Connection], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    work: Work
    answer: asyncio.Future[Any]
    began: float


class Writers:
    """After a commit, `notify` is called in the event loop with the change and the time of the commit.

    `measure` gets the duration of every transaction, in the writer's thread.
    """

    def __init__(
        self,
        server: Server,
        *,
        name: str,
        notify: Callable[[Change, float], None],
        measure: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """`name` marks the notifications of this process."""
        self._server = server
        self._notify = notify
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._next = itertools.cycle(range(THREADS))
        self._queues = [queue.SimpleQueue[Job | None]() for _ in range(THREADS)]
        self._threads = [
            start_thread(self._run, jobs, Transactions(server, name, measure), name="askback-store-writer")
            for jobs in self._queues
        ]

    async def write(self, work: Callable[[Connection], T], run_id: str | None) -> T:
        if self._closed:
            raise errors.closed(self._server.address)
        job = Job(work=work, answer=self._loop.create_future(), began=time.monotonic())
        place = next(self._next) if run_id is None else zlib.crc32(run_id.encode()) % THREADS
        self._queues[place].put(job)
        answer: T = await job.answer
        return answer

    async def close(self) -> None:
        """Finish pending writes and end the threads."""
        if not self._closed:
            self._closed = True
            for jobs in self._queues:
                jobs.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    def _run(self, jobs: queue.SimpleQueue[Job | None], transactions: Transactions) -> None:
        while (job := jobs.get()) is not None:
            outcome: Any
            try:
                outcome = transactions.perform(job.work, job.began)
            except Exception as error:  # no error may end this thread: all later writes would wait forever
                outcome = error
            with contextlib.suppress(RuntimeError):  # the loop is closed, so nobody waits for an answer
                self._loop.call_soon_threadsafe(self._deliver, job, outcome, time.monotonic())
        transactions.close()

    def _deliver(self, job: Job, outcome: Any, committed_at: float) -> None:
        if not job.answer.done():
            if isinstance(outcome, Exception):
                job.answer.set_exception(outcome)
            else:
                job.answer.set_result(outcome)
        if isinstance(outcome, Change) and outcome.changed_id is not None:
            self._notify(outcome, committed_at)


class _OutcomeUnknown(Exception):
    """The connection was lost during COMMIT."""

    def __init__(self, result: Any, number: int) -> None:
        super().__init__(number)
        self.result = result
        self.number = number


class Transactions:
    """Performs writes one after the other. A write whose connection is lost is repeated, unless it was committed."""

    def __init__(self, server: Server, name: str, measure: Callable[[float], None]) -> None:
        self._server = server
        self._instance = name
        self._measure = measure
        self._writer = f"{name}-{secrets.token_hex(4)}"
        self._numbers = itertools.count(1)
        self._link = Link(server, self._register)

    def perform(self, work: Work, began: float) -> Any:
        """Raises what the write raises, and `Unavailable` if the database cannot be used."""
        collisions = 0
        while True:
            try:
                return self._server.retry_lost(lambda: self._attempt(work), began)
            except _RACES:
                collisions += 1
                if collisions > _MAX_COLLISIONS:
                    raise
            except psycopg.IntegrityError:
                raise
            except psycopg.Error as error:
                raise self._server.unavailable(error) from error

    def _attempt(self, work: Work) -> Any:
        try:
            return self._link.use(lambda connection: self._transaction(connection, work))
        except _OutcomeUnknown as unknown:
            # Waits until the transaction that was lost is over.
            which = {"writer": self._writer}
            last = self._server.retry_lost(lambda: self._link.use(lambda it: it.value(it.sql["last_committed"], which)))
            if last == unknown.number:
                return unknown.result
            raise ConnectionLost(psycopg.OperationalError("the connection was lost before COMMIT")) from unknown

    def _transaction(self, connection: PostgresConnection, work: Work) -> Any:
        began = time.monotonic()
        number = next(self._numbers)
        connection.execute("BEGIN")
        try:
            result = work(connection)
            notification = message(self._instance, result) if isinstance(result, Change) else None
            connection.execute(
                connection.sql["finish_transaction"], {"writer": self._writer, "mark": number, "text": notification}
            )
        except BaseException:
            connection.roll_back()
            raise
        try:
            connection.execute("COMMIT")
        except psycopg.Error as error:
            if not connection.is_lost_by(error):
                raise
            raise _OutcomeUnknown(result, number) from error
        self._measure(time.monotonic() - began)
        return result

    def _register(self, connection: PostgresConnection) -> None:
        """The row that `last_committed` waits for must be there before the first transaction."""
        connection.execute(connection.sql["register_writer"], {"writer": self._writer})
        connection.execute(connection.sql["forget_old_writers"])

    def close(self) -> None:
        if self._link.is_open:
            with contextlib.suppress(psycopg.Error, ConnectionLost):
                gone = {"writer": self._writer}
                self._link.use(lambda connection: connection.execute(connection.sql["forget_writer"], gone))
        self._link.close()
