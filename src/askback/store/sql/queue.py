"""The places of runs in the queue, kept in the transaction that changes the runs."""

from __future__ import annotations

from askback.core.queue import party, priority
from askback.core.runs import Run, RunState
from askback.store.sql.connection import Connection


class PlaceRows:
    """Rows of the table `queue`, one for every run that is queued. Implements `store.sql.places.Places`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sql = connection.statements("queue")

    def add(self, number: int, run: Run) -> None:
        place = {"run": number, "owner": run.owner, "engine": run.engine, "priority": int(priority(run))}
        self._connection.execute(self._sql["enqueue"], place | {"party": party(run)})

    def remove(self, number: int, before: Run, *, claimed: bool) -> None:
        self._connection.execute(self._sql["dequeue"], {"run": number})
        if claimed:
            served = {"party": party(before), "priority": int(priority(before))}
            self._connection.execute(self._sql["serve"], served)

    def hand_over(self, number: int, run: Run) -> None:
        self._connection.execute(self._sql["hand_over"], {"run": number, "owner": run.owner})

    def forget(self, run_id: str) -> None:
        """Nothing: a run that may be deleted is not queued."""


def keep_place(connection: Connection, number: int, before: Run | None, run: Run) -> None:
    """Keep a run in the queue exactly while it is queued."""
    is_queued = run.state is RunState.QUEUED
    if before is None or before.state is not RunState.QUEUED:
        if is_queued:
            connection.places.add(number, run)
    elif not is_queued:
        connection.places.remove(number, before, claimed=run.state is RunState.RUNNING)
    elif before.owner != run.owner:
        connection.places.hand_over(number, run)
