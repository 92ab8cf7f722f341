"""What starting a program costs: directly, by the guardian, and by the guardian in a sandbox, side by side.

    python benchmarks/spawning.py [COUNT] [AT_ONCE]

Each program is `true`, followed from its start until nothing of it lives. Each way is closed at the end of its round, so that its helpers count.
"""

from __future__ import annotations

import asyncio
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from askback.process.child import OutputLimits, Spawner, SpawnRequest
from askback.process.guardian.client import Guardian
from askback.process.isolation import ResourceLimits
from askback.process.sandbox.bubblewrap import Sandboxed
from askback.process.spawn_direct import Direct
from askback.process.streams import Line

ROUNDS = 3


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


async def main(count: int, at_once: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        limits = OutputLimits(line_bytes=1 << 16, turn_bytes=1 << 16)
        argv = (shutil.which("true") or "true",)
        env = {"PATH": "/usr/bin:/bin"}
        resources = ResourceLimits(memory_bytes=1 << 30, processes=1024, cpu_sec=60, disk_bytes=1 << 30)
        order = SpawnRequest(argv=argv, env=env, cwd=here, limits=limits, writable=(here,), resources=resources)

        def sandboxed() -> Sandboxed:
            return Sandboxed(Guardian(), home=Path.home(), data_dir=here / "data")

        probe = sandboxed()
        level = str((await probe.isolation()).level)
        await probe.close()
        ways: dict[str, Callable[[], Spawner]] = {"direct": Direct, "guardian": Guardian, level: sandboxed}
        print(f"{count} programs, {at_once} at once, best of {ROUNDS} rounds")
        rounds: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, make in ways.items():
                rounds[name].append(await measured(make, order, count, at_once))
        for name, results in rounds.items():
            wall, own, everybody = (min(column) for column in zip(*results, strict=True))
            figures = f"{1000 * own / count:6.2f} ms of our own CPU each, {1000 * everybody / count:6.2f} ms in all"
            print(f"{name:<12} {count / wall:7.0f} programs/s   {figures}")


if __name__ == "__main__":
    asyncio.run(main(*(int(word) for word in (*sys.argv[1:], "300", "8")[:2])))
