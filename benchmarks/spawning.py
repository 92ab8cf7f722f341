"""What starting a program costs: directly, by the guardian, and by the guardian in a sandbox, side by side.

python benchmarks/spawning.py [--programs 300] [--at-once 8] [--rounds 3]

Each program is `true`, followed from its start until nothing of it lives. Each way is closed at the end of its round, so that its helpers count.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import report

from askback.process.child import OutputLimits, Spawner, SpawnRequest
from askback.process.guardian.client import Guardian
from askback.process.isolation import ResourceLimits
from askback.process.sandbox.bubblewrap import Sandboxed
from askback.process.sandbox.visibility import deny_list
from askback.process.spawn_direct import Direct
from askback.process.streams import Line


async def _nothing(_: str, __: Line) -> None:
    """Nobody looks at what is printed."""


async def one(spawner: Spawner, order: SpawnRequest) -> None:
    child = await spawner.start(order)
    await child.lines(_nothing)
    if not child.gone:
        await child.end("benchmark", grace_sec=0)
    child.close()


async def many(spawner: Spawner, order: SpawnRequest, count: int, at_once: int) -> tuple[float, float]:
    """Seconds and our own CPU seconds for `count` programs."""
    places = asyncio.Semaphore(at_once)

    async def placed() -> None:
        async with places:
            await one(spawner, order)

    wall, used = time.perf_counter(), time.process_time()
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(placed())
    return time.perf_counter() - wall, time.process_time() - used


async def measured(
    make: Callable[[], Spawner], order: SpawnRequest, count: int, at_once: int
) -> tuple[float, float, float]:
    """Seconds, our own CPU seconds, and those of all processes that took part, the program itself among them."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    spawner = make()
    await one(spawner, order)
    wall, own = await many(spawner, order, count, at_once)
    await spawner.close()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, own, own + after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


async def compare(asked: argparse.Namespace, here: Path, made: report.Report) -> None:
    limits = OutputLimits(line_bytes=1 << 16, turn_bytes=1 << 16)
    argv = (shutil.which("true") or "true",)
    resources = ResourceLimits(memory_bytes=1 << 30, processes=1024, cpu_sec=60, disk_bytes=1 << 30)
    env = {"PATH": "/usr/bin:/bin"}
    order = SpawnRequest(argv=argv, env=env, cwd=here, limits=limits, writable=(here,), resources=resources)

    def sandboxed() -> Sandboxed:
        return Sandboxed(Guardian(), hide=deny_list(homes=[Path.home()], private=[here / "data"]))

    probe = sandboxed()
    level = str((await probe.isolation()).level)
    await probe.close()
    ways: dict[str, Callable[[], Spawner]] = {"direct": Direct, "guardian": Guardian, level: sandboxed}
    rounds: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ways}
    for number in range(asked.rounds):
        report.progress(f"round {number + 1} of {asked.rounds}")
        for name, make in ways.items():
            rounds[name].append(await measured(make, order, asked.programs, asked.at_once))
    _add(made, rounds, asked.programs)


def _add(made: report.Report, rounds: dict[str, list[tuple[float, float, float]]], count: int) -> None:
    direct = list(zip(*rounds.pop("direct"), strict=True))
    for name, results in rounds.items():
        walls, own, everybody = zip(*results, strict=True)
        rates = [count / each for each in walls]
        made.add(f"{name}: programs", "/s", rates, [count / each for each in direct[0]], more_is_better=True)
        for what, seen, floor in (("our own CPU", own, direct[1]), ("CPU in all", everybody, direct[2])):
            each, least = ([1000 * sec / count for sec in column] for column in (seen, floor))
            made.add(f"{name}: {what}, a program", "ms", each, least)


def measure(asked: argparse.Namespace) -> report.Report:
    made = report.Report("spawning", "Starting a program, and following it to its end", "started directly")
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(compare(asked, Path(folder), made))
    return made


if __name__ == "__main__":
    arguments = report.parser(__doc__)
    arguments.add_argument("--programs", type=int, default=300)
    arguments.add_argument("--at-once", type=int, default=8)
    arguments.add_argument("--rounds", type=int, default=3)
    report.run(arguments, measure)
