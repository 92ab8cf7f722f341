"""Runs with large homes: saving them delays no other run, ends with a cancel or a stop, and is refused beyond the bounds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from askback.app.app import App
from askback.background.pools import Pool
from askback.core.errors import ErrorCode
from askback.core.runs import RunState
from askback.fs.walk import TreeBounds
from askback.process.locks import FileLock
from askback.worker.warm import EarlySaves
from askback.workspace import snapshots
from askback.workspace.layout import Workspace
from support.data_folder import ASK, FINISH, World, over, run_async, submit, until, waiting

FILES = 3_000
"""Each is copied and synced: this takes seconds."""
BEGUN = 30


def fill(home: Path) -> None:
    (home / "many").mkdir(parents=True)
    for number in range(FILES):
        (home / "many" / str(number)).write_text("x")


def copies(workspace: Workspace) -> int:
    folder = workspace.snapshots / "files"
    return sum(1 for _ in folder.iterdir()) if folder.is_dir() else 0


def is_saved(workspace: Workspace) -> bool:
    return (workspace.snapshots / "manifest.json").exists()


async def lock_is_free(workspace: Workspace) -> None:
    while (lock := FileLock.take(workspace.lock_path)) is None:
        await asyncio.sleep(0.01)
    lock.release()


@asynccontextmanager
async def held(pool: Pool) -> AsyncIterator[None]:
    """All threads of a pool work, and more work waits, as if many large homes were being saved."""
    free = threading.Event()
    jobs = [asyncio.create_task(pool.run(free.wait)) for _ in range(20)]
    try:
        yield
    finally:
        free.set()
        await asyncio.gather(*jobs)


def test_no_turn_waits_for_the_homes_of_other_runs(world: World) -> None:
    skill = world.skill([ASK], [ASK], [FINISH])

    async def main() -> None:
        # Of runs that wait, and of turns that begin: each of these has a thread of its own.
        async with world.working() as app, held(app.pools.saving), held(app.pools.storing):
            run = await submit(app, skill)
            for _ in range(2):
                await waiting(app, run.id)
                await app.service.reply(run.id, "red")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED

    run_async(main)


@asynccontextmanager
async def waiting_with_large_home(world: World) -> AsyncIterator[tuple[App, str, Workspace]]:
    """A run that waits, whose home is not saved."""
    template = world.folder / "template"
    fill(template)
    skill = world.skill([ASK], [FINISH])
    async with world.working(f'[engines.scripted]\nhome = "{template}"\n') as app, held(app.pools.saving):
        run = await waiting(app, (await submit(app, skill)).id)
        yield app, run.id, app.workspaces.of(run.id)


def test_a_cancel_does_not_wait_until_the_home_is_saved_for_a_turn(world: World) -> None:
    async def main() -> None:
        async with waiting_with_large_home(world) as (app, run_id, workspace):
            await app.service.reply(run_id, "red")
            await until(lambda: copies(workspace) > BEGUN)
            await app.service.cancel(run_id)
            assert (await over(app, run_id)).state is RunState.CANCELED
            assert not is_saved(workspace)

    run_async(main)


def test_a_stop_does_not_wait_until_the_home_is_saved_for_a_turn(world: World) -> None:
    async def main() -> None:
        async with waiting_with_large_home(world) as (app, run_id, workspace):
            await app.service.reply(run_id, "red")
            await until(lambda: copies(workspace) > BEGUN)
        assert not is_saved(workspace)
        async with world.working(serving=True) as app:
            assert (await over(app, run_id)).state is RunState.SUCCEEDED
        assert len(world.prompts(run_id)) == 2

    run_async(main)


@pytest.mark.parametrize("how", ["cancel", "stop"])
def test_the_save_of_a_waiting_run_ends_with_its_wait(world: World, how: str) -> None:
    template = world.folder / "template"
    fill(template)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working(f'[engines.scripted]\nhome = "{template}"\n') as app:
            run = await waiting(app, (await submit(app, skill)).id)
            workspace = app.workspaces.of(run.id)
            await until(lambda: copies(workspace) > BEGUN)
            if how == "cancel":
                await app.service.cancel(run.id)
                await lock_is_free(workspace)
        assert not is_saved(workspace)
        assert copies(workspace) == 0

    run_async(main)


def test_a_reply_gives_up_the_save_and_waits_until_nothing_writes(world: World) -> None:
    async def main() -> None:
        async with waiting_with_large_home(world) as (app, run_id, workspace):
            run, saves, pool = await app.store.get(run_id), EarlySaves(), Pool("saving", threads=1, waiting=1)
            saving = asyncio.create_task(saves.save(run, workspace, pool))
            await until(lambda: copies(workspace) > BEGUN)
            await saves.end(run_id)
            assert (is_saved(workspace), copies(workspace)) == (False, 0)
            await lock_is_free(workspace)
            await saving

    run_async(main)


@pytest.mark.contract("Q-1")
def test_a_home_with_more_names_than_can_be_saved_ends_the_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    skill = world.skill([ASK], [FINISH])
    monkeypatch.setattr(snapshots, "HOME", TreeBounds(names=500))

    async def main() -> None:
        async with world.working() as app:
            run = await waiting(app, (await submit(app, skill)).id)
            for number in range(600):
                (app.workspaces.of(run.id).home / str(number)).touch()
            await app.service.reply(run.id, "red")
            ended = await over(app, run.id)
            assert ended.error is not None
            assert (ended.error.code, ended.error.cause) == (ErrorCode.RESOURCE_LIMIT_EXCEEDED, ErrorCode.DISK_LIMIT)
            assert "500 files and folders" in ended.error.message

    run_async(main)


def test_the_disk_limit_is_the_bound_of_a_saved_home(world: World) -> None:
    """The names of a hard link take nothing in the home, and everything in a copy of it."""
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working("[limits]\ndisk = 8\n") as app:
            run = await waiting(app, (await submit(app, skill)).id)
            home = app.workspaces.of(run.id).home
            (home / "large").write_bytes(b"x" * (1 << 20))
            for number in range(12):
                (home / str(number)).hardlink_to(home / "large")
            await app.service.reply(run.id, "red")
            ended = await over(app, run.id)
            assert ended.error is not None
            assert (ended.error.code, ended.error.cause) == (ErrorCode.RESOURCE_LIMIT_EXCEEDED, ErrorCode.DISK_LIMIT)
            snapshots_of = app.workspaces.of(run.id).snapshots
            assert sum(each.stat().st_size for each in snapshots_of.rglob("*") if each.is_file()) < 1 << 20

    run_async(main)
