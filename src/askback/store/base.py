"""The interface of the store: the only writer of states, and the queue of turns.

Every change is guarded: `apply` by the run's version, `append` by its epoch. The loser of a race gets `StaleWrite`, and
must read the run and decide again, as `move` does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import Protocol, Self

from askback.core.access import AuditEntry
from askback.core.errors import Conflict
from askback.core.events import Event, NewEvent
from askback.core.interactions import InboxOrder, Interaction, Json
from askback.core.lifecycle import Decision, Stay, decide
from askback.core.queue import UNLIMITED, Shares
from askback.core.runs import ClosedQuestion, Run, RunRequest, RunState, Usage
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
)
from askback.store.audit_log import AuditStore
from askback.store.file_store import FileStoreRecord
from askback.store.open_questions import QuestionStore
from askback.store.turns import Turns

LabelSet = frozenset[tuple[str, str]]
"""Labels that a run must all have. Two values of one name are possible: then no run is found."""
ANY_LABELS: LabelSet = frozenset()

UNKNOWN_RUN = ""
"""The key in `Changes` that means that any run may have changed."""


class StaleWrite(Exception):
    """The run has changed since it was read; nothing was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyKey:
    """A caller's key for creating one run. `body_digest` shows whether a repeated request is the same."""

    key: str
    body_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    state: RunState | None = None
    skill: str | None = None
    engine: str | None = None
    creator: str | None = None
    """The name of the token that created them. Without labels, a list by creator reads every run."""
    labels: LabelSet = ANY_LABELS


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    """Newest first. `next_cursor` is None on the last page."""

    items: tuple[Run, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxFilter:
    """Which questions are wanted. `words` must all occur in the skill, the summary, the prompt or the context."""

    skill: str | None = None
    engine: str | None = None
    words: str = ""
    labels: LabelSet = ANY_LABELS


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxCount:
    """How many questions match a filter, and when the latest of all was asked.

    `skills` ignores the skill of the filter, and `engines` its engine: they count what another choice would show.
    """

    total: int
    newest_at: datetime | None
    skills: tuple[tuple[str, int], ...] = ()
    engines: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedPage:
    """Newest first. `next_cursor` is None on the last page."""

    items: tuple[ClosedQuestion, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """How many runs ended in each state, and the tokens that they used."""

    succeeded: int = 0
    failed: int = 0
    canceled: int = 0
    usage: Usage = field(default_factory=Usage)

    @property
    def runs(self) -> int:
        return self.succeeded + self.failed + self.canceled


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStats:
    """The runs that ended from `first` to `last`, in UTC days, and the runs that are not over now.

    Runs that were deleted since count as well. `answer_sec` has the latest answers of that time, of runs that are kept.
    """

    first: date
    last: date
    days: Mapping[date, Finished]
    """Only days on which a run ended."""
    failures: Mapping[date, Mapping[str, int]]
    """Failed runs by day and error code."""
    skills: Mapping[str, Finished]
    """The most used skills, most runs first."""
    engines: Mapping[str, Finished]
    unfinished: Mapping[RunState, int]
    answer_sec: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryPage:
    """Newest first. `next_cursor` is None on the last page."""

    items: tuple[Delivery, ...]
    next_cursor: str | None


PAGE_BYTES = 1_000_000
"""The approximate size of a page. A page has at least one item, however large."""


class EventPage(tuple[Event, ...]):
    """Events of a run, in order. `more`: later events exist. `size`: the total size in bytes.

    `committed_at` is when the first of them was committed, on the monotonic clock; None if it was not seen.
    """

    more: bool = False
    size: int = 0
    committed_at: float | None = None

    @classmethod
    def of(cls, events: Iterable[Event], *, more: bool, size: int = 0, committed_at: float | None = None) -> Self:
        page = cls(events)
        page.more = more
        page.size = size
        page.committed_at = committed_at
        return page


class QueuedRuns(tuple[Run, ...]):
    """Runs that may start, in queue order. `held_back`: there are others, whose tokens have as many slots as they may."""

    held_back: bool = False


class Changes(Protocol):
    """The runs that have changed, in this process or another one on the same store.

    The value is the new version of the run, or None if another process made the change. Events that a turn appends are
    reported as a change only if another process appends them, since processes exchange only run ids. Because processes
    race, a run may be older than the version seen before. `{UNKNOWN_RUN: None}` means that any run may have changed. A
    slow listener takes a constant amount of memory.
    """

    async def wait(self) -> Mapping[str, Run | None]:
        """Wait for changes, and return all of them. Raises `Unavailable` once this or the store is closed."""
        ...

    def close(self) -> None: ...


class NewEvents(Protocol):
    """New events of one run, in the order of their numbers.

    A page contains the events that this process wrote. If it has `more`, read the store for others: another process
    wrote them, or they were too large to keep for a slow listener. Because processes race, a page may start with events
    that were read before, or leave a gap.
    """

    async def wait(self) -> EventPage:
        """Wait for events, and return all of them. Raises `Unavailable` once this or the store is closed."""
        ...

    def close(self) -> None: ...


class StoreObserver(Protocol):
    """Is notified of the writes of this process, for measurements. Must be quick and must not raise an error."""

    def changed(self, before: Run | None, decision: Decision) -> None:
        """A run was stored, in the event loop. `before` is None for a new run."""
        ...

    def committed(self, seconds: float) -> None:
        """A transaction was committed, in any thread."""
        ...


class RunStore(Protocol):
    """What the command line, HTTP and the page need: of all runs, or of those that a caller may see."""

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
        ...

    async def apply(self, before: Run, decision: Decision, max_held: int | None = None) -> Run:
        """Write the run, its events, its interactions and its place in the queue, in one transaction.

        Raises `StaleWrite` unless the stored run still has `before.version`, and `Conflict` if workers already hold
        `max_held` runs of its creator.
        """
        ...

    async def get(self, run_id: str) -> Run:
        """The run, or `NotFound`."""
        ...

    async def request(self, run_id: str) -> RunRequest: ...

    async def result(self, run_id: str) -> Json:
        """The output of a run that succeeded, otherwise None."""
        ...

    async def list_runs(self, where: RunFilter, cursor: str | None = None, limit: int = 50) -> RunPage: ...

    async def events(self, run_id: str, after: int = 0, limit: int = 1000, max_bytes: int = PAGE_BYTES) -> EventPage:
        """The events with numbers above `after`. A page ends at `limit` events or about `max_bytes`."""
        ...

    async def interactions(self, run_id: str) -> Sequence[Interaction]:
        """All questions of the run, in the order they were asked."""
        ...

    async def pending(
        self,
        cursor: str | None = None,
        limit: int = 50,
        where: InboxFilter = InboxFilter(),
        order: InboxOrder = InboxOrder.OLDEST,
    ) -> RunPage:
        """Runs that wait for their user. A cursor belongs to one order."""
        ...

    async def inbox_count(self, where: InboxFilter = InboxFilter()) -> InboxCount:
        """Counts the pending questions. Costs a scan of them: use it only if they do not fit on one page."""
        ...

    async def closed_questions(
        self, cursor: str | None = None, limit: int = 50, labels: LabelSet = ANY_LABELS
    ) -> ClosedPage:
        """The questions of all runs that are no longer pending, the last closed first."""
        ...

    async def run_stats(self, first: date, last: date, latest: int = 1000, labels: LabelSet = ANY_LABELS) -> RunStats:
        """Statistics of these days, with the answer times of the `latest` questions.

        With labels, runs that were deleted do not count, and the cost depends on the number of runs with the labels.
        """
        ...

    async def count_by_state(self, where: RunFilter, most: int) -> Mapping[RunState, int]:
        """How many runs of that skill and engine are in each state, counted up to `most`."""
        ...

    async def deliveries(
        self,
        run_id: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
        labels: LabelSet = ANY_LABELS,
        view: DeliveryView = EVERY_DELIVERY,
    ) -> DeliveryPage:
        """Deliveries that were sent or are due, of one run or of all."""
        ...

    async def forget(self, run_ids: Sequence[str], audit: AuditEntry | None = None) -> Sequence[str]:
        """Delete finished runs and everything that belongs to them. Returns the deleted ids; other runs are kept.

        `audit` is added to the audit log if any run was deleted.
        """
        ...

    def changes(self) -> Changes:
        """Listen to all runs, from now on."""
        ...

    def new_events(self, run_id: str) -> NewEvents:
        """Listen to the events of one run, from now on."""
        ...


class Store(RunStore, AuditStore, QuestionStore, FileStoreRecord, Protocol):
    """The whole store, with the queue, the outbox and what the worker needs."""

    async def check_labels(self, run_id: str, labels: LabelSet) -> None:
        """Raise `NotFound`, as for a run that does not exist, unless the run has all of these labels."""
        ...

    async def append(self, run_id: str, epoch: int, events: Sequence[NewEvent]) -> None:
        """Add events of a turn in progress. Raises `StaleWrite` unless the run is running under that epoch."""
        ...

    async def queued(
        self, owners: Collection[str], *, without_engines: Collection[str], limit: int, shares: Shares = UNLIMITED
    ) -> QueuedRuns:
        """Queued runs of these owners that may start, in the order of `core.queue`."""
        ...

    async def held_by_token(self) -> Mapping[str, int]:
        """How many runs of each token a worker holds. Tokens without any are left out."""
        ...

    async def longest_queued(self, owners: Collection[str]) -> Run | None:
        """The run of these owners that has been queued for the longest time."""
        ...

    def turns(self, owners: Collection[str]) -> Turns:
        """The queue of these owners, for one worker."""
        ...

    async def repair_queue(self) -> Sequence[str]:
        """Find what a program that died, or a restored backup, has left in the queue: runs that nobody would take.

        Puts them in again, and returns their ids. Call it every few seconds.
        """
        ...

    async def held(self, workers: Collection[str] | None = None) -> Sequence[Run]:
        """Runs that one of these workers holds, or any: running, or waiting with a process."""
        ...

    async def workers(self) -> Collection[str]:
        """The workers that hold runs."""
        ...

    async def overdue(self, owners: Collection[str], at: datetime, limit: int) -> Sequence[Run]:
        """Waiting runs of these owners whose deadline has passed at `at`, earliest first.

        Runs that are being canceled are left out: their deadline no longer matters.
        """
        ...

    async def next_deadline(self, owners: Collection[str]) -> datetime | None: ...

    async def expiring(self, owners: Collection[str], at: datetime, before: timedelta, limit: int) -> Sequence[Run]:
        """Waiting runs of these owners whose deadline is ahead, at most `before` away, and not announced yet.

        Deadlines that were no further away when the question was asked are left out.
        """
        ...

    async def next_expiring(self, owners: Collection[str], at: datetime, before: timedelta) -> datetime | None:
        """The earliest deadline after `at` that is to be announced `before` it passes."""
        ...

    async def owners(self) -> Collection[str]:
        """The owners of all runs that are not final."""
        ...

    async def owned_by(self, owner: str) -> Sequence[Run]:
        """The runs of one owner that are not final."""
        ...

    async def has_unshared_files(self) -> bool:
        """Whether unfinished runs may have files that only the data folder of this program has.

        As long as that is so, programs with another data folder cannot open the store.
        """
        ...

    async def mark_files(self, *, shared: bool) -> None:
        """`shared`: the files of all unfinished runs are in the store of `files` now. Else some may not be, from now on."""
        ...

    # Notifications: an outbox, written in the same transaction as the state. It is also the delivery log.

    async def register_webhooks(self, webhooks: Sequence[Webhook], at: datetime | None = None) -> None:
        """Replace the server's own webhooks, which are notified of all runs that servers own.

        If the reminders of one have changed, those that are not sent yet are replaced by the new ones after `at`.
        """
        ...

    async def next_delivery(self, *, busy: BusyReceivers = NOBODY) -> datetime | None:
        """When the earliest delivery is due, ignoring those to `busy` receivers."""
        ...

    async def claim_deliveries(
        self, at: datetime, *, until: datetime, limit: int, busy: BusyReceivers = NOBODY
    ) -> Sequence[DueDelivery]:
        """Claim due deliveries, earliest first. No other claim gets them before `until`.

        A claim counts as an attempt. If its result is not recorded by `until`, the delivery is due again.
        """
        ...

    async def is_due(self, delivery: Delivery) -> bool:
        """Whether a claimed delivery is still to be sent: its question may be closed, or its claim be over."""
        ...

    async def record_attempt(self, delivery: Delivery, attempt: Attempt) -> None:
        """Record the result of an attempt, unless another process has claimed the delivery since."""
        ...

    # Messages in chats.

    async def record_chat_message(self, message: ChatMessage) -> None:
        """Remember a message that was sent."""
        ...

    async def close_chat_message(self, message: ChatMessage) -> None:
        """The message no longer offers to answer its question."""
        ...

    async def chat_message(self, chat: int, message: int) -> ChatMessage | None: ...

    async def outdated_chat_messages(self, run_id: str | None = None) -> Sequence[ChatMessage]:
        """Open messages whose question is closed, of one run or of all."""
        ...

    # Retention.

    async def existing(self, run_ids: Collection[str]) -> frozenset[str]:
        """Those of these runs that exist."""
        ...

    async def over(self, cursor: str | None = None, limit: int = 50) -> RunPage:
        """Finished runs, the oldest first by creation."""
        ...

    async def ping(self) -> None:
        """Perform an empty write. Raises `Unavailable` if the store cannot write."""
        ...

    async def check(self) -> str:
        """The store's health in one line. If it is not healthy, raises `Unavailable` with instructions."""
        ...

    def observe(self, observer: StoreObserver) -> None:
        """Notify this observer, instead of an earlier one, of every write of this process from now on."""
        ...

    async def close(self) -> None: ...


async def move(
    store: RunStore,
    run_id: str,
    signal: Signal,
    *,
    seen: Run | None = None,
    audit: AuditEntry | None = None,
    max_held: int | None = None,
) -> Run:
    """Apply a signal to a run. If the run has changed meanwhile, decide again.

    `seen` saves the first read; it may be outdated. `audit` is stored with the change. Raises `Conflict` if the lifecycle
    refuses the signal, or the store because of `max_held`.
    """
    run, is_fresh = (await store.get(run_id), True) if seen is None else (seen, False)
    while True:
        answer = decide(run, signal)
        if isinstance(answer, Decision):
            with suppress(StaleWrite):
                return await store.apply(run, replace(answer, audit=audit), max_held)
        elif is_fresh:
            if isinstance(answer, Stay):
                return run
            raise Conflict(answer.code, answer.message)
        run, is_fresh = await store.get(run_id), True
