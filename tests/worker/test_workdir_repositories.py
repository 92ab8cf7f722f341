"""Git repositories in the folder that a run works in: those that appear are reported, whenever the engine made them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from askback.app import App
from askback.core.errors import ErrorCode, WarningCode
from askback.core.runs import Run, RunState
from askback.process.isolation import IsolationLevel
from support.data_folder import ASK, FINISH, World, events_of, over, run_async, submit, until, waiting
from support.repositories import repository

EDIT = {"write": {"path": "site.css", "text": "blue\n"}}


@pytest.fixture
def world(tmp_path: Path) -> World:
    (tmp_path / "askback").mkdir()
    return World(tmp_path / "askback")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return repository(tmp_path / "repo")


async def start(app: App, skill: str, folder: Path, **rest: Any) -> Run:
    return await submit(app, skill, workdir=str(folder), **rest)


@pytest.mark.contract("J-6")
@pytest.mark.parametrize("sandbox", ["off", "auto"])
@pytest.mark.parametrize("at", [".git", "sub/.git", "", "deep/bare"])
def test_a_repository_that_appears_is_reported(tmp_path: Path, world: World, sandbox: str, at: str) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    repository(folder / "of the user")
    names = ("HEAD", "config", "objects/a", "refs/b")
    planted = [{"write": {"path": f"{at}/{name}".lstrip("/"), "text": "x\n"}} for name in names]
    skill = world.skill([EDIT, ASK], [*planted, {"finish": {"colour": "blue"}}])

    async def main() -> None:
        async with world.working(f'sandbox = "{sandbox}"') as app:
            run = await waiting(app, (await start(app, skill, folder)).id)
            assert run.warnings == ()
            await app.service.reply(run.id, "blue")
            run = await over(app, run.id)
            warned = [each for each in run.warnings if each.code is WarningCode.WORKDIR_GIT_CREATED]
            assert (run.state, len(warned)) == (RunState.SUCCEEDED, 1)
            assert f"{folder}, or was replaced ({at or '.'});" in warned[0].message

    run_async(main)


def test_a_repository_of_a_canceled_turn_is_reported(tmp_path: Path, world: World) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    planted = {"write": {"path": ".git/config", "text": "x\n"}}
    skill = world.skill([planted, {"wait_for": str(tmp_path / "never")}, FINISH])

    async def main() -> None:
        async with world.working() as app:
            run = await start(app, skill, folder)
            await until(lambda: (folder / ".git/config").exists())
            await app.service.cancel(run.id)
            run = await over(app, run.id)
            assert run.state is RunState.CANCELED
            assert [each.code for each in run.warnings] == [WarningCode.WORKDIR_GIT_CREATED]
            assert "run.warning" in [event.type for event in await events_of(app, run.id)]

    run_async(main)


def test_a_repository_that_appears_while_a_process_waits_is_reported(tmp_path: Path, world: World) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working() as app:
            options = {"interactive_profile": "sticky_process"}
            run = await waiting(app, (await start(app, skill, folder, options=options)).id)
            (folder / ".git").mkdir()
            await app.service.cancel(run.id)
            run = await over(app, run.id)
            assert run.state is RunState.CANCELED
            assert [each.code for each in run.warnings] == [WarningCode.WORKDIR_GIT_CREATED]

    run_async(main)


def test_a_repository_that_is_replaced_is_reported(world: World, repo: Path) -> None:
    (repo / "sub/.git").mkdir(parents=True)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working() as app:
            run = await waiting(app, (await start(app, skill, repo)).id)
            (repo / "sub").rename(repo / "old")
            (repo / "sub/.git").mkdir(parents=True)
            await app.service.reply(run.id, "red")
            run = await over(app, run.id)
            assert [each.code for each in run.warnings] == [WarningCode.WORKDIR_GIT_CREATED]
            assert "(old/.git, sub/.git)" in run.warnings[0].message

    run_async(main)


def test_a_repository_that_cannot_be_protected_fails_the_run(tmp_path: Path, world: World, repo: Path) -> None:
    (repo / ".git").rename(tmp_path / "elsewhere")
    (repo / ".git").symlink_to(tmp_path / "elsewhere")
    skill = world.skill([EDIT, FINISH])

    async def main() -> None:
        async with world.working('sandbox = "auto"') as app:
            if (await app.spawner.isolation()).level is not IsolationLevel.BUBBLEWRAP:
                pytest.skip("no sandbox here")
            run = await over(app, (await start(app, skill, repo)).id)
            assert run.error is not None
            assert (run.state, run.error.code) == (RunState.FAILED, ErrorCode.WORKDIR_UNAVAILABLE)
            assert f"{repo}/.git is a link" in run.error.message

    run_async(main)
