"""`/healthz` during an outage: it reports what it can, and never fails because a part cannot be looked at."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from askback.app import opened
from askback.process.guardian.messages import boottime
from support.data_folder import DEADLINE_SEC, World, run_async

HOUR = 3600.0
SANDBOX = 'sandbox = "auto"'

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


def test_health_is_told_without_a_lease(tmp_path: Path) -> None:
    async def main() -> None:
        # A command does not test the sandbox when it starts.
        async with opened(World(tmp_path).settings(SANDBOX)) as app:
            app.spawner.extend_lease(boottime())
            told = await app.health.report()
            assert (told.sandbox, told.isolation.files) == ("unknown", "user")
            assert "could not be tested yet" in told.isolation.message
            app.spawner.extend_lease(boottime() + HOUR)
            async with asyncio.timeout(DEADLINE_SEC):
                while (told := await app.health.report()).sandbox == "unknown":
                    await asyncio.sleep(0)
            assert told.sandbox == (await app.spawner.isolation()).level
            assert told.limits.disk

    run_async(main)


def test_a_server_knows_its_sandbox_from_its_start(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(World(tmp_path).settings(SANDBOX), serving=True) as app:
            app.spawner.extend_lease(boottime())
            assert (await app.health.report()).sandbox == (await app.spawner.isolation()).level

    run_async(main)
