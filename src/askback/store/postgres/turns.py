"""The turns of a worker, from the jobs of Procrastinate.

A fetched job belongs to this worker until the claim of its run has removed it, or a separate task has finished it or put it
back; the worker never waits for that task.
A job that is this worker's without its knowledge was fetched by a statement whose answer was lost.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import psycopg
from procrastinate.connector import BaseAsyncConnector
from procrastinate.jobs import Status
from procrastinate.manager import JobManager
from psycopg import errors as kinds
from psycopg.rows import dict_row

from askback.background.outages import OUTAGES
from askback.core.errors import NotFound, Unavailable, is_temporary, shortage
from askback.core.queue import Shares
from askback.core.runs import Run
from askback.store.base import Store
from askback.store.postgres.connection import PostgresConnection
from askback.store.postgres.jobs import lane, return_job
from askback.store.postgres.link import Link, Server
from askback.store.sql.connection import Values
from askback.store.sql.reads import share_values
from askback.store.turns import Room, Ticket

T = TypeVar("T")
Row = dict[str, Any]

log = logging.getLogger(__name__)

_POLL_SEC = 2.0
"""How often the queue is looked at although nobody has reported a change."""
_POLLS_PER_AUDIT = 2
_CLOSE_SEC = 10.0


class Connector(BaseAsyncConnector):
    """Procrastinate's way to the database: a thread with one connection, which is opened again after it was lost.

    A statement is repeated if its connection is lost, also if it may have been committed.

    Raises `Unavailable` if the server cannot be reached, and otherwise the errors of psycopg.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._link = Link(server)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="askback-store-queue")

    async def execute_query_async(self, query: str, **arguments: Any) -> None:
        await self._perform(lambda connection: connection.raw.execute(query.encode(), arguments) and None)

    async def execute_query_one_async(self, query: str, **arguments: Any) -> Row:
        return (await self.execute_query_all_async(query, **arguments))[0]

    async def execute_query_all_async(self, query: str, **arguments: Any) -> list[Row]:
        def fetch(connection: PostgresConnection) -> list[Row]:
            with connection.raw.cursor(row_factory=dict_row) as cursor:
                return cursor.execute(query.encode(), arguments).fetchall()

        return await self._perform(fetch)

    async def fetch(self, name: str, values: Values) -> list[Any]:
        """The rows of one of our own statements."""
        return await self._perform(lambda connection: connection.fetch(connection.sql[name], values))

    async def close_async(self) -> None:
        await asyncio.to_thread(self._thread.shutdown)
        self._link.close()

    async def _perform(self, work: Callable[[PostgresConnection], T]) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(
                self._thread, lambda: self._server.retry_lost(lambda: self._link.use(work))
            )
        except RuntimeError as error:
            if not is_temporary(error):
                raise
            raise shortage(error) from error


class JobTurns:
    """Implements `store.turns.Turns`."""

    def __init__(self, server: Server, store: Store, owners: Collection[str]) -> None:
        self._server = server
        self._store = store
        self._owners = owners
        self._connector = Connector(server)
        self._jobs = JobManager(self._connector)
        self._fetcher: int | None = None
        """Our number among the workers of Procrastinate."""
        self._known: set[int] = set()
        """The jobs that were fetched and are not finished."""
        self._finished: list[int] = []
        self._returned: list[tuple[int, str]] = []
        self._given_back = asyncio.Event()
        self._suspects: frozenset[int] = frozenset()

    def notify(self, changed: Mapping[str, Run | None]) -> bool:
        return any(run is None or run.in_queue for run in changed.values())

    # Taking.

    async def take(self, room: Room) -> Sequence[Ticket]:
        found: list[Ticket] = []
        free = dict(room.engines)
        try:
            while len(found) < room.total:
                engines = [engine for engine, left in free.items() if left > 0]
                ticket = await self._next(engines, room.shares)
                if ticket is None:
                    break
                found.append(ticket)
                free[ticket.run.engine] -= 1
        except Unavailable:
            if not found:
                raise
        return found

    async def _next(self, engines: Sequence[str], shares: Shares) -> Ticket | None:
        """The first job of these engines that is worth something. Outdated ones are dropped."""
        lanes = {lane(owner, engine): engine for owner in self._owners for engine in engines}
        wanted = {"lanes": json.dumps(lanes), **share_values(shares)}
        while lanes and (job := await self._fetch(wanted)) is not None:
            number, run_id, epoch = job
            self._known.add(number)
            if (ticket := await self._ticket(number, run_id, epoch)) is not None:
                return ticket
        return None

    async def _fetch(self, wanted: Mapping[str, object]) -> tuple[int, str, int] | None:
        """The number of a job, its run and its epoch."""
        for _ in range(2):
            if self._fetcher is None:
                self._fetcher = await self._call(self._jobs.register_worker())
            try:
                found = await self._call(self._connector.fetch("fetch_job", {**wanted, "fetcher": self._fetcher}))
                return found[0] if found else None
            except kinds.ForeignKeyViolation:
                # Somebody has removed the row of this worker.
                self._fetcher = None
        return None

    async def _ticket(self, number: int, run_id: str, epoch: int) -> Ticket | None:
        try:
            run = await self._store.get(run_id)
        except NotFound:
            self._finish(number)
            return None
        except BaseException:
            self._return(number, run_id)
            raise
        if not run.in_queue or run.epoch != epoch:
            self._finish(number)
            return None
        if run.owner not in self._owners:
            self._return(number, run_id)
            return None
        return Ticket(run=run, job=number)

    async def _call(self, answer: Awaitable[T]) -> T:
        try:
            return await answer
        except kinds.ForeignKeyViolation:
            raise
        except psycopg.Error as error:
            raise self._server.unavailable(error) from error

    # Giving back.

    def claimed(self, ticket: Ticket) -> None:
        """The claim has removed the job."""
        assert ticket.job is not None
        self._known.discard(ticket.job)

    def done(self, ticket: Ticket) -> None:
        assert ticket.job is not None
        self._finish(ticket.job)

    def put_back(self, ticket: Ticket) -> None:
        assert ticket.job is not None
        self._return(ticket.job, ticket.run.id)

    def _finish(self, job: int) -> None:
        self._finished.append(job)
        self._given_back.set()

    def _return(self, job: int, run_id: str) -> None:
        self._returned.append((job, run_id))
        self._given_back.set()

    async def tend(self, wake: Callable[[], None]) -> None:
        polls = 0
        while True:
            try:
                async with asyncio.timeout(_POLL_SEC):
                    await self._given_back.wait()
            except TimeoutError:
                polls += 1
                wake()
            try:
                await self._settle()
                if polls >= _POLLS_PER_AUDIT:
                    polls = 0
                    await self._audit()
            except Unavailable as error:
                OUTAGES.failed(log, "jobs of the queue cannot be finished yet", error)
                await asyncio.sleep(_POLL_SEC)

    async def _settle(self) -> None:
        """Finish or put back what was given back. What fails is left for the next time."""
        self._given_back.clear()
        while self._finished:
            job = self._finished[0]
            await self._finish_now(job)
            self._finished.remove(job)
            self._known.discard(job)
        while self._returned:
            job, run_id = self._returned[0]
            await self._put_back_now(job, run_id)
            self._returned.remove((job, run_id))
            self._known.discard(job)

    async def _finish_now(self, job: int) -> None:
        try:
            await self._jobs.finish_job_by_id_async(job, Status.SUCCEEDED, delete_job=True)
        except kinds.RaiseException:
            # It is gone: the run was deleted, or another program has found that nobody works on it.
            log.debug("a job is finished already", extra={"job": job})
        except psycopg.Error as error:
            raise self._server.unavailable(error) from error

    async def _put_back_now(self, job: int, run_id: str) -> None:
        await self._store.write(lambda connection: return_job(connection, job), run_id)

    async def _audit(self) -> None:
        """Put back what has been ours twice without our knowledge: once could be a fetch that is under way."""
        if self._fetcher is None:
            return
        await self._call(self._jobs.update_heartbeat(self._fetcher))
        fetcher = {"fetcher": self._fetcher}
        ours = await self._store.read(lambda it: it.fetch(it.sql["fetched_by"], fetcher))
        strange = {job: run_id for job, run_id in ours if job not in self._known}
        for job in self._suspects & strange.keys():
            log.warning("a job was fetched without an answer; it is put back", extra={"run": strange[job]})
            await self._put_back_now(job, strange[job])
        self._suspects = frozenset(strange)

    async def close(self) -> None:
        try:
            async with asyncio.timeout(_CLOSE_SEC):
                await self._settle()
                if self._fetcher is not None:
                    await self._call(self._jobs.unregister_worker(self._fetcher))
        except (Unavailable, TimeoutError) as error:
            log.warning("jobs of the queue are left to the next program: %s", error)
        await self._connector.close_async()
