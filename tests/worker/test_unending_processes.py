"""What is left of an earlier turn and cannot be ended, such as a process in a system call that never returns."""

from __future__ import annotations

from pathlib import Path

import pytest

from askback.core.runs import RunState
from askback.process.locks import FileLock
from support.data_folder import World, reach, run_async, submit, until


@pytest.mark.parametrize("store", ["", 'files = "{folder}"\n'])
def test_a_program_can_stop_while_something_that_cannot_be_ended_holds_a_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, store: str
) -> None:
    world = World(tmp_path)
    skill = world.skill([{"finish": {"colour": 1}}], output={"type": "object"})

    async def main() -> None:
        async with world.client() as app:
            run = await submit(app, skill)
            # Held by this process, which no program ends for a run.
            lock = FileLock.take(app.workspaces.of(run.id).lock_path)
        assert lock is not None
        async with world.working(store.format(folder=tmp_path / "files"), serving=True) as app:
            await reach(app, run.id, RunState.RUNNING)
            await until(lambda: any("earlier turn" in record.message for record in caplog.records))
        lock.release()
        async with world.working(store.format(folder=tmp_path / "files"), serving=True) as app:
            assert (await reach(app, run.id, RunState.SUCCEEDED)).restarts == 0

    run_async(main)
