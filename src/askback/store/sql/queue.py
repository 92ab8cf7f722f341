"""The places of runs in the queue, kept in the transaction that changes the runs."""

from __future__ import annotations

from askback.core.priorities import priority
from askback.core.runs import Run, RunState
from askback.store.sql.connection import Connection


class PlaceRows:
    """Rows of the table `queue`, one for every run that is queued. Implements `store.sql.places.Places`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sql = connection.statements("queue")

    def add(self, number: int, run: Run) -> None:
        place = {"run": number, "owner": run.owner, "engine": run.engine, "priority": int(priority(run))}
        self._connection.execute(self._sql["enqueue"], place)

    def remove(self, number: int) -> None:
        self._connection.execute(self._sql["dequeue"], {"run": number})

    def hand_over(self, number: int, run: Run) -> None:
        self._connection.execute(self._sql["hand_over"], {"run": number, "owner": run.owner})

    def forget(self, run_id: str) -> None:
        """Nothing: a run that may be deleted is not queued."""


def keep_place(connection: Connection, number: int, before: Run | None, run: Run) -> None:
    """Keep a run in the queue exactly while it is queued."""
    was_queued = before is not None and before.state is RunState.QUEUED
    is_queued = run.state is RunState.QUEUED
    if is_queued and not was_queued:
        connection.places.add(number, run)
    elif was_queued and not is_queued:
        connection.places.remove(number)
    elif is_queued and before is not None and before.owner != run.owner:
        connection.places.hand_over(number, run)
