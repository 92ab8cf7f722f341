"""How a worker gets its turns: the interface of the queue."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from askback.core.queue import UNLIMITED, Shares
from askback.core.runs import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How many turns a worker can take: in all, of each engine that it knows, and of each token."""

    total: int
    engines: Mapping[str, int]
    shares: Shares = UNLIMITED

    @property
    def full_engines(self) -> Collection[str]:
        return [engine for engine, free in self.engines.items() if free <= 0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """A queued run that a worker may try to claim, and the job that brought it, if the queue has jobs."""

    run: Run
    job: int | None = None


class Turns(Protocol):
    """The queue as one worker sees it.

    A worker tries to claim every run that it takes. Each ticket is given back once: `claimed`, `done` when the run cannot be
    claimed any more, and otherwise `put_back`.
    """

    def notify(self, changed: Mapping[str, Run | None]) -> bool:
        """Take changes of the store. Returns whether a run may have been queued."""

    async def take(self, room: Room) -> Sequence[Ticket]:
        """The runs to try next, most important first; empty if there are none."""

    def claimed(self, ticket: Ticket) -> None: ...

    def done(self, ticket: Ticket) -> None: ...

    def put_back(self, ticket: Ticket) -> None:
        """Give back a run that was not tried, or of which it is not known whether it was claimed."""

    async def tend(self, wake: Callable[[], None]) -> None:
        """Maintain the queue until canceled. `wake` asks the worker to look at the queue."""

    async def close(self) -> None:
        """Finish what was given back. Never fails: what cannot be finished is found by the next program."""
