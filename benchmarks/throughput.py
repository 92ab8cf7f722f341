"""Whole runs over HTTP with an engine that ends at once, beside a bare loop that only starts the same program, in turns.

python benchmarks/throughput.py [--runs 200] [--slots 1,4,16,64] [--rounds 3] [--sandbox off,auto]
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

import report
from servers import Server, bare_loop, prepare, served, submit, until, until_none
from thin_http import Connection, connections

CLIENTS = 32
FEW = 4
"""With one slot, a fraction of the runs is enough."""


async def whole_runs(server: Server, runs: int) -> tuple[float, float]:
    """Seconds of wall time, and of the server's CPU."""
    async with connections(server.url, server.token, CLIENTS) as clients:
        await submit(clients[0], "auto")
        await until_none(clients[0], "queued", "running")
        began, cpu = time.perf_counter(), server.cpu_sec()
        left, newest = iter(range(runs)), ""

        async def submit_more(http: Connection) -> None:
            nonlocal newest
            for _ in left:
                newest = await submit(http, "auto")

        await asyncio.gather(*map(submit_more, clients))
        # One request that waits: asking again and again would cost the server as much as a run.
        await until(clients[0], newest, "succeeded")
        await until_none(clients[0], "queued", "running")
        seconds, used = time.perf_counter() - began, server.cpu_sec() - cpu
        failed = (await clients[0].get("/v1/runs?state=failed&limit=1"))["items"]
        assert not failed, failed
        return seconds, used


def rounds(folder: Path, asked: argparse.Namespace, slots: int, sandbox: str) -> list[tuple[float, float, float]]:
    """Runs per second, programs per second of the bare loop, and the server's CPU in milliseconds a run."""
    runs = max(CLIENTS, asked.runs // FEW) if slots == 1 else asked.runs
    figures = []
    with served(folder, folder / f"{sandbox}-{slots}", slots=slots, sandbox=sandbox) as server:
        for number in range(asked.rounds):
            report.progress(f"{slots} slots, sandbox {sandbox}, round {number + 1} of {asked.rounds}")
            floor = bare_loop(folder, folder / f"floor-{sandbox}-{slots}-{number}", runs, slots)
            seconds, cpu = asyncio.run(whole_runs(server, runs))
            figures.append((runs / seconds, runs / floor, 1000 * cpu / runs))
    return figures


def measure(asked: argparse.Namespace) -> report.Report:
    made = report.Report("throughput", "Whole runs over HTTP, by slots", "a bare loop that starts the same program")
    slots = report.numbers(asked.slots)
    first, *others = asked.sandbox.split(",")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        for count, sandbox in [*((each, first) for each in slots), *((slots[-1], each) for each in others)]:
            whole, floor, cpu = zip(*rounds(folder, asked, count, sandbox), strict=True)
            label = f"{count} slots, sandbox {sandbox}"
            made.add(f"runs, {label}", "/s", whole, floor, x=count, more_is_better=True)
            made.add(f"the server's own CPU time for a run, {label}", "ms", cpu, x=count)
    return made


if __name__ == "__main__":
    arguments = report.parser(__doc__)
    arguments.add_argument("--runs", type=int, default=300)
    arguments.add_argument("--slots", default="1,4,16,64", help="one measurement each")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--sandbox", default="off,auto", help="with others than the first, only the last slots")
    report.run(arguments, measure)
