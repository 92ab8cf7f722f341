"""The store in a PostgreSQL database, which programs on several machines may have open.

Owns connections that are opened again, the threads that read and write, the tables and their upgrades, the rows of instances
and records, and the jobs of Procrastinate. Knows SQLite only to import a file. Start with `PostgresStore` here, then `link`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

import psycopg

from askback.core.access import AuditEntry
from askback.core.errors import Unavailable
from askback.core.instances import Instance
from askback.store.base import Store
from askback.store.postgres import errors, jobs, schema
from askback.store.postgres.connection import DEFAULT, Limits, PostgresConnection
from askback.store.postgres.link import Server, ServerReaders
from askback.store.postgres.records import PostgresRecords
from askback.store.postgres.turns import JobTurns
from askback.store.postgres.wake import Wake
from askback.store.postgres.writers import Writers
from askback.store.sql.connection import Connection

T = TypeVar("T")

log = logging.getLogger(__name__)

_OPENING_SEC = 5.0
"""How long to wait for the server when a store is opened: a command should not seem to hang."""


class PostgresStore(Store):
    def __init__(self, server: Server) -> None:
        """Use `open` instead."""
        super().__init__(lambda: errors.closed(server.address))
        self._server = server
        name = secrets.token_hex(8)
        self.records = PostgresRecords(server, instance=name)
        self._wake = Wake(
            server,
            name,
            moved=self._listeners.notify_elsewhere,
            added=self._listeners.notify_events_elsewhere,
            recorded=self.records.notice,
        )
        self._readers = ServerReaders(server)
        self._writers = Writers(server, name=name, notify=self._notify, measure=self._measure)
        self._folder: schema.DataFolder | None = None
        self._closed = False
        self._refusal: Unavailable | None = None

    @classmethod
    async def open(
        cls,
        address: str,
        *,
        folder: schema.DataFolder | None = None,
        patience_sec: float | None = None,
        limits: Limits | None = None,
    ) -> PostgresStore:
        """Open the store at a `postgresql://` address.

        Raises `Unavailable` if the tables do not fit, or belong to another data folder than `folder`.
        `patience_sec` replaces that of the limits.
        """
        server = Server(address, patience_sec, limits)
        patience_sec, server.patience_sec = server.patience_sec, min(server.patience_sec, _OPENING_SEC)
        store = cls(server)
        try:
            await store._readers.read(schema.check)
            if folder is not None:
                await store.write(lambda connection: schema.claim(connection, folder, address))
                store._folder = folder
            await store._wake.open()
            server.patience_sec = patience_sec
        except BaseException:
            await store.close()
            raise
        return store

    async def close(self) -> None:
        """Finish pending writes. If the server cannot be reached, they fail at once."""
        if self._closed:
            return
        self._closed = True
        self._server.close()
        self._listeners.close()
        await self._wake.close()
        await asyncio.to_thread(self.records.close)
        await self._writers.close()
        await self._readers.close()

    def refuse(self, reason: Unavailable) -> None:
        """Fail every read and write from now on: the tables are no longer those that this program knows."""
        self._refusal = reason

    async def read(self, work: Callable[[Connection], T]) -> T:
        if self._refusal is not None:
            raise self._refusal
        return await self._readers.read(work)

    async def write(self, work: Callable[[Connection], T], run_id: str | None = None) -> T:
        if self._refusal is not None:
            raise self._refusal
        return await self._writers.write(work, run_id)

    def turns(self, owners: Collection[str]) -> JobTurns:
        return JobTurns(self._server, self, owners)

    async def repair_queue(self) -> Sequence[str]:
        if not await self.read(jobs.needs_repair):
            return ()
        requeued = await self.write(jobs.repair)
        if requeued:
            log.warning("%s queued runs had no job; they have one again", len(requeued))
            self._listeners.notify_elsewhere(requeued)
        return requeued

    async def has_unshared_files(self) -> bool:
        folder = self._folder
        return folder is not None and await self.read(lambda it: schema.has_unshared_files(it, folder))

    async def mark_files(self, *, shared: bool) -> None:
        folder = self._folder
        if folder is not None:
            await self.write(lambda connection: schema.mark_files(connection, folder, shared=shared))

    async def forget(self, run_ids: Sequence[str], audit: AuditEntry | None = None) -> Sequence[str]:
        forgotten = await super().forget(run_ids, audit)
        self.records.forget(forgotten)
        return forgotten

    async def check(self) -> str:
        return await self._readers.read(_check)


def _check(connection: PostgresConnection) -> str:
    schema.check(connection)
    server = schema.status(connection).server
    runs = connection.value("SELECT count(*) FROM (SELECT 1 FROM runs LIMIT 100001) AS some_runs")
    size_mb = connection.value("SELECT pg_database_size(current_database())") / 2**20
    extent = f"{runs} runs" if runs <= 100_000 else "more than 100000 runs"
    return f"PostgreSQL {server}, {extent}, {size_mb:.0f} MB"


def upgrade(address: str, *, force: bool = False) -> schema.Upgrade:
    """Create or upgrade the tables: see `schema.upgrade`."""
    return _with_connection(
        address, lambda connection: schema.upgrade(connection, force=force), Limits(statement_sec=0)
    )


def living_instances(address: str) -> Sequence[Instance]:
    return _with_connection(address, schema.living_instances)


def status(address: str) -> schema.SchemaStatus:
    return _with_connection(address, schema.status)


def open_records(address: str) -> PostgresRecords:
    """For a command: every read asks the database, and no connection stays open."""
    return PostgresRecords(Server(address, _OPENING_SEC), instance=secrets.token_hex(8))


def _with_connection(address: str, work: Callable[[PostgresConnection], T], limits: Limits = DEFAULT) -> T:
    try:
        connection = PostgresConnection.open(address, limits)
        try:
            return work(connection)
        finally:
            connection.close()
    except psycopg.Error as error:
        raise errors.unavailable(error, address) from error
