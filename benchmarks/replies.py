"""How long an engine's first instruction takes from a reply, and from a submission, beside starting the same program by hand.

python benchmarks/replies.py [--replies 100] [--sandbox off,auto]
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

import report
from servers import Server, prepare, reply, served, start_by_hand, submit, until
from thin_http import Connection, connections

SETTLE_SEC = 0.5
"""A user takes longer than this to answer."""


def by_hand(folder: Path, home: Path) -> float:
    sent = time.time_ns()
    start_by_hand(folder, home).wait()
    return (int((home / "started").read_text()) - sent) / 1e6


async def submissions(http: Connection, server: Server, count: int) -> tuple[list[str], list[float]]:
    """Runs that wait for a reply, and the milliseconds until the engine of each had started."""
    ids, delays = [], []
    for _ in range(count):
        sent = time.time_ns()
        ids.append(await submit(http, "interactive"))
        await until(http, ids[-1], "waiting_user")
        delays.append((server.started(ids[-1]) - sent) / 1e6)
    return ids, delays


async def measured(folder: Path, server: Server, count: int) -> tuple[list[float], list[float], list[float]]:
    """Milliseconds from the submission, from the reply, and by hand; the last two in turns."""
    replies, floor = [], []
    async with connections(server.url, server.token, 1) as [http]:
        ids, submitted = await submissions(http, server, count)
        await asyncio.sleep(SETTLE_SEC)
        for number, run_id in enumerate(ids):
            run = await http.get(f"/v1/runs/{run_id}")
            sent = time.time_ns()
            await reply(http, run)
            await until(http, run_id, "succeeded")
            replies.append((server.started(run_id) - sent) / 1e6)
            floor.append(by_hand(folder, server.data_dir / "by-hand" / str(number)))
    return submitted, replies, floor


def measure(asked: argparse.Namespace) -> report.Report:
    made = report.Report("replies", "Time until the engine's first instruction", "the same program, started by hand")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        for sandbox in asked.sandbox.split(","):
            report.progress(f"{asked.replies} replies, sandbox {sandbox}")
            with served(folder, folder / sandbox, sandbox=sandbox) as server:
                submitted, replies, floor = asyncio.run(measured(folder, server, asked.replies))
            made.add(f"from a reply, sandbox {sandbox}", "ms", replies, floor)
            made.add(f"from a submission, sandbox {sandbox}", "ms", submitted, floor)
    return made


if __name__ == "__main__":
    arguments = report.parser(__doc__)
    arguments.add_argument("--replies", type=int, default=100)
    arguments.add_argument("--sandbox", default="off,auto", help="values of the setting, one measurement each")
    report.run(arguments, measure)
