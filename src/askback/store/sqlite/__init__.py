"""A store in one SQLite file, for one machine: many programs may have it open. Implements `store.base.Store`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import apsw

from askback.core.errors import AskbackError
from askback.core.events import NewEvent
from askback.core.interactions import Interaction, Json
from askback.core.lifecycle import Decision
from askback.core.runs import Run, RunRequest
from askback.core.webhooks import Attempt, Delivery, DueDelivery, Webhook
from askback.store.base import (
    PAGE_BYTES,
    Changes,
    Crowd,
    DeliveryPage,
    EventPage,
    IdempotencyKey,
    RunFilter,
    RunPage,
    Tally,
)
from askback.store.listeners import Notices
from askback.store.sqlite import errors as faults
from askback.store.sqlite import outbox, reads
from askback.store.sqlite.connection import open_writer, refuse_unsound
from askback.store.sqlite.cross_process_wake import Wake
from askback.store.sqlite.deliveries import Claim, Note, Registration
from askback.store.sqlite.reads import Readers
from askback.store.sqlite.writer import Writer
from askback.store.sqlite.writes import Addition, Creation, Forgetting, Move, Nothing, Write
from askback.text.json_text import is_large

T = TypeVar("T")

CHECK_SEC = 5.0


class SqliteStore:
    """Belongs to the event loop in which it was opened."""

    def __init__(self, path: Path, connection: apsw.Connection) -> None:
        """Use `open`."""
        self._path = path
        self._notices = Notices(lambda: faults.closed(path))
        with faults.faults_of(path):
            self._wake = Wake.open(path.parent / "wake", self._notices.tell_elsewhere)
        self._writer = Writer(connection, path, tell=self._notices.tell, wake=self._wake.send)
        self._readers = Readers(path, self._writer.presence)
        self._closed = False

    @classmethod
    async def open(cls, path: Path) -> SqliteStore:
        """Raises `Unavailable` and leaves the file alone when it cannot be used."""
        connection = await asyncio.to_thread(open_writer, path)
        try:
            return cls(path, connection)
        except (AskbackError, OSError):
            connection.close()
            raise

    async def close(self) -> None:
        """Finish the writes that were asked for, and leave nothing behind but the file."""
        if self._closed:
            return
        self._closed = True
        self._notices.close()
        await self._writer.close()
        await self._readers.close()
        self._wake.close()

    # Writing.

    async def create(
        self,
        decision: Decision,
        request: RunRequest,
        key: IdempotencyKey | None = None,
        webhooks: Sequence[Webhook] = (),
        most_open: int | None = None,
    ) -> Run:
        if is_large(request.input, request.parameter):
            made = await asyncio.to_thread(Creation.of, decision, request, key, webhooks, most_open)
        else:
            made = Creation.of(decision, request, key, webhooks, most_open)
        return await self._written(made)

    async def apply(self, before: Run, decision: Decision) -> Run:
        closed = decision.closed
        if closed is not None and is_large(closed.response):
            return await self._written(await asyncio.to_thread(Move.of, before, decision))
        return await self._written(Move.of(before, decision))

    async def append(self, run_id: str, epoch: int, events: Sequence[NewEvent]) -> None:
        await self._writer.write(Addition.of(run_id, epoch, events))

    async def register_webhooks(self, webhooks: Sequence[Webhook]) -> None:
        await self._writer.write(Registration.of(webhooks))

    async def claim_deliveries(
        self, at: datetime, *, until: datetime, limit: int, without_hosts: Collection[str] = ()
    ) -> Sequence[DueDelivery]:
        return (
            await self._writer.write(Claim(at=at, until=until, without_hosts=without_hosts, limit=limit))
        ).deliveries

    async def note_attempt(self, delivery: Delivery, attempt: Attempt) -> None:
        await self._writer.write(Note(delivery=delivery, attempt=attempt))

    async def forget(self, run_ids: Sequence[str]) -> Sequence[str]:
        return (await self._writer.write(Forgetting.of(run_ids))).forgotten

    async def write_nothing(self) -> None:
        await self._writer.write(Nothing())

    async def _written(self, work: Write) -> Run:
        change = await self._writer.write(work)
        assert change.run is not None
        return change.run

    # Reading.

    async def get(self, run_id: str) -> Run:
        return await self._read(lambda connection: reads.get(connection, run_id))

    async def request(self, run_id: str) -> RunRequest:
        return await self._read(lambda connection: reads.request(connection, run_id))

    async def result(self, run_id: str) -> Json:
        return await self._read(lambda connection: reads.result(connection, run_id))

    async def list_runs(self, where: RunFilter, cursor: str | None = None, limit: int = 50) -> RunPage:
        return await self._read(lambda connection: reads.list_runs(connection, where, cursor, limit))

    async def events(self, run_id: str, after: int = 0, limit: int = 1000, most_bytes: int = PAGE_BYTES) -> EventPage:
        return await self._read(lambda connection: reads.events(connection, run_id, after, limit, most_bytes))

    async def interactions(self, run_id: str) -> Sequence[Interaction]:
        return await self._read(lambda connection: reads.interactions(connection, run_id))

    async def pending(self, cursor: str | None = None, limit: int = 50) -> RunPage:
        return await self._read(lambda connection: reads.pending(connection, cursor, limit))

    async def crowd(self) -> Crowd:
        return await self._read(reads.crowd)

    async def tally(self, latest: int = 500) -> Tally:
        return await self._read(lambda connection: reads.tally(connection, latest))

    async def queued(self, owners: Collection[str], *, without_engines: Collection[str], limit: int) -> Sequence[Run]:
        return await self._read(lambda connection: reads.queued(connection, owners, without_engines, limit))

    async def held(self) -> Sequence[Run]:
        return await self._read(reads.held)

    async def overdue(self, owners: Collection[str], at: datetime, limit: int) -> Sequence[Run]:
        return await self._read(lambda connection: reads.overdue(connection, owners, at, limit))

    async def next_deadline(self, owners: Collection[str]) -> datetime | None:
        return await self._read(lambda connection: reads.next_deadline(connection, owners))

    async def owners(self) -> Collection[str]:
        return await self._read(reads.owners)

    async def owned_by(self, owner: str) -> Sequence[Run]:
        return await self._read(lambda connection: reads.owned_by(connection, owner))

    async def next_delivery(self, *, without_hosts: Collection[str] = ()) -> datetime | None:
        return await self._read(lambda connection: outbox.next_delivery(connection, without_hosts))

    async def deliveries(self, run_id: str | None = None, cursor: str | None = None, limit: int = 50) -> DeliveryPage:
        return await self._read(lambda connection: reads.deliveries(connection, run_id, cursor, limit))

    async def over(self, cursor: str | None = None, limit: int = 50) -> RunPage:
        return await self._read(lambda connection: reads.over(connection, cursor, limit))

    async def _read(self, work: Callable[[apsw.Connection], T]) -> T:
        return await self._readers.read(work)

    # Health and news.

    async def check(self) -> str:
        return await self._read(self._check)

    def changes(self, run_id: str | None = None) -> Changes:
        return self._notices.listen(run_id)

    def _check(self, connection: apsw.Connection) -> str:
        give_up_at = time.monotonic() + CHECK_SEC
        connection.set_progress_handler(lambda: time.monotonic() > give_up_at, 1000)
        try:
            refuse_unsound(connection, self._path)
            extent = f"{reads.count_runs(connection)} runs"
        except apsw.InterruptError:
            extent = f"checked for {CHECK_SEC:g} s, not to the end"
        finally:
            connection.set_progress_handler(None)
        mode = str(connection.pragma("journal_mode")).upper()
        size_mb = self._path.stat().st_size / 2**20
        return f"SQLite {apsw.sqlite_lib_version()}, {mode}, {extent}, {size_mb:.0f} MB"
