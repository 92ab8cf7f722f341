"""Runs that start with the files of another run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from askback.core.errors import Conflict, Invalid, NotFound, RefusalCode
from askback.core.runs import InheritedFiles, Origin, RunState
from askback.process.tree import Tree
from askback.workspace.layout import Workspace
from support.data_folder import ASK, FINISH, World, over, reach, run_async, submit, until, waiting

WRITE = [
    {"write": {"path": "artifacts/plan.md", "text": "the plan"}},
    {"write": {"path": "notes/draft.txt", "text": "a draft"}},
    {"write": {"path": ".claude/settings.json", "text": "{}"}},
    {"finish": {"colour": "red"}},
]
WARM = "warm_sec = 600\n[warm]\nmax_processes = 8\nmax_memory = 0\nmin_free_memory = 0\n"
READ = [{"write": {"path": "artifacts/new.md", "text": "new"}}, {"finish": {"colour": "blue"}}]


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in sorted(folder.rglob("*"))
    }


def listed(workspace: Workspace) -> set[str]:
    files = {str(path.relative_to(workspace.cwd)) for path in workspace.cwd.rglob("*") if path.is_file()}
    return {name for name in files if not name.startswith("skill/")}


@pytest.mark.contract("J-3")
@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (InheritedFiles.ARTIFACTS, {"artifacts/plan.md", "artifacts/new.md"}),
        (InheritedFiles.WORKSPACE, {"artifacts/plan.md", "artifacts/new.md", "notes/draft.txt"}),
    ],
)
def test_a_run_starts_with_the_files_of_another_that_stays_as_it_is(
    tmp_path: Path, files: InheritedFiles, expected: set[str]
) -> None:
    world = World(tmp_path)
    first, second = world.skill(WRITE, name="first"), world.skill(READ, name="second")

    async def main() -> None:
        async with world.working() as app:
            source = await over(app, (await submit(app, first)).id)
            before = tree(app.workspaces.of(source.id).root)
            run = await submit(app, second, origin=Origin(run_id=source.id, files=files))
            run = await over(app, run.id)
            assert (run.state, run.origin) == (RunState.SUCCEEDED, Origin(run_id=source.id, files=files))
            assert listed(app.workspaces.of(run.id)) == expected
            assert (app.workspaces.of(run.id).cwd / "skill" / "SKILL.md").read_text().count("second") == 1
            assert tree(app.workspaces.of(source.id).root) == before
            assert await app.store.get(source.id) == source
            (prompt,) = world.prompts(run.id)
            assert "of an earlier run" in prompt

    run_async(main)


@pytest.mark.contract("J-3")
def test_a_run_that_waits_without_a_process_can_be_continued_and_still_be_answered(tmp_path: Path) -> None:
    world = World(tmp_path)
    asking = world.skill([WRITE[0], ASK], [FINISH], name="asking")

    async def main() -> None:
        async with world.working() as app:
            source = await waiting(app, (await submit(app, asking)).id)
            origin = Origin(run_id=source.id, files=InheritedFiles.ARTIFACTS)
            run = await over(app, (await submit(app, world.skill(READ, name="second"), origin=origin)).id)
            assert listed(app.workspaces.of(run.id)) == {"artifacts/plan.md", "artifacts/new.md"}
            assert await app.store.get(source.id) == source
            await app.service.reply(source.id, "red")
            assert (await over(app, source.id)).state is RunState.SUCCEEDED

    run_async(main)


@pytest.mark.contract("J-3", "V-3")
def test_a_warm_process_has_ended_before_the_files_of_its_run_are_copied(tmp_path: Path) -> None:
    world = World(tmp_path)
    asking = world.skill([WRITE[0], {"misbehave": "spawn_child", "ignore_term": True}, ASK], [FINISH], name="asking")
    skill = world.skill(READ, name="second")

    async def main() -> None:
        async with world.working(WARM) as app:
            source = await waiting(app, (await submit(app, asking)).id)
            await until(lambda: app.warm.count == 1)
            origin = Origin(run_id=source.id, files=InheritedFiles.ARTIFACTS)
            run = await submit(app, skill, origin=origin)
            assert not Tree(mark=source.id).members()
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            assert await app.store.get(source.id) == source
            await app.service.reply(source.id, "red")
            assert (await over(app, source.id)).state is RunState.SUCCEEDED

    run_async(main)


@pytest.mark.contract("J-3", "V-3")
def test_a_run_whose_process_another_program_keeps_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    asking, skill = world.skill([WRITE[0], ASK], [FINISH], name="asking"), world.skill(READ, name="second")

    async def main() -> None:
        async with world.working(WARM, serving=True) as app, world.client() as other:
            source = await waiting(app, (await submit(app, asking)).id)
            await until(lambda: app.warm.count == 1)
            origin = Origin(run_id=source.id, files=InheritedFiles.ARTIFACTS)
            with pytest.raises(Conflict, match="its process is kept while it waits") as refused:
                await submit(other, skill, origin=origin)
            assert refused.value.code is RefusalCode.STATE_UNSUITABLE
            assert app.warm.count == 1
            assert (await over(app, (await submit(app, skill, origin=origin)).id)).state is RunState.SUCCEEDED

    run_async(main)


@pytest.mark.contract("J-3")
def test_a_run_in_which_something_may_write_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    busy = world.skill([{"touch": str(tmp_path / "here")}, {"wait_for": str(tmp_path / "go")}, FINISH], name="busy")
    asking = world.skill([ASK], [FINISH], name="asking")
    skill = world.skill(READ, name="second")

    async def main() -> None:
        async with world.working() as app:
            running = await submit(app, busy)
            await until((tmp_path / "here").exists)
            sticky = await submit(app, asking, options={"interactive_profile": "sticky_process"})
            await waiting(app, sticky.id)
            for run, why in ((running, "it is running"), (sticky, "its process is kept while it waits")):
                with pytest.raises(Conflict, match=why) as refused:
                    await submit(app, skill, origin=Origin(run_id=run.id, files=InheritedFiles.ARTIFACTS))
                assert refused.value.code is RefusalCode.STATE_UNSUITABLE
            assert {path.name for path in (world.data_dir / "runs").iterdir()} == {running.id, sticky.id}
            (tmp_path / "go").touch()
            await over(app, running.id)
            await app.service.cancel(sticky.id)
            await over(app, sticky.id)

    run_async(main)


def test_a_run_that_is_unknown_empty_or_too_large_leaves_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill(WRITE)

    async def main() -> None:
        async with world.working("[limits]\ndisk = 1") as app:
            with pytest.raises(NotFound) as unknown:
                await submit(app, skill, origin=Origin(run_id="1m7gekfsksrgk77s", files=InheritedFiles.ARTIFACTS))
            assert unknown.value.code is RefusalCode.RUN_NOT_FOUND
            source = await over(app, (await submit(app, skill)).id)
            with pytest.raises(Invalid) as nothing:
                await submit(app, skill, origin=Origin(run_id=source.id))
            assert nothing.value.problems[0].startswith("from_run: ")
            (app.workspaces.of(source.id).artifacts_path / "large").write_bytes(os.urandom(2_000_000))
            with pytest.raises(Invalid) as large:
                await submit(app, skill, origin=Origin(run_id=source.id, files=InheritedFiles.ARTIFACTS))
            assert large.value.problems[0].startswith("from_run: the files take more than 1 MB")
            app.workspaces.remove(source.id)
            with pytest.raises(Conflict, match="has no files"):
                await submit(app, skill, origin=Origin(run_id=source.id, files=InheritedFiles.ARTIFACTS))
            assert list((world.data_dir / "runs").iterdir()) == []

    run_async(main)


def test_a_source_whose_files_change_during_the_copy_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    skill = world.skill(WRITE)

    async def main() -> None:
        async with world.working() as app:
            source = await over(app, (await submit(app, skill)).id)
            link = app.workspaces.of(source.id).cwd / "link"
            link.symlink_to("notes")
            read = os.readlink

            def replaced(path: Any, **options: Any) -> Any:
                if path == "link" and link.is_symlink():
                    link.unlink()
                    link.write_text("a file")
                return read(path, **options)

            monkeypatch.setattr(os, "readlink", replaced)
            origin = Origin(run_id=source.id, files=InheritedFiles.WORKSPACE)
            with pytest.raises(Conflict, match="changed while they were copied; try again") as refused:
                await submit(app, skill, origin=origin)
            assert refused.value.code is RefusalCode.STATE_UNSUITABLE
            assert {path.name for path in (world.data_dir / "runs").iterdir()} == {source.id}
            assert (await over(app, (await submit(app, skill, origin=origin)).id)).state is RunState.SUCCEEDED

    run_async(main)


def test_a_source_that_starts_a_turn_during_the_copy_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    asking = world.skill([WRITE[0], ASK], [FINISH], name="asking")

    async def main() -> None:
        async with world.working() as app:
            source = await waiting(app, (await submit(app, asking)).id)
            continuation = app.service._submissions.continuation
            origin = Origin(run_id=source.id, files=InheritedFiles.ARTIFACTS)
            before = await continuation.source(origin)
            await app.service.reply(source.id, "red")
            await reach(app, source.id, RunState.SUCCEEDED)
            with pytest.raises(Conflict, match="while it was copied"):
                await continuation.copy(
                    before, origin, before.evolve(id="new"), app.service.engines.copy_limits("scripted")
                )

    run_async(main)
