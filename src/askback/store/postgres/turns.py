"""The turns of a worker, from the jobs of Procrastinate.

A job that was fetched belongs to this worker until it is finished or put back. A separate task does that: a worker never
waits for that. A job that is this worker's without its knowledge was fetched by a statement whose answer was lost.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeVar

import psycopg
from procrastinate.jobs import Status
from procrastinate.manager import JobManager
from psycopg import errors as kinds

from askback.background.outages import OUTAGES
from askback.core.errors import NotFound, Unavailable
from askback.core.queue import Shares
from askback.core.runs import Run, RunState
from askback.store.postgres.connector import Connector
from askback.store.postgres.jobs import lane
from askback.store.postgres.link import Server
from askback.store.sql.connection import Connection
from askback.store.sql.reads import share_values
from askback.store.turns import Room, Ticket

T = TypeVar("T")

log = logging.getLogger(__name__)

_POLL_SEC = 2.0
"""How often the queue is looked at although nobody has reported a change."""
_POLLS_PER_AUDIT = 2
_CLOSE_SEC = 10.0


class _Jobs(Protocol):
    """What the jobs need of the store."""

    def get(self, run_id: str, /) -> Awaitable[Run]: ...

    def read(self, work: Callable[[Connection], list[tuple[int, str]]], /) -> Awaitable[list[tuple[int, str]]]: ...

    def return_job(self, job: int, run_id: str) -> Awaitable[None]: ...


class JobTurns:
    """Implements `store.turns.Turns`."""

    def __init__(self, server: Server, store: _Jobs, owners: Collection[str]) -> None:
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
        return any(run is None or run.state is RunState.QUEUED for run in changed.values())

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
        lanes = [lane(owner, engine) for owner in self._owners for engine in engines]
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
                found = await self._call(self._connector.fetch("fetch", {**wanted, "fetcher": self._fetcher}))
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
        if run.state is not RunState.QUEUED or run.epoch != epoch:
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
            await self._store.return_job(job, run_id)
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

    async def _audit(self) -> None:
        """Put back what has been ours twice without our knowledge: once could be a fetch that is under way."""
        if self._fetcher is None:
            return
        await self._call(self._jobs.update_heartbeat(self._fetcher))
        fetcher = {"fetcher": self._fetcher}
        ours = await self._store.read(lambda it: it.fetch(it.statements("queue")["fetched_by"], fetcher))
        strange = {job: run_id for job, run_id in ours if job not in self._known}
        for job in self._suspects & strange.keys():
            log.warning("a job was fetched without an answer; it is put back", extra={"run": strange[job]})
            await self._store.return_job(job, strange[job])
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
