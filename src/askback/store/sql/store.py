"""The part of a store that does not depend on the database: methods that make writes and reads. Implements `store.base.Store`."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Coroutine, Sequence
from datetime import datetime
from typing import Any, Concatenate, ParamSpec, TypeVar

from askback.core.access import AuditEntry
from askback.core.errors import Unavailable
from askback.core.events import NewEvent
from askback.core.lifecycle import Decision
from askback.core.runs import Run, RunRequest
from askback.core.webhooks import NOBODY, Attempt, BusyReceivers, ChatMessage, Delivery, DueDelivery, Webhook
from askback.store.base import IdempotencyKey, StoreObserver
from askback.store.file_store import FileStore
from askback.store.listeners import EventListener, Listeners, RunListener
from askback.store.sql import chats, digest_reads, outbox, reads, statistics
from askback.store.sql import file_store as file_store_rows
from askback.store.sql.chats import MessageClosing, MessageNote
from askback.store.sql.connection import Connection
from askback.store.sql.deliveries import Claim, Note, Registration
from askback.store.sql.writes import (
    Addition,
    AuditExpiry,
    AuditRecord,
    Change,
    Creation,
    Forgetting,
    Move,
    Nothing,
    Write,
)
from askback.store.turns import Turns
from askback.text.json_text import is_large

P = ParamSpec("P")
T = TypeVar("T")


def _reading(
    work: Callable[Concatenate[Connection, P], T],
) -> Callable[Concatenate[SqlStore, P], Coroutine[Any, Any, T]]:
    """Make a method of the store that calls `work` with a connection in a reader's thread."""

    async def method(self: SqlStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.read(lambda connection: work(connection, *args, **kwargs))

    return method


class SqlStore(ABC):
    """Belongs to the event loop in which it was opened."""

    def __init__(self, closed: Callable[[], Unavailable]) -> None:
        """`closed` creates the error that callers get after the store was closed."""
        self._listeners = Listeners(closed)
        self._observer: StoreObserver | None = None

    @abstractmethod
    async def read(self, work: Callable[[Connection], T]) -> T:
        """Call `work` in another thread, with a connection that reads."""

    @abstractmethod
    async def write(self, work: Write) -> Change:
        """Perform a write in a transaction, and return its effect once it is stored."""

    @abstractmethod
    def turns(self, owners: Collection[str]) -> Turns:
        """The queue of these owners, for one worker."""

    @abstractmethod
    async def repair_queue(self) -> Sequence[str]: ...

    @abstractmethod
    async def check(self) -> str: ...

    @abstractmethod
    async def close(self) -> None: ...

    # Writing.

    async def create(
        self,
        decision: Decision,
        request: RunRequest,
        key: IdempotencyKey | None = None,
        webhooks: Sequence[Webhook] = (),
        max_open: int | None = None,
    ) -> Run:
        if is_large(request.input, request.parameter):
            made = await asyncio.to_thread(Creation.of, decision, request, key, webhooks, max_open)
        else:
            made = Creation.of(decision, request, key, webhooks, max_open)
        return await self._written(made)

    async def apply(self, before: Run, decision: Decision, max_held: int | None = None) -> Run:
        closed = decision.closed
        if closed is not None and is_large(closed.response):
            return await self._written(await asyncio.to_thread(Move.of, before, decision, max_held))
        return await self._written(Move.of(before, decision, max_held))

    async def append(self, run_id: str, epoch: int, events: Sequence[NewEvent]) -> None:
        await self.write(Addition.of(run_id, epoch, events))

    async def register_webhooks(self, webhooks: Sequence[Webhook], at: datetime | None = None) -> None:
        await self.write(Registration.of(webhooks, at))

    async def claim_deliveries(
        self, at: datetime, *, until: datetime, limit: int, busy: BusyReceivers = NOBODY
    ) -> Sequence[DueDelivery]:
        return (await self.write(Claim(at=at, until=until, busy=busy, limit=limit))).deliveries

    async def record_attempt(self, delivery: Delivery, attempt: Attempt) -> None:
        await self.write(Note(delivery=delivery, attempt=attempt))

    async def record_chat_message(self, message: ChatMessage) -> None:
        await self.write(MessageNote(message=message))

    async def close_chat_message(self, message: ChatMessage) -> None:
        await self.write(MessageClosing(message=message))

    async def forget(self, run_ids: Sequence[str], audit: AuditEntry | None = None) -> Sequence[str]:
        return (await self.write(Forgetting.of(run_ids, audit))).forgotten

    async def record(self, entry: AuditEntry) -> None:
        await self.write(AuditRecord(entry=entry))

    async def expire_audit(self, before: datetime, limit: int) -> int:
        return (await self.write(AuditExpiry(before=before, limit=limit))).expired

    async def propose_file_store(self, store_id: str) -> FileStore:
        await self.write(file_store_rows.Proposal(id=store_id))
        recorded = await self.file_store()
        # Only a command removes it, which no server may be running beside.
        return recorded or FileStore(id=store_id, confirmed=False)

    async def confirm_file_store(self, store_id: str) -> None:
        await self.write(file_store_rows.Confirmation(id=store_id))

    async def replace_file_store(self, store_id: str | None) -> None:
        await self.write(file_store_rows.Replacement(id=store_id))

    async def ping(self) -> None:
        await self.write(Nothing())

    async def _written(self, work: Write) -> Run:
        change = await self.write(work)
        assert change.run is not None
        return change.run

    # Reading. The signatures, with their defaults, are in `reads`, `statistics` and `outbox`.

    get = _reading(reads.get)
    existing = _reading(reads.existing)
    check_labels = _reading(reads.check_labels)
    request = _reading(reads.request)
    result = _reading(reads.result)
    list_runs = _reading(reads.list_runs)
    events = _reading(reads.events)
    interactions = _reading(reads.interactions)
    pending = _reading(reads.pending)
    inbox_count = _reading(reads.inbox_count)
    closed_questions = _reading(reads.closed_questions)
    run_stats = _reading(statistics.run_stats)
    count_by_state = _reading(statistics.count_by_state)
    queued = _reading(reads.queued)
    longest_queued = _reading(reads.longest_queued)
    held = _reading(reads.held)
    workers = _reading(reads.workers)
    held_by_token = _reading(reads.held_by_token)
    overdue = _reading(reads.overdue)
    next_deadline = _reading(reads.next_deadline)
    expiring = _reading(reads.expiring)
    next_expiring = _reading(reads.next_expiring)
    owners = _reading(reads.owners)
    owned_by = _reading(reads.owned_by)
    over = _reading(reads.over)
    deliveries = _reading(reads.deliveries)
    audit_entries = _reading(reads.audit_entries)
    file_store = _reading(file_store_rows.read)
    count_stored_runs = _reading(file_store_rows.count_stored_runs)
    some_archive_keys = _reading(file_store_rows.some_archive_keys)
    is_due = _reading(outbox.is_due)
    next_delivery = _reading(outbox.next_delivery)
    open_questions = _reading(digest_reads.open_questions)
    server_webhooks = _reading(digest_reads.server_webhooks)
    chat_message = _reading(chats.chat_message)
    outdated_chat_messages = _reading(chats.outdated_chat_messages)

    # Listeners.

    def changes(self) -> RunListener:
        return self._listeners.listen()

    def new_events(self, run_id: str) -> EventListener:
        return self._listeners.listen_to_events(run_id)

    def observe(self, observer: StoreObserver) -> None:
        self._observer = observer

    def _notify(self, change: Change, committed_at: float) -> None:
        """Notify listeners of a write of this process. Call it in the event loop, after the commit."""
        assert change.changed_id is not None
        self._listeners.notify(change.changed_id, change.run, lambda: change.event_page(committed_at))
        if self._observer is not None and change.decision is not None:
            self._observer.changed(change.before, change.decision)

    def _measure(self, seconds: float) -> None:
        if self._observer is not None:
            self._observer.committed(seconds)
