"""Engines that do everything to outlive a turn, against every way to interrupt a turn. Verified in `/proc`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hostile import HOSTILE, Hostile, children, is_alive, within

from askback.process.child import Child, OutputLimits, SpawnRequest
from askback.process.guardian.client import Guardian, available

pytestmark = pytest.mark.skipif(not available(), reason="no guardian on this system")

LIMITS = OutputLimits(line_bytes=1 << 20, turn_bytes=1 << 24)
ENV = {"PATH": "/usr/bin:/bin"}
# A minimal program that uses a guardian.
PROGRAM = """
import asyncio, json, sys
from pathlib import Path
from askback.process.child import OutputLimits, SpawnRequest
from askback.process.guardian.client import Guardian
async def main():
    guardian = Guardian()
    limits = OutputLimits(line_bytes=1000, turn_bytes=1000)
    orders = [SpawnRequest(argv=argv, env={}, cwd=Path("/"), limits=limits) for argv in (["/bin/true"], json.loads(sys.argv[1]))]
    (await guardian.start(orders[0])).close()
    # Printed before there is a child that may kill it.
    print(guardian.pid, flush=True)
    child = await guardian.start(orders[1])
    await asyncio.sleep(600)
asyncio.run(main())
"""


@pytest.mark.contract("B-2")
@pytest.mark.parametrize("kind", HOSTILE)
def test_nothing_of_a_hostile_engine_survives_its_end(tmp_path: Path, kind: str) -> None:
    async def main(guardian: Guardian, hostile: Hostile, child: Child) -> None:
        assert await child.end("", grace_sec=0.1)
        assert hostile.survivors() == []

    _with_hostile(kind, tmp_path, main)


@pytest.mark.contract("B-2", "B-3")
@pytest.mark.parametrize("kind", HOSTILE)
def test_nothing_of_a_hostile_engine_survives_a_kill_of_our_program(tmp_path: Path, kind: str) -> None:
    hostile = Hostile(kind, tmp_path)
    with subprocess.Popen([sys.executable, "-c", PROGRAM, json.dumps(hostile.argv)], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        guardian = int(program.stdout.readline())
        ready = within(60, hostile.ready.exists)
        keepers = children(guardian)
        program.kill()
    assert ready
    assert hostile.is_gone()
    assert within(5, lambda: not any(map(is_alive, (guardian, *keepers))))


@pytest.mark.contract("B-2")
@pytest.mark.parametrize("kind", HOSTILE)
def test_nothing_of_a_hostile_engine_survives_a_kill_of_the_guardian(tmp_path: Path, kind: str) -> None:
    async def main(guardian: Guardian, hostile: Hostile, child: Child) -> None:
        if kind == "kills its keeper":
            # Without a sandbox we cannot survive both at the same moment, only one after the other.
            await child.exited()
        if guardian.pid is not None:
            os.kill(guardian.pid, signal.SIGKILL)
        await child.exited()
        assert await child.end("", grace_sec=0)
        assert hostile.is_gone()

    _with_hostile(kind, tmp_path, main)


def _with_hostile(kind: str, folder: Path, main: Callable[[Guardian, Hostile, Child], Awaitable[None]]) -> None:
    hostile = Hostile(kind, folder)

    async def bounded() -> None:
        guardian = Guardian()
        async with asyncio.timeout(120):
            child = await guardian.start(SpawnRequest(argv=hostile.argv, env=ENV, cwd=folder, limits=LIMITS))
            assert await asyncio.to_thread(within, 60, hostile.ready.exists)
            try:
                await main(guardian, hostile, child)
            finally:
                child.close()
                await guardian.close()

    asyncio.run(bounded())
