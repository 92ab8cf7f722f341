"""The store: the only writer of states, and the queue of turns. `Store` lists all that a store can do.

Every change is guarded: `apply` by the run's version, `append` by its epoch. The loser of a race gets `StaleWrite`, and
must read the run and decide again, as `move` does.

A database adds connections, threads and its dialect: see `store.sqlite` and `store.postgres`. A method of one statement names
it here, and `sql/statements/` has it; other reads and writes are functions in `store.sql`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any, Protocol, TypeVar

from askback.core.access import AuditEntry, StoredEntry
from askback.core.errors import Conflict, Unavailable
from askback.core.events import Event, NewEvent
from askback.core.interactions import InboxOrder, Interaction, Json
from askback.core.labels import Labels
from askback.core.lifecycle import Decision, Stay, decide
from askback.core.queue import UNLIMITED, Shares
from askback.core.runs import ClosedQuestion, Run, RunRequest, RunState, UsageKey
from askback.core.signals import Signal
from askback.core.webhooks import (
    EVERY_DELIVERY,
    NOBODY,
    Attempt,
    BusyReceivers,
    ChatMessage,
    Delivery,
    DeliveryView,
    DueDelivery,
    Webhook,
    WebhookKind,
)
from askback.store.listeners import Changes, Listeners, NewEvents
from askback.store.pages import (
    ANY_LABELS,
    PAGE_BYTES,
    AuditFilter,
    EventPage,
    FileStore,
    IdempotencyKey,
    InboxCount,
    InboxFilter,
    LabelSet,
    OpenQuestions,
    Page,
    QueuedRuns,
    RunFilter,
    RunStats,
    StaleWrite,
    StoredRunCount,
    UsageSums,
)
from askback.store.sql import outbox, reads, rows, statistics, writes
from askback.store.sql.connection import Connection
from askback.store.sql.writes import ApplyDecision, Change, CreateRun
from askback.store.turns import Turns
from askback.text.json_text import clean, is_large

T = TypeVar("T")

_ANY_QUESTION = InboxFilter()


class StoreObserver(Protocol):
    """Is notified of the writes of this process, for measurements. Must be quick and must not raise an error."""

    def changed(self, before: Run | None, decision: Decision) -> None:
        """A run was stored, in the event loop. `before` is None for a new run."""

    def committed(self, seconds: float) -> None:
        """A transaction was committed, in any thread."""


class Store(ABC):
    """Belongs to the event loop in which it was opened. `VisibleStore` is the part that a restricted caller may use."""

    def __init__(self, closed: Callable[[], Unavailable]) -> None:
        """`closed` creates the error that callers get after the store was closed."""
        self._listeners = Listeners(closed)
        self._observer: StoreObserver | None = None

    # What a database adds.

    @abstractmethod
    async def read(self, work: Callable[[Connection], T]) -> T:
        """Call `work` in another thread, with a connection that only reads."""

    @abstractmethod
    async def write(self, work: Callable[[Connection], T], run_id: str | None = None) -> T:
        """Call `work` in a transaction, in another thread, and return its result once it is stored.

        The writes of one run, `run_id`, happen one after the other. If the result is a `Change`, listeners are notified.
        """

    @abstractmethod
    def turns(self, owners: Collection[str]) -> Turns:
        """The queue of these owners, for one worker."""

    @abstractmethod
    async def repair_queue(self) -> Sequence[str]:
        """Find what a program that died, or a restored backup, has left in the queue: runs that nobody would take.

        Puts them in again, and returns their ids. Call it every few seconds.
        """

    @abstractmethod
    async def has_unshared_files(self) -> bool:
        """Whether unfinished runs may have files that only the data folder of this program has.

        As long as that is so, programs with another data folder cannot open the store.
        """

    @abstractmethod
    async def mark_files(self, *, shared: bool) -> None:
        """`shared`: the files of all unfinished runs are in the store of `files` now. Else some may not be, from now on."""

    @abstractmethod
    async def check(self) -> str:
        """The store's health in one line. If it is not healthy, raises `Unavailable` with instructions."""

    @abstractmethod
    async def close(self) -> None: ...

    # Changing runs.

    async def create(
        self,
        decision: Decision,
        request: RunRequest,
        key: IdempotencyKey | None = None,
        webhooks: Sequence[Webhook] = (),
        max_open: int | None = None,
    ) -> Run:
        """Store a new run. For a repeated key, returns the first run, or raises `Invalid` if the body differs.

        Raises `Conflict` if the run's creator already has `max_open` unfinished runs.

        This and `apply` also write the deliveries for the webhooks of the run and of the server.
        """
        if is_large(request.input, request.parameter):
            made = await asyncio.to_thread(CreateRun, decision, request, key, webhooks, max_open)
        else:
            made = CreateRun(decision, request, key, webhooks, max_open)
        return _stored(await self.write(made.write, made.run.id))

    async def apply(self, before: Run, decision: Decision, shares: Shares = UNLIMITED) -> Run:
        """Write the run, its events, its interactions and its place in the queue, in one transaction.

        Raises `StaleWrite` unless the stored run still has `before.version`, and `Conflict` if workers already hold
        as many runs of its creator as `shares` allows.
        """
        if decision.closed is not None and is_large(decision.closed.response):
            made = await asyncio.to_thread(ApplyDecision, before, decision, shares)
        else:
            made = ApplyDecision(before, decision, shares)
        return _stored(await self.write(made.write, made.run.id))

    async def append(self, run_id: str, epoch: int, events: Sequence[NewEvent]) -> None:
        """Add events of a turn in progress. Raises `StaleWrite` unless the run is running under that epoch."""
        run_id, added = clean(run_id), rows.event_rows(events)
        await self.write(lambda connection: writes.append_events(connection, run_id, epoch, added), run_id)

    async def forget(self, run_ids: Sequence[str], audit: AuditEntry | None = None) -> Sequence[str]:
        """Delete finished runs and everything that belongs to them. Returns the deleted ids; other runs stay.

        `audit` is added to the audit log if any run was deleted.
        """
        ids = [clean(run_id) for run_id in run_ids]
        return await self.write(lambda connection: writes.forget(connection, ids, audit))

    async def ping(self) -> None:
        """Perform an empty write. Raises `Unavailable` if the store cannot write."""
        await self.write(lambda connection: None)

    # One run.

    async def get(self, run_id: str) -> Run:
        """The run, or `NotFound`."""
        return await self.read(lambda connection: reads.get(connection, run_id))

    async def check_labels(self, run_id: str, labels: LabelSet) -> None:
        """Raise `NotFound`, as for a run that does not exist, unless the run has all of these labels."""
        await self.read(lambda connection: reads.check_labels(connection, run_id, labels))

    async def request(self, run_id: str) -> RunRequest:
        return await self.read(lambda connection: reads.request(connection, run_id))

    async def result(self, run_id: str) -> Json:
        """The output of a run that succeeded, otherwise None."""
        return await self.read(lambda connection: reads.result(connection, run_id))

    async def events(self, run_id: str, after: int = 0, limit: int = 1000, max_bytes: int = PAGE_BYTES) -> EventPage:
        """The events with numbers above `after`. A page ends at `limit` events or about `max_bytes`."""
        return await self.read(lambda connection: reads.events(connection, run_id, after, limit, max_bytes))

    async def last_messages(self, run_id: str, limit: int) -> Sequence[Event]:
        """Of the last 1,000 events, the last messages of the engine and starts of turns, oldest first."""
        return await self.read(lambda connection: reads.last_messages(connection, run_id, limit))

    async def interactions(self, run_id: str) -> Sequence[Interaction]:
        """All questions of the run, in the order they were asked."""
        return await self.read(lambda connection: reads.interactions(connection, run_id))

    # Lists and counts.

    async def list_runs(self, where: RunFilter, cursor: str | None = None, limit: int = 50) -> Page[Run]:
        """Newest first."""
        return await self.read(lambda connection: reads.list_runs(connection, where, cursor, limit))

    async def count_by_state(self, where: RunFilter, most: int) -> Mapping[RunState, int]:
        """How many runs of that skill and engine are in each state, counted up to `most`."""
        return await self.read(lambda connection: statistics.count_by_state(connection, where, most))

    async def run_stats(self, first: date, last: date, latest: int = 1000, labels: LabelSet = ANY_LABELS) -> RunStats:
        """Statistics of these days, with the answer times of the `latest` questions.

        With labels, runs that were deleted do not count, and the cost depends on the number of runs with the labels.
        """
        return await self.read(lambda connection: statistics.run_stats(connection, first, last, latest, labels))

    async def usage_by(self, by: UsageKey, first: date, last: date, labels: LabelSet = ANY_LABELS) -> UsageSums:
        """What turns have used. With labels, runs that were deleted do not count."""
        return await self.read(lambda connection: statistics.usage_by(connection, by, first, last, labels))

    async def pending(
        self,
        cursor: str | None = None,
        limit: int = 50,
        where: InboxFilter = _ANY_QUESTION,
        order: InboxOrder = InboxOrder.OLDEST,
    ) -> Page[Run]:
        """Runs that wait for their user. A cursor belongs to one order."""
        return await self.read(lambda connection: reads.pending(connection, cursor, limit, where, order))

    async def inbox_count(self, where: InboxFilter = _ANY_QUESTION) -> InboxCount:
        """Counts the pending questions. Costs a scan of them: use it only if they do not fit on one page."""
        return await self.read(lambda connection: reads.inbox_count(connection, where))

    async def closed_questions(
        self, cursor: str | None = None, limit: int = 50, labels: LabelSet = ANY_LABELS
    ) -> Page[ClosedQuestion]:
        """The questions of all runs that are no longer pending, the last closed first."""
        return await self.read(lambda connection: reads.closed_questions(connection, cursor, limit, labels))

    async def open_questions(self, labels: Labels, at: datetime, limit: int) -> OpenQuestions:
        """The questions that can be answered at `at`, of runs that servers own and that have all of these labels."""
        return await self.read(lambda connection: reads.open_questions(connection, labels, at, limit))

    # The queue.

    async def queued(
        self, owners: Collection[str], *, without_engines: Collection[str], limit: int, shares: Shares = UNLIMITED
    ) -> QueuedRuns:
        """Queued runs of these owners that may start, in the order of `core.queue`."""
        return await self.read(lambda connection: reads.queued(connection, owners, without_engines, limit, shares))

    async def longest_queued(self, owners: Collection[str]) -> Run | None:
        """The run of these owners that has been queued for the longest time."""
        return next(iter(await self._runs("longest_queued", owners=list(owners))), None)

    async def held(self, workers: Collection[str] | None = None) -> Sequence[Run]:
        """Runs that one of these workers holds, or any: running, or waiting with a process."""
        return await (self._runs("held") if workers is None else self._runs("held_by", workers=list(workers)))

    async def workers(self) -> Collection[str]:
        """The workers that hold runs."""
        return frozenset(worker for (worker,) in await self._fetch("workers"))

    async def held_by_token(self) -> Mapping[str, Mapping[str, int]]:
        """How many runs of each token, by engine, workers hold. Tokens without any are left out."""
        found: dict[str, dict[str, int]] = {}
        for token, engine, number in await self._fetch("held_by_token"):
            found.setdefault(token, {})[engine] = number
        return found

    # Owners, and the deadlines of their runs.

    async def owners(self) -> Collection[str]:
        """The owners of all runs that are not final."""
        return frozenset(owner for (owner,) in await self._fetch("owners"))

    async def owned_by(self, owner: str) -> Sequence[Run]:
        """The runs of one owner that are not final."""
        return await self._runs("owned_by", owner=owner)

    async def overdue(self, owners: Collection[str], at: datetime, limit: int) -> Sequence[Run]:
        """Waiting runs of these owners whose deadline has passed at `at`, and parked ones whose time has come, earliest first.

        Runs that are being canceled are left out: their deadline no longer matters.
        """
        return await self._runs("overdue", owners=list(owners), at=at, limit=reads.bounded(limit))

    async def next_deadline(self, owners: Collection[str]) -> datetime | None:
        """Of waiting and parked runs."""
        return await self._moment("next_deadline", owners=list(owners))

    async def parked(self, engine: str, at: datetime) -> Sequence[Run]:
        """Runs that are parked beyond `at` for a limit of this engine: the first of those that are parked the longest."""
        return await self._runs("parked", engine=engine, at=at)

    async def expiring(self, owners: Collection[str], at: datetime, before: timedelta, limit: int) -> Sequence[Run]:
        """Waiting runs of these owners whose deadline is ahead, at most `before` away, and not announced yet.

        Deadlines that were no further away when the question was asked are left out.
        """
        return await self._runs("expiring", owners=list(owners), at=at, before=before, limit=reads.bounded(limit))

    async def next_expiring(self, owners: Collection[str], at: datetime, before: timedelta) -> datetime | None:
        """The earliest deadline after `at` that is to be announced `before` it passes."""
        return await self._moment("next_expiring", owners=list(owners), at=at, before=before)

    # Notifications: an outbox, written in the same transaction as the state. It is also the delivery log.

    async def deliveries(
        self,
        run_id: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
        labels: LabelSet = ANY_LABELS,
        view: DeliveryView = EVERY_DELIVERY,
    ) -> Page[Delivery]:
        """Deliveries that were sent or are due, of one run or of all, newest first."""
        return await self.read(lambda connection: reads.deliveries(connection, run_id, cursor, limit, labels, view))

    async def register_webhooks(self, webhooks: Sequence[Webhook], at: datetime | None = None) -> None:
        """Replace the server's own webhooks, which are notified of all runs that servers own.

        If the reminders of one have changed, those that are not sent yet are replaced by the new ones after `at`.
        """
        columns = [outbox.webhook_columns(webhook) for webhook in webhooks]
        await self.write(lambda connection: outbox.register_webhooks(connection, columns, at))

    async def server_webhooks(self) -> Mapping[tuple[str, WebhookKind], int]:
        """The numbers of the server's webhooks, by URL and kind."""
        return {(url, WebhookKind(kind)): number for number, url, kind in await self._fetch("active_webhooks")}

    async def next_delivery(self, *, busy: BusyReceivers = NOBODY) -> datetime | None:
        """When the earliest delivery is due, ignoring those to `busy` receivers."""
        return await self._moment("next_delivery", **outbox.busy_values(busy))

    async def claim_deliveries(
        self, at: datetime, *, until: datetime, limit: int, busy: BusyReceivers = NOBODY
    ) -> Sequence[DueDelivery]:
        """Claim due deliveries, earliest first. No other claim gets them before `until`.

        A claim counts as an attempt. If its result is not recorded by `until`, the delivery is due again.
        """
        return await self.write(lambda connection: outbox.claim_deliveries(connection, at, until, limit, busy))

    async def is_due(self, delivery: Delivery) -> bool:
        """Whether a claimed delivery is still to be sent: its question may be closed, or its claim be over."""
        return bool(await self._fetch("is_due", number=delivery.number, attempts=delivery.attempts))

    async def record_attempt(self, delivery: Delivery, attempt: Attempt) -> None:
        """Record the result of an attempt, unless another process has claimed the delivery since."""
        await self._execute(
            "record_attempt",
            number=delivery.number,
            attempts=delivery.attempts,
            status=attempt.status,
            error=attempt.error,
            next_attempt_at=attempt.next_attempt_at,
            delivered_at=attempt.delivered_at,
        )

    # Messages in chats.

    async def record_chat_message(self, message: ChatMessage) -> None:
        """Remember a message that was sent, unless its run was deleted meanwhile."""
        await self._execute(
            "record_chat_message",
            chat=message.chat,
            message=message.message,
            run=message.run_id,
            interaction_id=message.interaction_id,
            open=int(message.open),
        )

    async def close_chat_message(self, message: ChatMessage) -> None:
        """The message no longer offers to answer its question."""
        await self._execute("close_chat_message", chat=message.chat, message=message.message)

    async def chat_message(self, chat: int, message: int) -> ChatMessage | None:
        return next(map(_chat_message, await self._fetch("chat_message", chat=chat, message=message)), None)

    async def outdated_chat_messages(self, run_id: str | None = None) -> Sequence[ChatMessage]:
        """Open messages whose question is closed, of one run or of all."""
        if run_id is None:
            found = await self._fetch("outdated_chat_messages")
        else:
            found = await self._fetch("outdated_chat_messages_of_run", run=run_id)
        return tuple(map(_chat_message, found))

    # Retention.

    async def existing(self, run_ids: Collection[str]) -> frozenset[str]:
        """Those of these runs that exist."""
        return frozenset(run_id for (run_id,) in await self._fetch("existing", ids=list(run_ids)))

    async def over(self, cursor: str | None = None, limit: int = 50) -> Page[Run]:
        """Finished runs, the oldest first by creation."""
        return await self.read(lambda connection: reads.finished_runs(connection, cursor, limit))

    # The audit log. Entries about runs are stored with the runs: see `Decision.audit`.

    async def record(self, entry: AuditEntry) -> None:
        """Add an audit entry for a write that changed no run. Called right after the write."""
        await self.write(lambda connection: writes.add_audit_entry(connection, entry))

    async def audit_entries(self, where: AuditFilter, cursor: str | None = None, limit: int = 50) -> Page[StoredEntry]:
        """Newest first."""
        return await self.read(lambda connection: reads.audit_entries(connection, where, cursor, limit))

    async def expire_audit(self, before: datetime, limit: int) -> int:
        """Remove the oldest entries of that time, at most `limit`. Returns their number."""
        values = rows.values(before=before, limit=limit)
        return await self.write(lambda connection: len(connection.fetch(connection.sql["expire_audit"], values)))

    # Which store of `files` belongs to the runs, and how many runs have their files there.

    async def file_store(self) -> FileStore | None:
        found = await self._fetch("file_store")
        return next((FileStore(id=store_id, confirmed=bool(confirmed)) for store_id, confirmed in found), None)

    async def propose_file_store(self, store_id: str) -> FileStore:
        """Record the id unless there is one. Returns what is recorded then: the same for all programs."""
        await self._execute("propose_file_store", id=store_id)
        # Only a command removes it, which no server may be running beside.
        return await self.file_store() or FileStore(id=store_id, confirmed=False)

    async def confirm_file_store(self, store_id: str) -> None:
        """The store with this id was seen."""
        await self._execute("confirm_file_store", id=store_id)

    async def replace_file_store(self, store_id: str | None) -> None:
        """Record another store, as one that was seen; None: no store."""
        await self.write(lambda connection: writes.replace_file_store(connection, store_id))

    async def count_stored_runs(self) -> StoredRunCount:
        return await self.read(reads.count_stored_runs)

    async def some_archive_keys(self, limit: int) -> Sequence[str]:
        """The keys of some archives that runs need which wait or are queued."""
        return [key for (key,) in await self._fetch("some_archive_keys", limit=limit)]

    # Listening.

    def changes(self, shows: Callable[[Run], bool] | None = None) -> Changes:
        """Listen to all runs, or to those that `shows` accepts, from now on."""
        return self._listeners.listen(shows)

    def new_events(self, run_id: str, check: Callable[[], Awaitable[None]] | None = None) -> NewEvents:
        """Listen to the events of one run, from now on. `check` is called once before events are returned."""
        return self._listeners.listen_to_events(run_id, check)

    def observe(self, observer: StoreObserver) -> None:
        """Notify this observer, instead of an earlier one, of every write of this process from now on."""
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

    # Single statements, by name.

    async def _fetch(self, name: str, **given: Any) -> list[Any]:
        values = rows.values(**given)
        return await self.read(lambda connection: connection.fetch(connection.sql[name], values))

    async def _runs(self, name: str, **given: Any) -> Sequence[Run]:
        values = rows.values(**given)
        return await self.read(lambda connection: reads.runs(connection, name, values))

    async def _moment(self, name: str, **given: Any) -> datetime | None:
        values = rows.values(**given)
        return rows.moment_or_none(await self.read(lambda connection: connection.value(connection.sql[name], values)))

    async def _execute(self, name: str, **given: Any) -> None:
        values = rows.values(**given)
        await self.write(lambda connection: connection.execute(connection.sql[name], values) and None)


def _stored(change: Change) -> Run:
    assert change.run is not None
    return change.run


def _chat_message(row: tuple[int, int, str, str, int]) -> ChatMessage:
    chat, message, run_id, interaction_id, is_open = row
    return ChatMessage(chat=chat, message=message, run_id=run_id, interaction_id=interaction_id, open=bool(is_open))


class _Applies(Protocol):
    async def get(self, run_id: str) -> Run: ...

    async def apply(self, before: Run, decision: Decision, shares: Shares = UNLIMITED) -> Run: ...


async def move(
    store: _Applies,
    run_id: str,
    signal: Signal,
    *,
    seen: Run | None = None,
    audit: AuditEntry | None = None,
    shares: Shares = UNLIMITED,
) -> Run:
    """Apply a signal to a run. If the run has changed meanwhile, decide again.

    `seen` saves the first read; it may be outdated. `audit` is stored with the change. Raises `Conflict` if the lifecycle
    refuses the signal, or the store because of `shares`.
    """
    run, is_fresh = (await store.get(run_id), True) if seen is None else (seen, False)
    while True:
        answer = decide(run, signal)
        if isinstance(answer, Decision):
            with suppress(StaleWrite):
                return await store.apply(run, replace(answer, audit=audit), shares)
        elif is_fresh:
            if isinstance(answer, Stay):
                return run
            raise Conflict(answer.code, answer.message)
        run, is_fresh = await store.get(run_id), True
