"""Sign-ins around a turn: what it renewed is kept, and trouble with that costs the turn nothing."""

from pathlib import Path

import pytest

from askback.core.runs import RunState
from askback.engines.scripted import Scripted
from world import World, over, run_async, submit, until

NAME = ".scripted/auth.json"
WAITS = [
    {"touch": "started"},
    {"wait_for": "go"},
    {"finish": {"colour": "red"}},
]


@pytest.mark.parametrize("profile", ["resumable", "sticky_process"])
@pytest.mark.parametrize("kept", [True, False])
def test_a_turn_is_not_undone_by_a_sign_in_that_cannot_be_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: str, kept: bool
) -> None:
    monkeypatch.setattr(Scripted, "credentials", (NAME,))
    world = World(tmp_path)
    skill = world.skill(WAITS)
    source = tmp_path / "user"
    (source / NAME).parent.mkdir(parents=True)
    (source / NAME).write_text("first")

    async def main() -> None:
        async with world.working(f'[engines.scripted]\nhome = "{source}"\n') as app:
            run = await submit(app, skill, options={"interactive_profile": profile})
            work = app.workspaces.of(run.id).cwd
            await until(lambda: (work / "started").exists())
            (app.workspaces.of(run.id).home / NAME).write_text("renewed")
            if not kept:
                lock = world.data_dir / "locks" / "sign-in-scripted.lock"
                lock.unlink()
                lock.mkdir()
            (work / "go").touch()
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
        assert (source / NAME).read_text() == ("renewed" if kept else "first")

    run_async(main)
