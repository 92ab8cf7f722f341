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
class Crowd:
    """The runs that wait for their user, all together: how many, and when the last of them asked."""

    total: int
    newest_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
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
    """Events of a run, in order. `more`: others follow that are not on this page."""

    more: bool = False

    @classmethod
    def of(cls, events: Iterable[Event], *, more: bool) -> Self:
        page = cls(events)
        page.more = more
        return page


class Changes(Protocol):
    """Which runs have changed since one last looked, in this program or another on the same store.

    Holds run ids, not events: a listener that is slow costs a constant, and reads what it missed from the store.
    The value is the run as it became, or None where only events were added (of that, only a listener to the one run is
    told) or another program made the change.
    Where two programs race, a run of an older version than one that was seen already may be told: it is old news.
    A listener to all runs that is told `{UNKNOWN_RUN: None}` has to look at every run that concerns it.
    """

    async def wait(self) -> Mapping[str, Run | None]:
        """Wait until something has changed; take it all. Raises `Unavailable` once this or the store is closed."""
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

    async def crowd(self) -> Crowd:
        """All runs that wait for their user; they are counted, so ask only where one page does not hold them."""
        ...

    async def tally(self, latest: int = 500) -> Tally:
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

    def changes(self, run_id: str | None = None) -> Changes:
        """Listen to one run, or to all."""
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
