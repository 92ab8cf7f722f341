"""What starting a program costs: directly, by the guardian, and by the guardian in a sandbox, side by side.

    python benchmarks/spawning.py [COUNT] [AT_ONCE]

Each program is `true`, followed from its start until nothing of it lives. CPU is that of our own process alone.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path

from askback.process.child import Order, OutputLimits, Spawner
from askback.process.direct import Direct
from askback.process.guardian import Guardian
from askback.process.lines import Line
from askback.process.sandbox import Sandboxed

ROUNDS = 3


async def _nothing(_: str, __: Line) -> None:
    """Nobody looks at what is printed."""


async def one(spawner: Spawner, order: Order) -> None:
    child = await spawner.start(order)
    await child.lines(_nothing)
    if not child.gone:
        await child.end("benchmark", grace_sec=0)
    child.close()


async def many(spawner: Spawner, order: Order, count: int, at_once: int) -> tuple[float, float]:
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


async def main(count: int, at_once: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        limits = OutputLimits(line_bytes=1 << 16, turn_bytes=1 << 16)
        argv = (shutil.which("true") or "true",)
        order = Order(argv=argv, env={"PATH": "/usr/bin:/bin"}, cwd=here, limits=limits, writable=(here,))
        sandboxed = Sandboxed(Guardian(), home=Path.home(), data_dir=here / "data")
        confinement = await sandboxed.confinement()
        ways: dict[str, Spawner] = {"direct": Direct(), "guardian": Guardian(), str(confinement.in_force): sandboxed}
        print(f"{count} programs, {at_once} at once, best of {ROUNDS} rounds")
        best: dict[str, tuple[float, float]] = {}
        for spawner in ways.values():
            await one(spawner, order)
        for _ in range(ROUNDS):
            for name, spawner in ways.items():
                best[name] = min(best.get(name, (1e9, 1e9)), await many(spawner, order, count, at_once))
        for name, (wall, used) in best.items():
            print(f"{name:<12} {count / wall:7.0f} programs/s   {1000 * used / count:6.2f} ms of our own CPU each")
        for spawner in ways.values():
            await spawner.close()


if __name__ == "__main__":
    asyncio.run(main(*(int(word) for word in (*sys.argv[1:], "300", "8")[:2])))
