"""What finished runs in the store cost: requests to a server without any and to one with many, in turns.

python benchmarks/finished_runs.py [--finished 100000] [--requests 100]
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path

import report
from servers import prepare, reply, served, submit, until
from thin_http import Connection, connections
from waiting_runs import Bench

WAITING = 50
Figures = dict[str, list[float]]


async def timed(figures: list[float], work: Callable[[], Awaitable[object]]) -> object:
    began = time.perf_counter()
    result = await work()
    figures.append((time.perf_counter() - began) * 1000)
    return result


async def one_of_each(http: Connection, figures: Figures) -> None:
    await timed(figures["list of runs"], lambda: http.get("/v1/runs?limit=20"))
    await timed(figures["list of failed runs"], lambda: http.get("/v1/runs?state=failed&limit=20"))
    await timed(figures["inbox"], lambda: http.get("/v1/inbox?limit=20"))
    run_id = str(await timed(figures["submission"], lambda: submit(http, "interactive")))
    run = await until(http, run_id, "waiting_user")
    await timed(figures["one run"], lambda: http.get(f"/v1/runs/{run_id}"))
    await timed(figures["reply"], lambda: reply(http, run))
    await timed(figures["reply to the end of the run"], lambda: until(http, run_id, "succeeded"))


async def compare(addresses: list[tuple[str, str]], requests: int) -> list[Figures]:
    figures: list[Figures] = [defaultdict(list) for _ in addresses]
    async with connections(*addresses[0], 1) as [without], connections(*addresses[1], 1) as [many]:
        for number in range(requests):
            if number % 25 == 0:
                report.progress(f"request {number} of {requests}")
            for http, seen in zip((without, many), figures, strict=True):
                await one_of_each(http, seen)
    return figures


def measure(asked: argparse.Namespace) -> report.Report:
    title = f"Requests to a server with {asked.finished:,} finished runs"
    made = report.Report("finished_runs", title, "the same with an empty store")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        report.progress(f"storing {asked.finished:,} finished runs")
        for place, finished in (("few", 1), ("many", asked.finished)):
            asyncio.run(Bench(path=folder / place / "askback.db", waiting=WAITING, finished=finished).fill(1))
        with served(folder, folder / "few") as few, served(folder, folder / "many") as many:
            addresses = [(each.url, each.token) for each in (few, many)]
            without, with_many = asyncio.run(compare(addresses, asked.requests))
    for what, seen in with_many.items():
        made.add(what, "ms", seen, without[what])
    return made


if __name__ == "__main__":
    arguments = report.parser(__doc__)
    arguments.add_argument("--finished", type=int, default=100_000)
    arguments.add_argument("--requests", type=int, default=100, help="of each kind, to each server")
    report.run(arguments, measure)
