"""A program that holds its engines by a lease and renews it, as a worker does. Arguments: a folder, and an engine's command in JSON.

It prints `started`, then how the engine ended, and then what another one prints once the lease is renewed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from askback.process.child import NotStarted, OutputLimits, SpawnRequest
from askback.process.guardian.client import Guardian
from askback.process.guardian.messages import boottime
from askback.process.streams import Line

LEASE_SEC = 2.0
_LIMITS = OutputLimits(line_bytes=1 << 20, turn_bytes=1 << 20)


async def main(folder: Path, argv: list[str]) -> None:
    guardian = Guardian()
    renewing = asyncio.create_task(renew(guardian))

    def request(*argv: str) -> SpawnRequest:
        return SpawnRequest(argv=argv, env={"PATH": "/usr/bin:/bin"}, cwd=folder, limits=_LIMITS)

    async def show(_: str, line: Line) -> None:
        print(line.data.decode(), flush=True)

    child = await guardian.start(request(*argv))
    print("started", flush=True)
    code = await child.exited()
    ended = await child.end("", grace_sec=0)
    print(f"exit {code}, lost {child.keeper_lost}, expired {child.expired}, gone {child.gone and ended}", flush=True)
    child.close()
    while True:
        try:
            other = await guardian.start(request("echo", "another one"))
            break
        except NotStarted:
            await asyncio.sleep(0.01)
    await other.lines(show)
    await other.end("", grace_sec=0)
    other.close()
    renewing.cancel()
    await guardian.close()


async def renew(guardian: Guardian) -> None:
    while True:
        guardian.extend_lease(boottime() + LEASE_SEC)
        await asyncio.sleep(LEASE_SEC / 10)


asyncio.run(main(Path(sys.argv[1]), json.loads(sys.argv[2])))
