"""Workers on PostgreSQL beside a server that does everything on SQLite, and beside Procrastinate alone, in turns.

python benchmarks/fleet.py [--runs 200] [--replies 40] [--workers 1,2,4] [--rounds 3] [--slots 16]

Needs PostgreSQL, and root for the mount namespace that makes each program a machine of its own. Every machine shares the
two cores, the disk and the network of this one: what is seen here is the cost of a turn, not the speed of ten machines.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import bare_queue
import fleets
import report
from fleets import Database, Fleet
from servers import Server, prepare, reply, served, submit, until, until_none
from thin_http import Connection, connections

CLIENTS = 16
EMBEDDED = "embedded"
Figures = dict[str, dict[str, list[float]]]
"""What was measured, by the name of the installation and the name of the figure."""
Installation = Server | Fleet


# What clients do.


async def whole_runs(target: Installation, runs: int) -> float:
    """Seconds until all are over. Each has one turn."""
    async with connections(target.url, target.token, CLIENTS) as clients:
        began = time.perf_counter()
        left = iter(range(runs))
        ids = await asyncio.gather(*(_submit_more(http, left) for http in clients))
        await until(clients[0], [each for some in ids for each in some][-1], "succeeded")
        await until_none(clients[0], "queued", "running")
        seconds = time.perf_counter() - began
        assert not (await clients[0].get("/v1/runs?state=failed&limit=1"))["items"]
        return seconds


async def _submit_more(http: Connection, left: Any) -> list[str]:
    return [await submit(http, "auto") for _ in left]


async def replies(target: Installation, count: int) -> tuple[list[float], list[float]]:
    """Milliseconds from a reply to the claim of its turn, and to the first instruction of the engine. One at a time."""
    claimed, started = [], []
    async with connections(target.url, target.token, 1) as [http]:
        ids = [await submit(http, "interactive") for _ in range(count)]
        for run_id in ids:
            await until(http, run_id, "waiting_user")
        for run_id in ids:
            run = await http.get(f"/v1/runs/{run_id}")
            sent = time.time_ns()
            await reply(http, run)
            await until(http, run_id, "succeeded")
            started.append((target.started(run_id) - sent) / 1e6)
            claimed.append(await _claimed_ns(http, run_id) / 1e6 - sent / 1e6)
    return claimed, started


async def _claimed_ns(http: Connection, run_id: str) -> float:
    """As the clock of the database says, which is that of this machine."""
    events = (await http.get(f"/v1/runs/{run_id}/events"))["items"]
    at = [each["at"] for each in events if each["type"] == "turn.started"][-1]
    return datetime.fromisoformat(at).timestamp() * 1e9


# One round.


def measure_embedded(server: Server, asked: argparse.Namespace, figures: Figures) -> None:
    noted = figures[EMBEDDED]
    cpu = server.cpu_sec()
    noted["turns"].append(asked.runs / asyncio.run(whole_runs(server, asked.runs)))
    noted["cpu"].append(1000 * (server.cpu_sec() - cpu) / asked.runs)
    _note_replies(server, asked, noted)


def measure_fleet(fleet: Fleet, database: Database, workers: int, asked: argparse.Namespace, figures: Figures) -> None:
    noted = figures[f"{workers} workers"]
    fleet.resize(workers)
    before = database.usage(), fleet.cpu_sec(fleet.servers), fleet.cpu_sec(fleet.workers)
    noted["turns"].append(asked.runs / asyncio.run(whole_runs(fleet, asked.runs)))
    used = database.usage() - before[0]
    server_sec = fleet.cpu_sec(fleet.servers) - before[1]
    worker_sec = fleet.cpu_sec(fleet.workers) - before[2]
    noted["server cpu"].append(1000 * server_sec / asked.runs)
    noted["worker cpu"].append(1000 * worker_sec / asked.runs)
    noted["database cpu"].append(1000 * used.cpu_sec / asked.runs)
    noted["cpu"].append(1000 * (server_sec + worker_sec + used.cpu_sec) / asked.runs)
    _note_replies(fleet, asked, noted)


def _note_replies(target: Installation, asked: argparse.Namespace, noted: dict[str, list[float]]) -> None:
    claimed, started = asyncio.run(replies(target, asked.replies))
    noted["claimed"] += claimed
    noted["started"] += started


def measure_bare(address: str, database: Database, workers: int, asked: argparse.Namespace, figures: Figures) -> None:
    noted = figures[f"bare {workers}"]
    before = database.usage()
    rate, worker_ms = bare_queue.jobs_per_sec(address, asked.runs, workers, CLIENTS)
    noted["turns"].append(rate)
    noted["cpu"].append(worker_ms + 1000 * (database.usage() - before).cpu_sec / asked.runs)


def rounds(folder: Path, asked: argparse.Namespace, counts: list[int]) -> Figures:
    figures: Figures = defaultdict(lambda: defaultdict(list))
    with ExitStack() as stack:
        database = stack.enter_context(fleets.database())
        bare = database.make_empty()
        asyncio.run(bare_queue.prepare(bare))
        fleet = stack.enter_context(fleets.fleet(folder, database.make(), slots=asked.slots))
        server = stack.enter_context(served(folder, folder / "embedded", slots=asked.slots))
        fleet.resize(1)
        # The first turn of each has to read what the others have in memory.
        for target in (server, fleet):
            asyncio.run(whole_runs(target, 1))
        for number in range(asked.rounds):
            report.progress(f"round {number + 1} of {asked.rounds}: embedded")
            measure_embedded(server, asked, figures)
            for workers in counts:
                report.progress(f"round {number + 1} of {asked.rounds}: {workers} workers")
                measure_fleet(fleet, database, workers, asked, figures)
                measure_bare(bare, database, workers, asked, figures)
    return figures


# The report.


def measure(asked: argparse.Namespace) -> report.Report:
    made = report.Report(
        "fleet", "A fleet on PostgreSQL, by workers on one machine", "the embedded mode: one server on SQLite"
    )
    if (reason := fleets.missing()) is not None:
        report.progress(f"left out: {reason}")
        return made
    counts = report.numbers(asked.workers)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        figures = rounds(folder, asked, counts)
    embedded = figures[EMBEDDED]
    for count in counts:
        seen, bare = figures[f"{count} workers"], figures[f"bare {count}"]
        label = f"{count} workers"
        made.add(f"turns, {label}", "/s", seen["turns"], embedded["turns"], x=count, more_is_better=True)
        made.add(
            f"empty jobs of Procrastinate alone, {label}",
            "/s",
            bare["turns"],
            embedded["turns"],
            x=count,
            more_is_better=True,
        )
        made.add(f"CPU time of a turn, {label}", "ms", seen["cpu"], embedded["cpu"], x=count)
        for part in ("server", "worker", "database"):
            made.add(f"of it in the {part}, {label}", "ms", seen[f"{part} cpu"], x=count)
        made.add(f"CPU time of an empty job, {label}", "ms", bare["cpu"], embedded["cpu"], x=count)
        made.add(f"reply to claimed, {label}", "ms", seen["claimed"], embedded["claimed"], x=count)
        made.add(f"reply to engine started, {label}", "ms", seen["started"], embedded["started"], x=count)
    return made


if __name__ == "__main__":
    arguments = report.parser(__doc__)
    arguments.add_argument("--runs", type=int, default=200, help="in each measurement")
    arguments.add_argument("--replies", type=int, default=40, help="in each measurement")
    arguments.add_argument("--workers", default="1,2,4", help="one measurement each")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--slots", type=int, default=16, help="of each worker")
    report.run(arguments, measure)
