"""What a store is: the one writer of states, and the queue of turns. A second database implements this Protocol.

Every change is guarded: `apply` by the run's version, `append` by its epoch. Whoever loses a race gets `StaleWrite`
and decides again from what is there now; `move` does that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, Self

from askback.core.errors import Conflict
from askback.core.events import Event, NewEvent
from askback.core.interactions import Interaction, Json
from askback.core.lifecycle import Decision, Stay, decide
from askback.core.runs import Run, RunRequest, RunState
from askback.core.signals import Signal
from askback.core.webhooks import Attempt, Delivery, DueDelivery, Webhook

UNKNOWN_RUN = ""
"""Stands for the id of a run in `Changes` where it is not known which runs have changed."""


class StaleWrite(Exception):
    """The run has moved since it was read; nothing was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyKey:
    """A caller's key for one creation; `body_digest` tells whether it is really the same request."""

    key: str
    body_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    state: RunState | None = None
    skill: str | None = None
    engine: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    """Newest first. `next_cursor` is None on the last page."""

    items: tuple[Run, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxCount:
    """The runs that wait for their user, all together: how many, and when the last of them asked."""

    total: int
    newest_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStats:
    """How many runs there are in each state, and how long each of the latest questions waited for its user."""

    runs: Mapping[RunState, int]
    answer_sec: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryPage:
    """Newest first. `next_cursor` is None on the last page."""

    items: tuple[Delivery, ...]
    next_cursor: str | None


PAGE_BYTES = 1_000_000
"""How much of its documents one page holds, roughly; at least one item is always on it."""


class EventPage(tuple[Event, ...]):
    """Events of a run, in order. `more`: there are later events that are not on this page. `size`: of all, in bytes."""

    more: bool = False
    size: int = 0

    @classmethod
    def of(cls, events: Iterable[Event], *, more: bool, size: int = 0) -> Self:
        page = cls(events)
        page.more = more
        page.size = size
        return page


class Changes(Protocol):
    """The runs that have changed, in this process or another one on the same store.

    The value is the new version of the run, or None if another process made the change. The events that a turn appends
    are a change only if another process appends them: it sends run ids alone. When processes race, a run may be older
    than one that was seen before. `{UNKNOWN_RUN: None}` means that any run may have changed. A slow listener costs a
    constant amount of memory.
    """

    async def wait(self) -> Mapping[str, Run | None]:
        """Wait for changes, and take them all. Raises `Unavailable` once this or the store is closed."""
        ...

    def close(self) -> None: ...


class NewEvents(Protocol):
    """The events that are added to one run, in the order of their numbers.

    A page carries the events that this process wrote. If it has `more`, there may be others to read from the store:
    another process wrote them, or they were too large to keep for a slow listener. Where processes race, a page may
    begin with events that were read before, or leave a gap.
    """

    async def wait(self) -> EventPage:
        """Wait for events, and take them all. Raises `Unavailable` once this or the store is closed."""
        ...

    def close(self) -> None: ...


class Store(Protocol):
    async def create(
        self,
        decision: Decision,
        request: RunRequest,
        key: IdempotencyKey | None = None,
        webhooks: Sequence[Webhook] = (),
        most_open: int | None = None,
    ) -> Run:
        """Store a new run. The same key and body again gives the run that it made; another body is `Invalid`.

        With `most_open` it is `Conflict` where the run's creator has so many runs that are not over.

        This and `apply` write what each webhook of the run, and of the server, is to be told of a change of state.
        """
        ...

    async def apply(self, before: Run, decision: Decision) -> Run:
        """Move the run, append its events, keep its place in the queue and its interactions: all of it or nothing.

        Raises `StaleWrite` unless the stored run still has `before.version`.
        """
        ...

    async def append(self, run_id: str, epoch: int, events: Sequence[NewEvent]) -> None:
        """Add events of a turn in progress. Raises `StaleWrite` unless the run is running under that epoch."""
        ...

    async def get(self, run_id: str) -> Run:
        """The run, or `NotFound`."""
        ...

    async def request(self, run_id: str) -> RunRequest: ...

    async def result(self, run_id: str) -> Json:
        """The checked output of a run that succeeded, else None."""
        ...

    async def list_runs(self, where: RunFilter, cursor: str | None = None, limit: int = 50) -> RunPage: ...

    async def events(self, run_id: str, after: int = 0, limit: int = 1000, most_bytes: int = PAGE_BYTES) -> EventPage:
        """The events behind `after`. This and every other page ends at its limit, or when it holds so many bytes."""
        ...

    async def interactions(self, run_id: str) -> Sequence[Interaction]:
        """All questions of the run, in the order they were asked."""
        ...

    async def pending(self, cursor: str | None = None, limit: int = 50) -> RunPage:
        """Runs that wait for their user, the oldest question first."""
        ...

    async def inbox_count(self) -> InboxCount:
        """All runs that wait for their user; they are counted, so ask only where one page does not hold them."""
        ...

    async def run_stats(self, latest: int = 500) -> RunStats:
        """Figures for people; `latest` is how many questions back the answers are looked at, from the newest one."""
        ...

    async def queued(self, owners: Collection[str], *, without_engines: Collection[str], limit: int) -> Sequence[Run]:
        """Runs whose turn is next, first come first served, of these owners."""
        ...

    async def held(self) -> Sequence[Run]:
        """Runs that some worker holds: running, or waiting with a process."""
        ...

    async def overdue(self, owners: Collection[str], at: datetime, limit: int) -> Sequence[Run]:
        """Waiting runs of these owners whose deadline is not after `at`, the earliest first.

        A run that is being canceled is not decided by its deadline any more, so it is not among them.
        """
        ...

    async def next_deadline(self, owners: Collection[str]) -> datetime | None: ...

    async def owners(self) -> Collection[str]:
        """Who keeps the runs that are not final."""
        ...

    async def owned_by(self, owner: str) -> Sequence[Run]:
        """The runs of one owner that are not final."""
        ...

    # Notifications: an outbox that is written with the state, and is its own log.

    async def register_webhooks(self, webhooks: Sequence[Webhook]) -> None:
        """The server's own webhooks from now on, told of all runs that servers keep; those of before are told no more."""
        ...

    async def next_delivery(self, *, without_hosts: Collection[str] = ()) -> datetime | None:
        """When the earliest delivery is due, but for these receivers."""
        ...

    async def claim_deliveries(
        self, at: datetime, *, until: datetime, limit: int, without_hosts: Collection[str] = ()
    ) -> Sequence[DueDelivery]:
        """Take on deliveries that are due, the earliest first: nobody else gets them before `until`.

        An attempt is counted with the claim. One that is not noted by then (its program died) is due again.
        """
        ...

    async def note_attempt(self, delivery: Delivery, attempt: Attempt) -> None:
        """How the attempt went. Changes nothing when another program has taken the delivery on since."""
        ...

    async def deliveries(self, run_id: str | None = None, cursor: str | None = None, limit: int = 50) -> DeliveryPage:
        """What was sent, or is to be, for one run or for all."""
        ...

    # Retention.

    async def over(self, cursor: str | None = None, limit: int = 50) -> RunPage:
        """Runs that are over, the oldest first by creation."""
        ...

    async def forget(self, run_ids: Sequence[str]) -> Sequence[str]:
        """Remove runs and all that belongs to them, for good. Returns which; a run that is not over stays."""
        ...

    async def write_nothing(self) -> None:
        """Go the way of every write without changing anything; raises `Unavailable` when nothing can be written."""
        ...

    async def check(self) -> str:
        """One line on the store's health for people; raises `Unavailable` with what to do when it is not well."""
        ...

    def changes(self) -> Changes:
        """Listen to all runs, from now on."""
        ...

    def new_events(self, run_id: str) -> NewEvents:
        """Listen to the events of one run, from now on."""
        ...

    async def close(self) -> None: ...


async def move(store: Store, run_id: str, signal: Signal, *, seen: Run | None = None) -> Run:
    """Let the lifecycle decide and store what it says; when the run has moved meanwhile, decide again.

    `seen` spares the first read; it may be old. Raises `Conflict` when the lifecycle refuses.
    """
    run, as_it_is = (await store.get(run_id), True) if seen is None else (seen, False)
    while True:
        answer = decide(run, signal)
        if isinstance(answer, Decision):
            with suppress(StaleWrite):
                return await store.apply(run, answer)
        elif as_it_is:
            if isinstance(answer, Stay):
                return run
            raise Conflict(answer.code, answer.message)
        run, as_it_is = await store.get(run_id), True
