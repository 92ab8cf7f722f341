"""The queue in PostgreSQL: jobs of Procrastinate, and how lost ones are made again.

A job has a run and an epoch, and is only a hint: it is worth something as long as the run is queued under that epoch.
Every claim raises the epoch. The queue of a job is the lane of the run: its owner and its engine. Jobs of an earlier
version have no party until they are put back.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from typing import Any

import procrastinate
import psycopg
from procrastinate import exceptions

from askback.core.queue import party, priority
from askback.core.runs import Run
from askback.store.sql import rows
from askback.store.sql.connection import Connection
from askback.store.sql.writes import Change

TASK = "askback.turn"
_NO_NUMBER = 0
"""Jobs name their run by its id, so that its number is not needed."""
_MAX_LANE = 128
"""The longest name that Procrastinate stores."""
_REPAIRED_AT_ONCE = 1000
_CLAIM_SEC = 10.0
"""How long a worker may take from a fetched job to the claim of its run. A slower one finds that another was faster."""
_WORKER_SEC = 3600.0
"""When the row of a worker that has died is removed."""

# Every job would be a line in the log.
logging.getLogger("procrastinate").setLevel(logging.WARNING)

# It is never opened: each job is added with the connection, and in the transaction, of the change that needs it.
_app = procrastinate.App(connector=procrastinate.SyncPsycopgConnector())


def lane(owner: str, engine: str) -> str:
    name = f"{owner}/{engine}".replace("\x00", "\ufffd")
    return name if len(name) <= _MAX_LANE else hashlib.sha256(name.encode()).hexdigest()


class JobQueue:
    """Implements `store.sql.connection.QueueWriter`."""

    def __init__(self, connection: Connection, raw: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._raw = raw

    def add(self, number: int, run: Run) -> None:
        job = _app.configure_task(
            TASK, queue=lane(run.owner, run.engine), priority=int(priority(run)), connection=self._raw
        )
        try:
            job.defer(run=run.id, epoch=run.epoch, party=party(run))
        except exceptions.ConnectorException as error:
            raise error.__cause__ or error from None

    def remove(self, number: int, before: Run, *, claimed: bool) -> None:
        """A claim makes every job of the run worthless. Otherwise, one that was fetched belongs to the worker that has it."""
        self._connection.execute(self._connection.sql["remove_job_of_run"], {"id": before.id, "claimed": claimed})

    def hand_over(self, number: int, run: Run) -> None:
        moved = {"id": run.id, "epoch": run.epoch, "lane": lane(run.owner, run.engine)}
        if not self._connection.fetch(self._connection.sql["hand_over"], moved):
            # The earlier owner has fetched it.
            self.add(number, run)

    def forget(self, run_id: str) -> None:
        self._connection.execute(self._connection.sql["forget_jobs"], {"id": run_id})


def return_job(connection: Connection, job: int) -> Change:
    """Put a fetched job back: another one takes its place if the run still waits for it."""
    for run_id, epoch in connection.fetch(connection.sql["remove_job"], {"job": job}):
        for (doc,) in connection.fetch(connection.sql["still_queued"], {"id": run_id, "epoch": epoch}):
            run = rows.load_run(doc)
            connection.queue.add(_NO_NUMBER, run)
            return Change(run=run, changed_id=run.id)
    return Change()


def needs_repair(connection: Connection) -> bool:
    """Whether `repair` would change anything."""
    patience = {"worker_sec": _WORKER_SEC, "claim_sec": _CLAIM_SEC}
    return bool(connection.value(connection.sql["needs_repair"], patience))


def repair(connection: Connection) -> Sequence[str]:
    """Remove jobs that nobody works on, and make those that are missing. Returns the runs of the latter."""
    connection.exclude_others("queue")
    connection.execute(connection.sql["forget_workers"], {"worker_sec": _WORKER_SEC})
    connection.execute(connection.sql["remove_stalled"], {"claim_sec": _CLAIM_SEC})
    found = connection.fetch(connection.sql["without_job"], {"limit": _REPAIRED_AT_ONCE})
    lost = [rows.load_run(doc) for (doc,) in found]
    for run in lost:
        connection.queue.add(_NO_NUMBER, run)
    return tuple(run.id for run in lost)
