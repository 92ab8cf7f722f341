"""How long a worker takes to look for a job behind those of another engine, beside an empty queue.

python benchmarks/backlog.py [--queued 1000,10000,50000] [--fetches 200] [--rounds 3]
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from contextlib import closing

import fleets
import report
from fleets import ask

from askback.core.queue import Shares
from askback.store.postgres.connection import PostgresConnection
from askback.store.sql.reads import share_values

FILL = """
INSERT INTO procrastinate_jobs (queue_name, task_name, args)
SELECT '/busy', 'askback.turn', jsonb_build_object('run', 'run-' || n, 'epoch', 1) FROM generate_series(1, %s) AS n
"""
FIRST = 10
"""The server plans the first ones differently."""


def fetches(address: str, queued: int, count: int) -> list[float]:
    """Milliseconds of each. None of them finds a job."""
    ask(address, "TRUNCATE procrastinate_jobs CASCADE")
    ask(address, FILL, (queued,))
    ask(address, "VACUUM ANALYZE procrastinate_jobs")
    taken = []
    with closing(PostgresConnection.open(address)) as connection:
        worker = connection.value("SELECT worker_id FROM procrastinate_register_worker_v1()")
        wanted = {"lanes": '{"/idle": "idle"}', "fetcher": worker, **share_values(Shares(usual=3))}
        for _ in range(FIRST + count):
            began = time.perf_counter()
            assert connection.fetch(connection.sql["fetch_job"], wanted) == []
            taken.append(1000 * (time.perf_counter() - began))
    return taken[FIRST:]


def measure(asked: argparse.Namespace) -> report.Report:
    made = report.Report("backlog", "Looking for a job behind those of another engine", "an empty queue")
    if (reason := fleets.missing()) is not None:
        report.progress(f"left out: {reason}")
        return made
    counts = report.numbers(asked.queued)
    figures: dict[int, list[float]] = defaultdict(list)
    with fleets.database() as database:
        address = database.make()
        for number in range(asked.rounds):
            report.progress(f"round {number + 1} of {asked.rounds}")
            for queued in (0, *counts):
                figures[queued] += fetches(address, queued, asked.fetches)
    for queued in counts:
        made.add(f"fetch behind {queued:,} jobs", "ms", figures[queued], figures[0], x=queued)
    return made


if __name__ == "__main__":
    arguments = report.parser(__doc__)
    arguments.add_argument(
        "--queued", default="1000,10000,50000", help="jobs of the other engine, one measurement each"
    )
    arguments.add_argument("--fetches", type=int, default=200, help="in each measurement")
    arguments.add_argument("--rounds", type=int, default=3)
    report.run(arguments, measure)
