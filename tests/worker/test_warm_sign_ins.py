"""Sign-ins of warm processes: the newest one is used, a renewed one is merged at once, and none is left behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from askback.app import App
from askback.core.events import EventType
from askback.core.renewals import Renewal, TokenField
from askback.core.runs import Run, RunState
from askback.engines.scripted import Scripted
from askback.process.locks import FileLock
from support.data_folder import ASK, FINISH, World, events_of, over, run_async, submit, until, waiting

NAME = ".scripted/auth.json"
RULE = Renewal(name=NAME, fields=(TokenField(path=("token",)),))
TOKEN = "ada-secret-token"


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a sign-in for the engine `scripted`, which has none."""
    monkeypatch.setattr(Scripted, "credentials", (NAME,))
    monkeypatch.setattr(Scripted, "renewals", (RULE,))
    source = tmp_path / "user"
    (source / NAME).parent.mkdir(parents=True)
    sign_in(source, TOKEN)
    return source


def sign_in(home: Path, token: str) -> None:
    (home / NAME).write_text(json.dumps({"token": token}))


def config(source: Path) -> str:
    return f'warm_sec = 600\nwarm.min_free_memory = 0\n[engines.scripted]\nhome = "{source}"\n'


def copies(app: App, run: Run) -> list[str]:
    """Where a token is found below the run's folder."""
    root = app.workspaces.of(run.id).root
    files = (path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    return [path.relative_to(root).as_posix() for path in files if TOKEN.encode() in path.read_bytes()]


async def kept(app: App, run_id: str) -> Run:
    run = await waiting(app, run_id)
    await until(lambda: (parked := app.warm.find(run_id)) is not None and parked.memory_bytes > 0)
    return run


async def processes(app: App, run_id: str) -> list[str]:
    events = await events_of(app, run_id)
    return [each.data["process"] for each in events if each.type is EventType.TURN_STARTED and "process" in each.data]


@pytest.mark.contract("V-2")
def test_a_sign_in_is_kept_with_its_process_and_never_saved(tmp_path: Path, source: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working(config(source)) as app:
            run = await kept(app, (await submit(app, skill)).id)
            assert copies(app, run) == [f"home/{NAME}"]
            await app.service.reply(run.id, "red")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            assert await processes(app, run.id) == ["new", "warm"]
            assert copies(app, run) == []
            assert list((world.data_dir / "sign-ins").iterdir()) == []

    run_async(main)


def test_a_process_that_renewed_its_sign_in_is_not_kept(tmp_path: Path, source: Path) -> None:
    """Other runs need the new tokens now, and not when this one is answered."""
    world = World(tmp_path)
    skill = world.skill([{"touch": "started"}, {"wait_for": "go"}, ASK], [FINISH])

    async def main() -> None:
        async with world.working(config(source)) as app:
            run = await submit(app, skill)
            workspace = app.workspaces.of(run.id)
            await until((workspace.cwd / "started").exists)
            sign_in(workspace.home, f"{TOKEN}-renewed")
            (workspace.cwd / "go").touch()
            await waiting(app, run.id)
            assert json.loads((source / NAME).read_text()) == {"token": f"{TOKEN}-renewed"}
            assert copies(app, run) == []
            assert app.warm.count == 0

    run_async(main)


def test_after_another_sign_in_the_reply_gets_a_new_process(tmp_path: Path, source: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [{"touch": "started"}, {"wait_for": "go"}, FINISH])

    async def main() -> None:
        async with world.working(config(source)) as app:
            run = await kept(app, (await submit(app, skill)).id)
            sign_in(source, f"{TOKEN}-of-today")
            await app.service.reply(run.id, "crimson")
            workspace = app.workspaces.of(run.id)
            await until((workspace.cwd / "started").exists)
            assert json.loads((workspace.home / NAME).read_text()) == {"token": f"{TOKEN}-of-today"}
            (workspace.cwd / "go").touch()
            done = await over(app, run.id)
            assert (done.state, done.restarts) == (RunState.SUCCEEDED, 0)
            assert await processes(app, run.id) == ["new", "warm", "new"]
            assert "\n".join(world.prompts(run.id)).count("crimson") == 1

    run_async(main)


@pytest.mark.contract("B-3")
def test_what_a_killed_program_left_is_removed_once_no_process_is_alive(tmp_path: Path, source: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working(config(source), serving=True) as app:
            run = await kept(app, (await submit(app, skill)).id)
        workspace = app.workspaces.of(run.id)
        sign_in(workspace.home, TOKEN)
        app.workspaces.record_sign_in(run.id)
        lock = FileLock.take(workspace.lock_path)
        assert lock is not None
        async with world.working(config(source), serving=True) as app:
            assert copies(app, run) == [f"home/{NAME}"]
            lock.release()
            await app.recovery.restart_all()
            assert copies(app, run) == []
            assert list((world.data_dir / "sign-ins").iterdir()) == []

    run_async(main)
