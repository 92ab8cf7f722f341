"""Runs that had their files on one machine alone, before the setting `files` was used: their files are stored."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from askback.app import App, opened
from askback.core.errors import WarningCode
from askback.core.runs import Run, RunState
from askback.core.signals import SlotAcquired
from askback.fs import archive_writer
from askback.fs.archive_writer import ArchiveLimits
from askback.fs.beneath import remove_tree
from askback.store.base import move
from support.data_folder import ASK, World, over, run_async, submit, until, waiting

pytestmark = pytest.mark.contract("M-5")

NOTE = {"write": {"path": "artifacts/notes.txt", "text": "turn {{turn}}"}}
LAST = {"finish": {"colour": "{{replies}}"}}
HELD = [{"touch": "started"}, {"wait_for": "go"}, LAST]
ANY = {"type": "object", "required": ["colour"]}


@pytest.fixture
def config(tmp_path: Path) -> str:
    return f'files = "{tmp_path / "stored"}"\n'


async def shared(app: App) -> None:
    assert app.sharing is not None
    await app.sharing.run()


async def kept(app: App, run_id: str) -> Run:
    while (run := await app.store.get(run_id)).kept is None:
        await asyncio.sleep(0.01)
    return run


def lose(world: World) -> None:
    """The machine is lost with everything but its database."""
    remove_tree(world.data_dir / "runs")
    remove_tree(world.data_dir / "packages")


@pytest.mark.databases
def test_a_run_that_waited_before_is_continued_without_its_folder(tmp_path: Path, config: str) -> None:
    world = World(tmp_path)
    skill = world.skill([NOTE, ASK], [LAST], output=ANY)
    found: list[str] = []

    async def ask() -> None:
        async with world.working(serving=True) as app:
            run = await waiting(app, (await submit(app, skill, env={"KEY": "a secret value"})).id)
            assert run.kept is None
            found.append(run.id)

    async def share() -> None:
        async with world.working(config, serving=True) as app:
            await kept(app, found[0])

    async def answer() -> None:
        async with world.working(config, serving=True) as app:
            artifacts = await app.service.artifacts(found[0])
            assert [each.path for each in artifacts] == ["notes.txt"]
            await app.service.reply(found[0], "red")
            ended = await over(app, found[0])
            assert (ended.state, ended.error, ended.warnings) == (RunState.SUCCEEDED, None, ())
            assert (app.workspaces.of(ended.id).artifacts_path / "notes.txt").read_text() == "turn 1"

    run_async(ask)
    run_async(share)
    lose(world)
    run_async(answer)
    prompts = world.prompts(found[0])
    assert len(prompts) == 2, "it is one session"


@pytest.mark.databases
def test_an_interrupted_turn_begins_with_the_home_before_it(tmp_path: Path, config: str) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], HELD, output=ANY)
    found: list[Run] = []

    async def interrupt() -> None:
        async with world.working(serving=True) as app:
            run = await waiting(app, (await submit(app, skill)).id)
            await app.service.reply(run.id, "red")
            await until((app.workspaces.of(run.id).cwd / "started").exists)
        found.append(run)

    async def share() -> None:
        async with opened(world.settings(config), serving=True) as app:
            assert (await app.store.get(found[0].id)).state is RunState.QUEUED
            await shared(app)
            await kept(app, found[0].id)

    async def finish() -> None:
        async with world.working(config, serving=True) as app:
            folder = app.workspaces.of(found[0].id).cwd
            await until(folder.is_dir)
            (folder / "go").touch()
            assert (await over(app, found[0].id)).state is RunState.SUCCEEDED

    run_async(interrupt)
    assert len(world.prompts(found[0].id)) == 2
    run_async(share)
    lose(world)
    run_async(finish)
    assert len(world.prompts(found[0].id)) == 2, "the session has nothing of the turn that was interrupted"


def test_a_run_that_is_claimed_is_left_to_its_turn(tmp_path: Path, config: str) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [LAST], output=ANY)

    async def main() -> None:
        async with world.working(serving=True) as app:
            run = await waiting(app, (await submit(app, skill)).id)
        async with opened(world.settings(config), serving=True) as app:
            await app.service.reply(run.id, "red")
            claimed = await move(app.store, run.id, SlotAcquired(worker=app.instances.name, at=app.clock()))
            assert app.sharing is not None
            assert not await app.sharing._is_done()
            assert (await app.store.get(run.id)) == claimed
            assert app.files is not None
            assert app.files.list(f"runs/{run.id}/kept/") == []
        async with world.working(config, serving=True) as app:
            ended = await over(app, run.id)
            assert ended.state is RunState.SUCCEEDED
            assert ended.kept is not None

    run_async(main)


def test_a_run_that_cannot_be_packed_says_so(tmp_path: Path, config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [LAST], output=ANY)

    async def main() -> None:
        async with world.working(serving=True) as app:
            run = await waiting(app, (await submit(app, skill)).id)
        monkeypatch.setattr(archive_writer, "ArchiveLimits", lambda: ArchiveLimits(max_entries=2))
        async with opened(world.settings(config), serving=True) as app:
            await shared(app)
            warned = await app.store.get(run.id)
            assert [each.code for each in warned.warnings] == [WarningCode.FILES_NOT_KEPT]
            assert warned.kept is not None
        monkeypatch.undo()
        async with world.working(config, serving=True) as app:
            await app.service.reply(run.id, "red")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED

    run_async(main)


def test_a_new_archive_is_not_swept_before_its_run_names_it(tmp_path: Path, config: str) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [LAST], output=ANY)

    async def main() -> None:
        async with world.working(serving=True) as app:
            run = await waiting(app, (await submit(app, skill)).id)
        async with opened(world.settings(config), serving=True) as app:
            key = f"runs/{run.id}/kept/1-1.tar.zst"
            assert app.files is not None
            assert app.retention is not None
            app.files.put(key, b"being stored")
            await app.retention.sweep()
            assert app.files.size(key) is not None

    run_async(main)
