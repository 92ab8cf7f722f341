"""What waiting runs cost a fleet on PostgreSQL: its database, its server, and everybody else's requests.

python benchmarks/waiting_in_postgres.py [--waiting 1000,100000] [--requests 30] [--replies 10] [--rounds 3] [--idle 5]

`--waiting 10000,1000000` needs about 10 GB of disk. PostgreSQL and root are needed, as by `fleet.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path

import copied_runs
import fleets
import report
from fleet import replies
from fleets import Database, Fleet, ask
from servers import prepare, submit, until
from thin_http import connections

FEW = 100
"""Enough for a whole page."""
SETTLE_SEC = 3.0
"""Programs that have just started check a few things once."""
GROWING = ("runs", "requests", "results", "interactions", "events", "audit", "run_labels", "idempotency_keys")
SIZES = """
SELECT sum(pg_table_size(oid)), sum(pg_indexes_size(oid)) FROM pg_class
WHERE relnamespace = 'askback'::regnamespace AND relkind = 'r'
"""
SCANS = """
SELECT coalesce(sum(seq_scan), 0), coalesce(sum(seq_tup_read), 0) FROM pg_stat_user_tables
WHERE schemaname = 'askback' AND relname = ANY (%s)
"""
GETS = {
    "newest runs": "/v1/runs?limit=50",
    "waiting runs": "/v1/runs?state=waiting_user&limit=50",
    "inbox": "/v1/inbox?limit=50",
    "inbox by deadline": "/v1/inbox?limit=50&order=deadline",
    "search in the inbox": "/v1/inbox?limit=50&q=colour",
    "statistics": "/v1/stats",
    "readiness": "/readyz",
    "metrics": "/metrics",
}
Figures = dict[str, list[float]]


class Crowd:
    """A database with waiting runs."""

    def __init__(self, folder: Path, database: Database, count: int) -> None:
        self.folder = folder
        self.database = database
        self.count = count
        self.address = database.make()
        self.files = folder / "files" / str(count)
        self.files.mkdir(parents=True)
        self.figures: Figures = defaultdict(list)

    def fill(self) -> None:
        with self.programs() as fleet:
            run_id = asyncio.run(_one_that_waits(fleet))
        before = self._bytes()
        began = time.perf_counter()
        copied_runs.copy(self.address, run_id, self.count)
        report.progress(f"{self.count:,} copies in {time.perf_counter() - began:.0f} s")
        a_copy = copied_runs.shape(self.address, copied_runs.a_copy(self.address))
        assert a_copy == copied_runs.shape(self.address, run_id), (
            "the copies are not like the run that they were made from"
        )
        tables, indexes = (after - each for after, each in zip(self._bytes(), before, strict=True))
        self.figures["rows of the tables, KB/run"].append(tables / self.count / 1024)
        self.figures["indexes, KB/run"].append(indexes / self.count / 1024)

    def _bytes(self) -> tuple[float, float]:
        [(tables, indexes)] = ask(self.address, SIZES)
        return float(tables), float(indexes)

    def programs(self) -> AbstractContextManager[Fleet]:
        return fleets.fleet(self.folder, self.address, files=str(self.files))

    def measure(self, asked: argparse.Namespace) -> None:
        """Start the programs, use them, and stop them."""
        scans = ask(self.address, SCANS, (list(GROWING),))[0]
        with self.programs() as fleet:
            [server] = fleet.servers
            self.figures["start of a server, s"].append(server.start_sec)
            self.figures["memory of a server, MB"].append(server.rss_mb())
            fleet.resize(1)
            self._measure_idle(fleet, asked.idle)
            asyncio.run(self._measure_requests(fleet, asked.requests))
            claimed, started = asyncio.run(replies(fleet, asked.replies))
            self.figures["reply to claimed, ms"] += claimed
            self.figures["reply to engine started, ms"] += started
            self.figures["memory of a used server, MB"].append(server.rss_mb())
        # Connections report what they have read when they end.
        after = ask(self.address, SCANS, (list(GROWING),))[0]
        self.figures["sequential scans, times"].append(float(after[0] - scans[0]))

    def _measure_idle(self, fleet: Fleet, idle_sec: float) -> None:
        time.sleep(SETTLE_SEC)
        parts = {
            "server": lambda: fleet.cpu_sec(fleet.servers),
            "worker": lambda: fleet.cpu_sec(fleet.workers),
            "database": self.database.cpu_sec,
        }
        before = {name: part() for name, part in parts.items()}
        began = time.perf_counter()
        time.sleep(idle_sec)
        seconds = time.perf_counter() - began
        for name, part in parts.items():
            self.figures[f"CPU of an idle {name}, ms/s"].append(1000 * (part() - before[name]) / seconds)

    async def _measure_requests(self, fleet: Fleet, count: int) -> None:
        async with connections(fleet.url, fleet.token, 1) as [http]:
            for name, path in GETS.items():
                await self._time(name, count, partial(http.get_text, path))
            await self._time("submission", count, lambda: submit(http, "interactive"))

    async def _time(self, name: str, count: int, work: Callable[[], Awaitable[object]]) -> None:
        await work()
        for _ in range(count):
            began = time.perf_counter()
            await work()
            self.figures[f"{name}, ms"].append(1000 * (time.perf_counter() - began))


async def _one_that_waits(fleet: Fleet) -> str:
    """With a deadline, as each of its copies has one."""
    fleet.resize(1)
    async with connections(fleet.url, fleet.token, 1) as [http]:
        options = {"interactive_require_user_reply": False, "session_timeout_sec": 86_400}
        body = {"skill": "instant", "engine": "scripted", "mode": "interactive", "options": options}
        run_id = str((await http.post("/v1/runs", body))["id"])
        await until(http, run_id, "waiting_user")
        return run_id


def measure(asked: argparse.Namespace) -> report.Report:
    made = report.Report(
        "waiting_in_postgres", "A fleet with waiting runs in PostgreSQL", f"the same with {FEW} waiting runs"
    )
    if (reason := fleets.missing()) is not None:
        report.progress(f"left out: {reason}")
        return made
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        prepare(folder)
        database = stack.enter_context(fleets.database())
        crowds = [Crowd(folder, database, count) for count in (FEW, *report.numbers(asked.waiting))]
        for crowd in crowds:
            crowd.fill()
        for number in range(asked.rounds):
            for crowd in crowds:
                report.progress(f"{crowd.count:,} waiting, round {number + 1} of {asked.rounds}")
                crowd.measure(asked)
    few, *others = crowds
    for what in few.figures:
        name, _, unit = what.rpartition(", ")
        # A few rows have less than a page.
        floor = () if unit == "KB/run" else few.figures[what]
        for crowd in others:
            made.add(f"{name}, {crowd.count:,} waiting", unit, crowd.figures[what], floor, x=crowd.count)
    return made


if __name__ == "__main__":
    arguments = report.parser(__doc__)
    arguments.add_argument("--waiting", default="1000,100000", help="how many runs wait, one measurement each")
    arguments.add_argument("--requests", type=int, default=30, help="of each kind, in each measurement")
    arguments.add_argument("--replies", type=int, default=10, help="in each measurement")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--idle", type=float, default=5.0, help="seconds for which the idle programs are measured")
    report.run(arguments, measure)
