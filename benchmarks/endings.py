"""How long it takes to end a program that exits by itself at the same moment.

python benchmarks/endings.py [--programs 2000] [--at-once 4] [--spread-ms 20]

Each program exits when its standard input closes. It is asked to end in the same instant, with the grace of a turn. The
pause between the two differs from program to program, so that the request meets every stage of the exit. The floor is a
tenth of as many programs without a sandbox.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path

import report

from askback.process.child import OutputLimits, Pipe, Spawner, SpawnRequest
from askback.process.guardian.client import Guardian
from askback.process.sandbox.bubblewrap import Sandboxed
from askback.process.sandbox.visibility import deny_list
from askback.process.streams import Line

GRACE_SEC = 3.0
LATE_SEC = 2.0
PROGRAM = ("/bin/cat",)


async def _nothing(_: str, __: Line) -> None:
    """Nobody looks at what is printed."""


async def ending(spawner: Spawner, order: SpawnRequest, pause_sec: float) -> float:
    """The seconds from the request to end until nothing of the program is alive."""
    child = await spawner.start(order)
    reading = asyncio.create_task(child.lines(_nothing))
    await child.send(b"ready\n")
    assert child._streams.stdin is not None
    stdin, child._streams.stdin = child._streams.stdin, None
    os.close(stdin)
    if pause_sec < 0:
        await child.exited()
    else:
        await asyncio.sleep(pause_sec)
    began = time.perf_counter()
    ended = await child.end("endings", grace_sec=GRACE_SEC)
    took = time.perf_counter() - began
    assert ended
    await reading
    child.close()
    return took


async def all_endings(spawner: Spawner, asked: argparse.Namespace, count: int, here: Path) -> list[float]:
    limits = OutputLimits(line_bytes=1 << 16, turn_bytes=1 << 16)
    order = SpawnRequest(argv=PROGRAM, env={}, cwd=here, limits=limits, writable=(here,), stdin=Pipe.OPEN)
    places, taken = asyncio.Semaphore(asked.at_once), list[float]()

    async def placed(number: int) -> None:
        # Every second one is ended as soon as its exit is known, as at the end of a turn.
        pause_sec = -1 if number % 2 else asked.spread_ms / 1000 * (number % 50) / 50
        async with places:
            taken.append(await ending(spawner, order, pause_sec))
            if len(taken) % 200 == 0:
                report.progress(f"{len(taken)} of {count}, longest {max(taken):.2f} s")

    try:
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(placed(number))
    finally:
        await spawner.close()
    return sorted(taken)


def measure(asked: argparse.Namespace) -> report.Report:
    made = report.Report("endings", "Ending a program that exits at the same moment", "without a sandbox")
    with tempfile.TemporaryDirectory() as folder:
        taken, floor = asyncio.run(compare(asked, Path(folder)))
    made.add("until nothing is alive", "ms", [1000 * each for each in taken], [1000 * each for each in floor])
    made.add("the longest", "ms", [1000 * max(taken)], [1000 * max(floor)])
    late = [[float(sum(each > LATE_SEC for each in times))] for times in (taken, floor)]
    made.add(f"longer than {LATE_SEC:.0f} s", "programs", *late)
    return made


async def compare(asked: argparse.Namespace, here: Path) -> tuple[list[float], list[float]]:
    sandboxed = Sandboxed(Guardian(), hide=deny_list(homes=[Path.home()], private=[here / "data"]))
    taken = await all_endings(sandboxed, asked, asked.programs, here)
    return taken, await all_endings(Guardian(), asked, max(1, asked.programs // 10), here)


if __name__ == "__main__":
    arguments = report.parser(__doc__)
    arguments.add_argument("--programs", type=int, default=2000)
    arguments.add_argument("--at-once", type=int, default=4)
    arguments.add_argument("--spread-ms", type=float, default=20)
    report.run(arguments, measure)
