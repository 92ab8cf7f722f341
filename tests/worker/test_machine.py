"""Whether the machine or the run is to blame for a turn that failed, and when a machine tries again."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from askback.app import App
from askback.core.errors import ErrorCode, RefusalCode, Unavailable
from askback.core.runs import RunState
from askback.fs.paths import problem_of
from askback.worker import machine
from support.data_folder import World, over, reach, run_async, submit, until

FINISH = {"finish": {"colour": "red"}}
FULL = Unavailable(RefusalCode.DISK_FULL, "the disk is full")


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_FIRST_PAUSE_SEC", 0.02)
    monkeypatch.setattr(machine, "_LONGEST_PAUSE_SEC", 0.05)
    monkeypatch.setattr(machine, "CHECK_SEC", 0.05)


def fail_appends(app: App, times: int, fault: Exception, folder: Path | None = None) -> list[str]:
    """Let the next events of turns not be stored. `folder`: what a turn has put into its working directory by then."""
    real, failed = app.store.append, []

    async def append(run_id: str, *rest: Any) -> None:
        if len(failed) < times:
            failed.append(run_id)
            if folder is not None:
                await asyncio.to_thread(shutil.copytree, folder, app.workspaces.of(run_id).cwd, dirs_exist_ok=True)
            raise fault
        await real(run_id, *rest)

    app.store.append = append  # type: ignore[method-assign]
    return failed


@pytest.mark.contract("B-1")
def test_a_full_disk_counts_only_against_the_run_that_fills_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([{"tool": {"name": "look"}}, FINISH])
    (tmp_path / "large").mkdir()
    (tmp_path / "large" / "file").write_bytes(os.urandom(10_000_000))

    async def main() -> None:
        async with world.working() as app, asyncio.timeout(120):
            failed = fail_appends(app, 5, FULL)
            run = await over(app, (await submit(app, skill)).id)
            assert (run.state, len(failed)) == (RunState.SUCCEEDED, 5)
            failed = fail_appends(app, 5, FULL, tmp_path / "large")
            run = await over(app, (await submit(app, skill)).id)
            assert (run.state, len(failed)) == (RunState.FAILED, 4)
            assert run.error is not None
            assert run.error.code is ErrorCode.ORCHESTRATOR_RESTART_INTERRUPTED

    run_async(main)


@pytest.mark.contract("B-1")
def test_a_fault_that_is_not_the_machine_s_ends_the_run_at_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([{"tool": {"name": "look"}}, FINISH])

    async def main() -> None:
        async with world.working() as app, asyncio.timeout(120):
            for fault in (ValueError("a mistake"), OSError(errno.ENAMETOOLONG, "too long")):
                fail_appends(app, 1, fault)
                run = await over(app, (await submit(app, skill)).id)
                assert run.error is not None
                assert (run.error.code, run.restarts) == (ErrorCode.INTERNAL_ERROR, 0)
                assert app.machine.problem is None

    run_async(main)


@pytest.mark.contract("B-1")
def test_no_turn_starts_in_a_pause_and_the_run_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_FIRST_PAUSE_SEC", 600.0)
    monkeypatch.setattr(machine, "_LONGEST_PAUSE_SEC", 600.0)
    world = World(tmp_path)
    skill = world.skill([{"tool": {"name": "look"}}, FINISH])

    async def main() -> None:
        async with world.working() as app, asyncio.timeout(120):
            failed = fail_appends(app, 1, OSError(errno.EIO, "input/output error"))
            run = await submit(app, skill)
            await until(lambda: bool(failed))
            queued = await reach(app, run.id, RunState.QUEUED)
            assert queued.restarts == 0
            assert app.service.queue_reason(queued) == "unready"
            assert await app.machine.check() is RefusalCode.STORE_UNUSABLE
            await until(lambda: app.slots.taken == 0)

    run_async(main)


def test_a_folder_needs_room_and_a_place_for_files(tmp_path: Path) -> None:
    assert problem_of(tmp_path, min_free_bytes=None, thorough=True) is None
    full = problem_of(tmp_path, min_free_bytes=1 << 60, thorough=True)
    assert full is not None
    assert full.code is RefusalCode.DISK_FULL
    gone = problem_of(tmp_path / "gone", min_free_bytes=0, thorough=False)
    assert gone is not None
    assert gone.code is RefusalCode.STORE_UNUSABLE
