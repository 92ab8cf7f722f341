"""The queue in SQLite: its rows, which are written with the runs, and how one worker reads them.

A worker reads the queue once and then follows the changes that the store reports. That saves a read for every run that is
queued and for every slot that becomes free.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

from askback.core.queue import UNLIMITED, Shares, party, priority
from askback.core.runs import Run, RunState
from askback.store.base import Store
from askback.store.sql.connection import Connection
from askback.store.turns import Room, Ticket


class QueueRows:
    """Rows of the table `queue`, one for every run that is queued. Implements `store.sql.connection.QueueWriter`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, number: int, run: Run) -> None:
        row = {"run": number, "owner": run.owner, "engine": run.engine, "priority": int(priority(run))}
        self._connection.execute(self._connection.sql["enqueue"], row | {"party": party(run)})

    def remove(self, number: int, before: Run, *, claimed: bool) -> None:
        self._connection.execute(self._connection.sql["dequeue"], {"run": number})
        if claimed:
            served = {"party": party(before), "priority": int(priority(before))}
            self._connection.execute(self._connection.sql["serve"], served)

    def hand_over(self, number: int, run: Run) -> None:
        self._connection.execute(self._connection.sql["hand_over"], {"run": number, "owner": run.owner})

    def forget(self, run_id: str) -> None:
        """Nothing: a run that may be deleted is not queued."""


class QueueView:
    """Implements `store.turns.Turns` for a queue without jobs: a claim takes the run out of it."""

    def __init__(self, store: Store, owners: Collection[str]) -> None:
        self._store = store
        self._owners = owners
        self._fresh: list[Run] = []
        """Queued since the queue was last read, in order."""
        self._complete = False
        """Whether nothing but `_fresh` can be in the queue."""
        self._outdated = False
        """Whether the queue may have changed in an unknown way since the last read began."""
        self._read: set[tuple[str, int]] = set()
        """Ids and versions of the runs that were last read. Their changes may be reported after that."""

    def notify(self, changed: Mapping[str, Run | None]) -> bool:
        """Take changes of the store. Returns whether a run may have been queued."""
        if None in changed.values():
            self._complete, self._outdated = False, True
            return True
        queued = [run for run in changed.values() if run is not None and run.state is RunState.QUEUED]
        self._fresh += [run for run in queued if run.owner in self._owners and (run.id, run.version) not in self._read]
        return bool(queued)

    async def take(self, room: Room) -> Sequence[Ticket]:
        runs = await self.heads(without_engines=room.full_engines, limit=room.total, shares=room.shares)
        return [Ticket(run=run) for run in runs]

    def claimed(self, ticket: Ticket) -> None:
        """Nothing: the run is not in the queue any more."""

    done = claimed

    def put_back(self, ticket: Ticket) -> None:
        self._complete, self._outdated = False, True

    async def tend(self, wake: Callable[[], None]) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        pass

    async def heads(self, *, without_engines: Collection[str], limit: int, shares: Shares = UNLIMITED) -> Sequence[Run]:
        """The runs to take next; empty if there are none. The claim refuses those that exceed the share of a token."""
        fresh, self._fresh = self._fresh, []
        if self._complete and not without_engines and len(fresh) <= limit:
            return sorted(fresh, key=priority, reverse=True)
        if self._complete and not fresh:
            return ()
        # Until the read is done, others rely on nothing. What is queued meanwhile is noted.
        self._complete, self._outdated = False, False
        runs = await self._store.queued(self._owners, without_engines=without_engines, limit=limit, shares=shares)
        self._read = {(run.id, run.version) for run in runs}
        self._fresh = [run for run in self._fresh if (run.id, run.version) not in self._read]
        self._complete = not (len(runs) == limit or runs.held_back or without_engines or self._outdated)
        return runs
