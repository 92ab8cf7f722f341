"""What waiting runs cost a server: its start, its memory, its idle CPU time, and the first reply after a restart.

python benchmarks/server.py [--waiting 100,10000,100000] [--rounds 3] [--idle 3]
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import report
from servers import Server, prepare, reply, served, submit, until
from thin_http import connections
from waiting_runs import Bench

FEW = 10
SETTLE_SEC = 1.5
"""A server that has just started checks a few things once."""
Figures = dict[str, list[float]]


async def one_more_waits(server: Server) -> str:
    """A run with files among the copies, to be answered after the restart."""
    async with connections(server.url, server.token, 1) as [http]:
        run_id = await submit(http, "interactive")
        await until(http, run_id, "waiting_user")
        return run_id


async def first_reply(server: Server, run_id: str) -> float:
    async with connections(server.url, server.token, 1) as [http]:
        run = await http.get(f"/v1/runs/{run_id}")
        sent = time.time_ns()
        await reply(http, run)
        await until(http, run_id, "succeeded")
        return (server.started(run_id) - sent) / 1e6


def once(folder: Path, data_dir: Path, idle_sec: float, figures: Figures) -> None:
    with served(folder, data_dir) as server:
        run_id = asyncio.run(one_more_waits(server))
    with served(folder, data_dir) as server:
        figures["start to healthy, s"].append(server.start_sec)
        figures["memory, MB"].append(server.rss_mb())
        time.sleep(SETTLE_SEC)
        cpu, began = server.cpu_sec(), time.perf_counter()
        time.sleep(idle_sec)
        figures["idle CPU, ms/s"].append(1000 * (server.cpu_sec() - cpu) / (time.perf_counter() - began))
        figures["first reply to engine started, ms"].append(asyncio.run(first_reply(server, run_id)))


def measure(asked: argparse.Namespace) -> report.Report:
    made = report.Report("server", "A server with waiting runs, after a restart", f"the same with {FEW} waiting runs")
    counts = [FEW, *report.numbers(asked.waiting)]
    figures: dict[int, Figures] = {count: defaultdict(list) for count in counts}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        for count in counts:
            report.progress(f"storing {count:,} waiting runs")
            asyncio.run(Bench(path=folder / str(count) / "askback.db", waiting=count, finished=1).fill(1))
        for number in range(asked.rounds):
            for count in counts:
                report.progress(f"{count:,} waiting, round {number + 1} of {asked.rounds}")
                once(folder, folder / str(count), asked.idle, figures[count])
    for what in figures[FEW]:
        name, _, unit = what.rpartition(", ")
        for count in counts[1:]:
            made.add(f"{name}, {count:,} waiting", unit, figures[count][what], figures[FEW][what], x=count)
    return made


if __name__ == "__main__":
    arguments = report.parser(__doc__)
    arguments.add_argument("--waiting", default="100,10000,100000", help="how many runs wait, one measurement each")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--idle", type=float, default=3.0, help="seconds for which the idle server is measured")
    report.run(arguments, measure)
