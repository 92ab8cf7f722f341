"""Writes that put the queue in order: jobs that were fetched and not used, and runs whose jobs are lost."""

from __future__ import annotations

from dataclasses import dataclass

from askback.core.runs import Run
from askback.store.sql import rows
from askback.store.sql.connection import Connection
from askback.store.sql.writes import Change, Write

_BATCH = 1000
_CLAIM_SEC = 10.0
"""How long a worker may take from a fetched job to the claim of its run. A slower one finds that another was faster."""
_WORKER_SEC = 3600.0
"""When the row of a worker that has died is removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Return(Write):
    """Puts a fetched job back: another one takes its place if the run still waits for it."""

    job: int
    run_id: str

    @property
    def subject(self) -> str:
        return self.run_id

    def write(self, connection: Connection) -> Change:
        sql = connection.statements("queue")
        for run_id, epoch in connection.fetch(sql["remove_job"], {"job": self.job}):
            for (doc,) in connection.fetch(sql["still_queued"], {"id": run_id, "epoch": epoch}):
                run = rows.load_run(doc)
                _defer(connection, run)
                return Change(run=run, changed_id=run.id)
        return Change()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRepair(Write):
    """Removes jobs that nobody works on, and makes those that are missing."""

    def write(self, connection: Connection) -> Change:
        connection.exclude_others("queue")
        sql = connection.statements("queue")
        connection.execute(sql["forget_workers"], {"worker_sec": _WORKER_SEC})
        connection.execute(sql["remove_stalled"], {"claim_sec": _CLAIM_SEC})
        lost = [rows.load_run(doc) for (doc,) in connection.fetch(sql["without_job"], {"limit": _BATCH})]
        for run in lost:
            _defer(connection, run)
        return Change(requeued=tuple(run.id for run in lost))


def needs_repair(connection: Connection) -> bool:
    """Whether `QueueRepair` would change anything: this only reads."""
    patience = {"worker_sec": _WORKER_SEC, "claim_sec": _CLAIM_SEC}
    return bool(connection.value(connection.statements("queue")["needs_repair"], patience))


def _defer(connection: Connection, run: Run) -> None:
    """Jobs name their run by its id, so that its number is not needed."""
    connection.places.add(0, run)
