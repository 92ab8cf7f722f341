"""A deadline that passes while the database is away for a moment: it counts as soon as the database is back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from support.data_folder import ASK, FINISH, World, over, run_async, submit, until, waiting

SOON = {"interactive_require_user_reply": False, "session_timeout_sec": 3}
BACK_SEC = 40.0
"""Far more than the first pauses, and less than the longest sleep between two looks."""


@pytest.mark.sqlite
def test_a_deadline_counts_soon_after_one_fault_of_the_database(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])
    database, away = world.data_dir / "askback.db", tmp_path / "away.db"

    async def main() -> None:
        async with world.working() as app:
            run = await waiting(app, (await submit(app, skill, options=SOON)).id)
            assert run.wait_deadline_at is not None
            database.rename(away)
            await until(lambda: "deadlines cannot be checked" in caplog.text)
            away.rename(database)
            async with asyncio.timeout(BACK_SEC):
                await over(app, run.id)

    run_async(main)
