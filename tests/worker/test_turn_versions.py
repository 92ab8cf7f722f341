"""The versions of artifacts in runs: recorded at the end of each turn, whatever ends it, and never in its way."""

from __future__ import annotations

from pathlib import Path

import pytest

from askback.app import App
from askback.core.runs import InheritedFiles, Origin, RunState
from askback.workspace.versions import LocalArtifacts
from support.data_folder import ASK, FINISH, World, over, run_async, submit, until, waiting

DONE = {"finish": {"colour": "red"}}


def wrote(text: str, name: str = "plan.md") -> dict[str, object]:
    return {"write": {"path": f"artifacts/{name}", "text": text}}


def turns(app: App, run_id: str) -> dict[str, list[int]]:
    index = LocalArtifacts(app.workspaces.of(run_id)).index()
    return {path: [each.turn for each in known] for path, known in index.items()}


@pytest.mark.parametrize("profile", ["resumable", "sticky_process"])
def test_every_turn_has_the_versions_that_it_left(tmp_path: Path, profile: str) -> None:
    world = World(tmp_path)
    skill = world.skill([wrote("one\n"), ASK], [wrote("two\n"), wrote("new\n", "b.md"), ASK], [FINISH], name="writing")

    async def main() -> None:
        async with world.working() as app:
            run = await waiting(app, (await submit(app, skill, options={"interactive_profile": profile})).id)
            assert turns(app, run.id) == {"plan.md": [1]}
            await app.service.reply(run.id, "red")
            run = await waiting(app, run.id)
            assert turns(app, run.id) == {"plan.md": [1, 2], "b.md": [2]}
            await app.service.reply(run.id, "red")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            assert turns(app, run.id) == {"plan.md": [1, 2], "b.md": [2]}
            found = await app.service.artifacts(run.id)
            assert [(each.path, each.turn, each.comparable) for each in found] == [
                ("b.md", 2, False),
                ("plan.md", 2, True),
            ]
            difference = await app.service.diff(run.id, "plan.md", 1, None)
            assert difference is not None
            assert difference.lines == ("@@ -1,1 +1,1 @@", "-one", "+two")

    run_async(main)


def test_a_canceled_turn_is_recorded(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([wrote("half\n"), {"touch": str(tmp_path / "here")}, {"wait_for": "never"}], name="slow")

    async def main() -> None:
        async with world.working() as app:
            run = await submit(app, skill)
            await until((tmp_path / "here").exists)
            (artifact,) = await app.service.artifacts(run.id)
            assert artifact.turn == 1
            await app.service.cancel(run.id)
            assert (await over(app, run.id)).state is RunState.CANCELED
            assert turns(app, run.id) == {"plan.md": [1]}

    run_async(main)


def test_files_of_another_run_are_not_changes_of_the_first_turn(tmp_path: Path) -> None:
    world = World(tmp_path)
    first = world.skill([wrote("one\n"), wrote("same\n", "b.md"), DONE], name="first")
    second = world.skill([wrote("two\n"), DONE], name="second")

    async def main() -> None:
        async with world.working() as app:
            source = await over(app, (await submit(app, first)).id)
            origin = Origin(run_id=source.id, files=InheritedFiles.ARTIFACTS)
            run = await over(app, (await submit(app, second, origin=origin)).id)
            assert turns(app, run.id) == {"plan.md": [0, 1], "b.md": [0]}
            difference = await app.service.diff(run.id, "plan.md", 0, 1)
            assert difference is not None
            assert difference.lines[1:] == ("-one", "+two")

    run_async(main)


def test_a_fault_of_the_recording_is_logged_and_the_turn_succeeds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path)
    here, go = tmp_path / "here", tmp_path / "go"
    skill = world.skill([wrote("one\n"), {"touch": str(here)}, {"wait_for": str(go)}, DONE], name="blocked")

    async def main() -> None:
        async with world.working() as app:
            run = await submit(app, skill)
            await until(here.exists)
            # A folder that is not empty cannot be replaced by the index.
            in_the_way = app.workspaces.of(run.id).root / "versions" / "index.json" / "file"
            in_the_way.parent.mkdir(parents=True)
            in_the_way.touch()
            go.touch()
            run = await over(app, run.id)
            assert run.state is RunState.SUCCEEDED
            (artifact,) = await app.service.artifacts(run.id)
            assert artifact.turn is None

    run_async(main)
    assert "the versions of the run's files cannot be recorded" in caplog.text
