"""Sign-ins around a turn: tokens that it renewed are kept, trouble with that costs the turn nothing, no copy stays."""

import json
from pathlib import Path

import pytest

from askback.app import App
from askback.core.errors import ErrorCode
from askback.core.renewals import Renewal, TokenField
from askback.core.runs import Run, RunState
from askback.engines.scripted import Scripted
from support.data_folder import ASK, FINISH, World, over, reach, run_async, submit, until, waiting

NAME = ".scripted/auth.json"
RULE = Renewal(name=NAME, fields=(TokenField(path=("token",)),))
TOKEN = "ada-secret-token"
WAITS = [
    {"touch": "started"},
    {"wait_for": "go"},
    {"finish": {"colour": "red"}},
]


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a sign-in for the engine `scripted`, which has none."""
    monkeypatch.setattr(Scripted, "credentials", (NAME,))
    monkeypatch.setattr(Scripted, "renewals", (RULE,))
    source = tmp_path / "user"
    (source / NAME).parent.mkdir(parents=True)
    (source / NAME).write_text(json.dumps({"token": TOKEN}))
    return source


def config(source: Path) -> str:
    return f'[engines.scripted]\nhome = "{source}"\n'


def copies(app: App, run: Run) -> list[str]:
    """Where a token is found below the run's folder."""
    root = app.workspaces.of(run.id).root
    files = (path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    return [path.relative_to(root).as_posix() for path in files if TOKEN.encode() in path.read_bytes()]


@pytest.mark.parametrize("profile", ["resumable", "sticky_process"])
@pytest.mark.parametrize("kept", [True, False])
def test_a_turn_is_not_undone_by_a_sign_in_that_cannot_be_taken_back(
    tmp_path: Path, source: Path, profile: str, kept: bool
) -> None:
    world = World(tmp_path)
    skill = world.skill(WAITS)

    async def main() -> None:
        async with world.working(config(source)) as app:
            run = await submit(app, skill, options={"interactive_profile": profile})
            work = app.workspaces.of(run.id).cwd
            await until(lambda: (work / "started").exists())
            (app.workspaces.of(run.id).home / NAME).write_text(json.dumps({"token": f"{TOKEN}-renewed"}))
            if not kept:
                lock = world.data_dir / "locks" / "sign-in-scripted.lock"
                lock.unlink()
                lock.mkdir()
            (work / "go").touch()
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            assert copies(app, run) == []
        assert json.loads((source / NAME).read_text()) == {"token": f"{TOKEN}-renewed" if kept else TOKEN}

    run_async(main)


@pytest.mark.parametrize("end", ["succeeded", "failed", "canceled"])
@pytest.mark.parametrize("profile", ["resumable", "sticky_process"])
def test_no_sign_in_is_left_in_a_run_that_is_over(tmp_path: Path, source: Path, profile: str, end: str) -> None:
    """While it waits neither, where no process is kept; nor in what is saved of the home."""
    world = World(tmp_path)
    last = {"succeeded": FINISH, "failed": {"misbehave": "exit_zero_without_result"}, "canceled": {"wait_for": "go"}}
    skill = world.skill([ASK], [ASK], [{"touch": "started"}, last[end]])

    async def main() -> None:
        async with world.working(config(source)) as app:
            run = await submit(app, skill, options={"interactive_profile": profile})
            for _ in range(2):
                await waiting(app, run.id)
                assert copies(app, run) == ([] if profile == "resumable" else [f"home/{NAME}"])
                await app.service.reply(run.id, "red")
                await reach(app, run.id, RunState.RUNNING, RunState.WAITING_USER, RunState.SUCCEEDED, RunState.FAILED)
            await until((app.workspaces.of(run.id).cwd / "started").exists)
            if end == "canceled":
                assert copies(app, run) == [f"home/{NAME}"]
                await app.service.cancel(run.id)
            assert (await over(app, run.id)).state == end
            assert copies(app, run) == []

    run_async(main)


def test_no_sign_in_is_left_by_a_turn_that_could_not_start(tmp_path: Path, source: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])
    program = tmp_path / "programs" / "engine"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexec " + " ".join(Scripted.default_command) + ' "$@"\n')
    program.chmod(0o755)

    async def main() -> None:
        async with world.working(f'{config(source)}command = ["{program}"]\n') as app:
            run = await submit(app, skill)
            await waiting(app, run.id)
            # It is found and cannot be started.
            program.write_text("#!/no/such/interpreter\n")
            await app.service.reply(run.id, "red")
            ended = await over(app, run.id)
            assert ended.error is not None
            assert ended.error.code is ErrorCode.ENGINE_NOT_FOUND
            assert copies(app, run) == []

    run_async(main)


def test_copies_that_were_left_are_removed_when_a_server_starts(tmp_path: Path, source: Path) -> None:
    """By a program that was killed, or by an earlier version, which saved them as well."""
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working(config(source)) as app:
            run, other = await submit(app, skill), await submit(app, skill)
            for each in (run, other):
                await waiting(app, each.id)
            await app.service.reply(run.id, "red")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
        root = world.data_dir / "runs" / run.id
        for place in (f"home/{NAME}", "snapshots/files/99", "home/.codex/auth.json", "home/.gemini/oauth_creds.json"):
            (root / place).parent.mkdir(parents=True, exist_ok=True)
            (root / place).write_text(TOKEN)
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "auth.json").write_text("the user's own")
        (root / "home" / ".claude").symlink_to(elsewhere)
        async with world.working(config(source), serving=True) as app:
            assert app.retention is not None
            await app.retention.sweep()
            assert copies(app, run) == []
            assert (root / "turns").is_dir()
            assert (app.workspaces.of(other.id).home / ".scripted" / "sessions").is_dir()
        assert (elsewhere / "auth.json").read_text() == "the user's own"

    run_async(main)
