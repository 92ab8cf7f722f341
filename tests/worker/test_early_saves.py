"""The home of a run that asks is saved while it waits, before its reply arrives."""

import json
from pathlib import Path

import pytest

from askback.background.pools import Pool
from askback.core.runs import RunState
from askback.fs.beneath import remove_tree
from askback.process.locks import FileLock
from askback.worker.warm import EarlySaves
from support.data_folder import ASK, FINISH, World, over, run_async, submit, until, waiting


def saved_for(folder: Path) -> int | None:
    """The turn that the snapshot was made for."""
    manifest = folder / "snapshots" / "manifest.json"
    return json.loads(manifest.read_bytes())["attempt_number"] if manifest.exists() else None


@pytest.mark.contract("B-4")
def test_a_waiting_run_has_its_snapshot_before_the_reply(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working() as app:
            run = await waiting(app, (await submit(app, skill)).id)
            await until(lambda: saved_for(app.workspaces.of(run.id).root) == 2)
            await app.service.reply(run.id, "red")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            assert len(world.prompts(run.id)) == 2

    run_async(main)


def test_a_reply_at_once_does_not_wait_for_the_save(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [ASK], [FINISH])

    async def main() -> None:
        async with world.working() as app:
            run = await submit(app, skill)
            for _ in range(2):
                await waiting(app, run.id)
                await app.service.reply(run.id, "red")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED

    run_async(main)


def test_no_home_is_saved_while_another_program_has_the_turn(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working() as app:
            run = await waiting(app, (await submit(app, skill)).id)
        workspace = app.workspaces.of(run.id)
        remove_tree(workspace.root / "snapshots")
        lock = FileLock.take(workspace.lock_path)
        assert lock is not None
        saves, pool = EarlySaves(), Pool("turns", threads=1, waiting=1)
        await saves.save(run, workspace, pool)
        assert saved_for(workspace.root) is None
        lock.release()
        await saves.save(run, workspace, pool)
        assert saved_for(workspace.root) == 2
        pool.close()

    run_async(main)


def test_a_lock_that_cannot_be_opened_costs_no_more_than_the_early_save(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working() as app:
            run = await waiting(app, (await submit(app, skill)).id)
        workspace = app.workspaces.of(run.id)
        remove_tree(workspace.root / "snapshots")
        workspace.lock_path.unlink()
        workspace.lock_path.mkdir()
        pool = Pool("turns", threads=1, waiting=1)
        await EarlySaves().save(run, workspace, pool)
        pool.close()
        assert saved_for(workspace.root) is None
        assert any("saved early" in record.message for record in caplog.records)

    run_async(main)
