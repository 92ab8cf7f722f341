"""The places of runs in the queue, as jobs of Procrastinate.

A job has a run and an epoch, and is only a hint: it is worth something as long as the run is queued under that epoch.
Every claim raises the epoch. The queue of a job is the lane of the run: its owner and its engine. Jobs of an earlier
version have no party until they are put back.
"""

from __future__ import annotations

import hashlib
import logging
from typing import Any

import procrastinate
import psycopg
from procrastinate import exceptions

from askback.core.queue import party, priority
from askback.core.runs import Run
from askback.store.sql.connection import Connection

TASK = "askback.turn"
_MAX_LANE = 128
"""The longest name that Procrastinate stores."""

# Every job would be a line in the log.
logging.getLogger("procrastinate").setLevel(logging.WARNING)

# It is never opened: each job is added with the connection, and in the transaction, of the change that needs it.
_app = procrastinate.App(connector=procrastinate.SyncPsycopgConnector())


def lane(owner: str, engine: str) -> str:
    name = f"{owner}/{engine}".replace("\x00", "\ufffd")
    return name if len(name) <= _MAX_LANE else hashlib.sha256(name.encode()).hexdigest()


class JobPlaces:
    """Implements `store.sql.places.Places`."""

    def __init__(self, connection: Connection, raw: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._raw = raw
        self._sql = connection.statements("queue")

    def add(self, number: int, run: Run) -> None:
        job = _app.configure_task(
            TASK, queue=lane(run.owner, run.engine), priority=int(priority(run)), connection=self._raw
        )
        try:
            job.defer(run=run.id, epoch=run.epoch, party=party(run))
        except exceptions.ConnectorException as error:
            raise error.__cause__ or error from None

    def remove(self, number: int, before: Run, *, claimed: bool) -> None:
        """A job that was fetched belongs to the worker that has it."""
        self._connection.execute(self._sql["remove"], {"id": before.id})

    def hand_over(self, number: int, run: Run) -> None:
        moved = {"id": run.id, "epoch": run.epoch, "lane": lane(run.owner, run.engine)}
        if not self._connection.fetch(self._sql["hand_over"], moved):
            # The earlier owner has fetched it.
            self.add(number, run)

    def forget(self, run_id: str) -> None:
        self._connection.execute(self._sql["forget"], {"id": run_id})
