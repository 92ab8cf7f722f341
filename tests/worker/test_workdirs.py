"""Runs that work in a folder of the user: what they leave there, what they keep, and what never happens to the folder."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from askback.app import App
from askback.core.changes import ChangedFile, Changes, ChangeStatus, NoSummary
from askback.core.errors import Conflict, ErrorCode, Invalid, RefusalCode, WarningCode
from askback.core.runs import InheritedFiles, Origin, Run, RunState, Workdir
from askback.workspace.layout import Workspace
from support.data_folder import ASK, FINISH, World, events_of, over, reach, run_async, submit, until, waiting
from support.repositories import contents, git, repository

EDIT = {"write": {"path": "site.css", "text": "blue\n"}}
REPORT = {"write": {"path": "artifacts/report.md", "text": "# Report\n"}}
EDITED = ChangedFile(path="site.css", status=ChangeStatus.MODIFIED, insertions=1, deletions=1)


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
@pytest.mark.parametrize("profile", ["resumable", "sticky_process"])
@pytest.mark.parametrize("sandbox", ["off", "auto"])
def test_a_run_changes_the_folder_and_leaves_nothing_of_ours_but_artifacts(
    world: World, repo: Path, profile: str, sandbox: str
) -> None:
    skill = world.skill([EDIT, ASK], [REPORT, FINISH])
    before = contents(repo)

    async def main() -> None:
        async with world.working(f'sandbox = "{sandbox}"') as app:
            run = await waiting(app, (await start(app, skill, repo, options={"interactive_profile": profile})).id)
            assert run.workdir == Workdir(path=str(repo), by_user=True)
            assert await app.service.changes(run) == Changes(files=(EDITED,), total=1, insertions=1, deletions=1)
            await app.service.reply(run.id, "blue")
            run = await over(app, run.id)
            assert (run.state, run.error, run.warnings) == (RunState.SUCCEEDED, None, ())
            result = await app.service.result(run.id)
            assert [(each.path, each.turn) for each in result.artifacts] == [("report.md", 2)]
            assert result.changes == Changes(files=(EDITED,), total=1, insertions=1, deletions=1)
            # What is needed only to compare is removed with the end of the run.
            await until(lambda: not app.workspaces.of(run.id).comparison.exists())

    run_async(main)
    changed = {"site.css": b"blue\n", "artifacts": "", "artifacts/report.md": b"# Report\n"}
    assert contents(repo) == dict(sorted((before | changed).items()))


def test_the_engine_is_told_of_its_folder_and_where_its_skill_and_files_are(
    tmp_path: Path, world: World, repo: Path
) -> None:
    plan = {"type": "object", "properties": {"plan": {"type": "string", "x-input-source": "file"}}}
    skill = world.skill([ASK], [FINISH], schemas={"input": plan})
    (tmp_path / "plan.md").write_text("the plan")
    (tmp_path / "answer.txt").write_text("an answer")

    async def main() -> None:
        async with world.working() as app:
            run = await start(app, skill, repo, files={"plan": tmp_path / "plan.md"})
            run = await waiting(app, run.id)
            work = app.workspaces.of(run.id).cwd
            await app.service.reply_with_file(run.id, tmp_path / "answer.txt", "colour")
            await over(app, run.id)
            first, second = world.prompts(run.id)
            assert f"are in `{work}/skill/`." in first
            assert f'"plan": "{work}/inputs/plan/plan.md"' in first
            assert (work / "inputs/plan/plan.md").read_text() == "the plan"
            assert "the user's own folder" in first
            assert f"The answer is the file {work}/inputs/answer-1-" in second
            assert (await app.store.request(run.id)).input == {"plan": "inputs/plan/plan.md"}
            assert sorted(path.name for path in repo.iterdir()) == [
                ".git",
                ".gitignore",
                "artifacts",
                "notes.txt",
                "old.txt",
                "site.css",
            ]

    run_async(main)


def test_files_that_artifacts_had_before_are_not_the_runs_and_copies_stay_as_they_are(world: World, repo: Path) -> None:
    (repo / "artifacts/deep").mkdir(parents=True)
    (repo / "artifacts/earlier.txt").write_text("of an earlier run")
    (repo / "artifacts/link").symlink_to("/etc/passwd")
    skill = world.skill(
        [REPORT, {"write": {"path": "artifacts/deep/a.txt", "text": "a"}}, ASK],
        [{"write": {"path": "artifacts/earlier.txt", "text": "of this run"}}, FINISH],
    )

    async def main() -> None:
        async with world.working() as app:
            run = await waiting(app, (await start(app, skill, repo)).id)
            assert [each.path for each in await app.service.artifacts(run.id)] == ["report.md", "deep/a.txt"]
            (repo / "artifacts/deep/a.txt").unlink()
            await app.service.reply(run.id, "red")
            run = await over(app, run.id)
            found = {each.path: each.turn for each in await app.service.artifacts(run.id)}
            assert found == {"report.md": 1, "earlier.txt": 2}
            shutil.rmtree(repo)
            with await app.service.open_artifact(run.id, "earlier.txt") as file:
                assert file.read() == b"of this run"

    run_async(main)


@pytest.mark.parametrize("make", ["file", "link"])
def test_an_artifacts_that_is_no_folder_is_refused_and_left_alone(
    tmp_path: Path, world: World, repo: Path, make: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    if make == "file":
        (repo / "artifacts").write_text("a file of the user")
    else:
        (repo / "artifacts").symlink_to(tmp_path / "elsewhere")
    before = contents(repo)

    async def main() -> None:
        async with world.working() as app:
            with pytest.raises(Invalid) as refused:
                await start(app, world.skill([REPORT, FINISH]), repo)
            assert refused.value.problems == (
                f"workdir: {repo}/artifacts is not a folder; rename it, so that output files can go there",
            )

    run_async(main)
    assert contents(repo) == before
    assert not any((tmp_path / "elsewhere").iterdir())


# One run at a time.


@pytest.mark.contract("J-6")
def test_only_one_unfinished_run_works_in_a_folder_and_what_is_in_it(tmp_path: Path, world: World, repo: Path) -> None:
    (repo / "part").mkdir()
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working() as app:
            first = await waiting(app, (await start(app, skill, repo / "part")).id)
            for folder in (repo, repo / "part"):
                with pytest.raises(Conflict) as refused:
                    await start(app, skill, folder)
                assert refused.value.code is RefusalCode.WORKDIR_IN_USE
                assert first.id in refused.value.message
            neighbour = await start(app, skill, repository(tmp_path / "repo2"))
            await waiting(app, neighbour.id)
            await app.service.cancel(first.id)
            second = await waiting(app, (await start(app, skill, repo)).id)
            with pytest.raises(Conflict):
                await start(app, skill, repo / "part")
            assert second.state is RunState.WAITING_USER

    run_async(main)


def test_of_many_runs_at_once_one_gets_the_folder(world: World, repo: Path) -> None:
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working() as app:
            made = await asyncio.gather(*(start(app, skill, repo) for _ in range(8)), return_exceptions=True)
            assert len([each for each in made if isinstance(each, Run)]) == 1
            refused = [each for each in made if isinstance(each, Conflict)]
            assert [each.code for each in refused] == [RefusalCode.WORKDIR_IN_USE] * 7

    run_async(main)


# A folder that is not there any more.


@pytest.mark.contract("J-6")
@pytest.mark.parametrize("fate", ["removed", "a file", "a link", "unwritable artifacts"])
def test_a_folder_that_vanished_before_the_reply_fails_the_run_with_one_code(
    tmp_path: Path, world: World, repo: Path, fate: str
) -> None:
    victim = repository(tmp_path / "victim")
    skill = world.skill([ASK], [EDIT, FINISH])

    async def main() -> None:
        async with world.working() as app:
            run = await waiting(app, (await start(app, skill, repo)).id)
            shutil.rmtree(repo / "artifacts" if fate == "unwritable artifacts" else repo)
            match fate:
                case "a file":
                    repo.write_text("not a folder")
                case "a link":
                    repo.symlink_to(victim)
                case "unwritable artifacts":
                    (repo / "artifacts").write_text("not a folder")
            before = contents(victim)
            await app.service.reply(run.id, "red")
            run = await over(app, run.id)
            assert run.error is not None
            assert (run.state, run.error.code) == (RunState.FAILED, ErrorCode.WORKDIR_UNAVAILABLE)
            assert str(repo) in run.error.message
            assert contents(victim) == before

    run_async(main)


def test_a_folder_that_vanished_during_a_turn_keeps_the_copies_and_is_reported(
    tmp_path: Path, world: World, repo: Path
) -> None:
    skill = world.skill([REPORT, ASK], [{"touch": "started"}, {"wait_for": str(tmp_path / "go")}, FINISH])

    async def main() -> None:
        async with world.working() as app:
            run = await waiting(app, (await start(app, skill, repo)).id)
            await app.service.reply(run.id, "red")
            await until(lambda: (repo / "started").exists())
            repo.rename(tmp_path / "moved")
            (tmp_path / "go").touch()
            run = await over(app, run.id)
            assert [each.code for each in run.warnings] == [WarningCode.ARTIFACTS_NOT_COLLECTED]
            assert [each.path for each in await app.service.artifacts(run.id)] == ["report.md"]
            changes = await app.service.changes(run)
            assert changes is not None
            assert changes.unavailable is not None

    run_async(main)


# Crashes, deletion and retention.


@pytest.mark.contract("J-6")
def test_a_repeated_turn_finds_the_folder_as_it_was_left_and_says_so(tmp_path: Path, world: World, repo: Path) -> None:
    step = {"write": {"path": "half.txt", "text": "half\n"}}
    skill = world.skill([ASK], [step, {"wait_for": str(tmp_path / "go")}, EDIT, FINISH])

    async def main() -> None:
        async with world.working() as app:
            run = await waiting(app, (await start(app, skill, repo)).id)
            await app.service.reply(run.id, "red")
            await until(lambda: (repo / "half.txt").exists())
        (repo / "of_the_user.txt").write_text("written in between")
        async with world.working() as app:
            run = await app.service.take_over(run.id)
            assert (repo / "half.txt").exists()
            assert (repo / "of_the_user.txt").exists()
            assert [each.code for each in run.warnings] == [WarningCode.WORKDIR_TURN_REPEATED]
            (tmp_path / "go").touch()
            run = await over(app, run.id)
            assert (run.state, (repo / "site.css").read_text()) == (RunState.SUCCEEDED, "blue\n")
            assert "run.warning" in [event.type for event in await events_of(app, run.id)]
            changes = await app.service.changes(run)
            assert changes is not None
            assert [each.path for each in changes.files] == ["half.txt", "of_the_user.txt", "site.css"]

    run_async(main)


@pytest.mark.contract("J-6")
def test_deletion_retention_and_recovery_leave_the_folder_alone(world: World, repo: Path) -> None:
    skill = world.skill([EDIT, REPORT, {"finish": {"colour": "blue"}}])

    async def main() -> None:
        async with world.working(serving=True) as app:
            first = await over(app, (await start(app, skill, repo)).id)
            second = await over(app, (await start(app, skill, repo)).id)
            left = contents(repo)
            # An engine without a sandbox may put links to the folder into the run's own folders.
            for run in (first, second):
                root = app.workspaces.of(run.id).root
                (root / "work/artifacts/in").symlink_to(repo)
                (root / "home/link").symlink_to(repo)
                shutil.rmtree(root / "tmp")
                (root / "tmp").symlink_to(repo)
            await app.service.delete(first.id)
            assert contents(repo) == left
            assert app.retention is not None
            await app.recovery.restart_all()
            await app.retention.sweep()
            assert await app.deletion.delete_all([second.id]) == 1
            assert contents(repo) == left
            assert not any((world.data_dir / "runs").iterdir())

    run_async(main)
    assert git(repo, "status", "--porcelain", "--untracked-files=all").splitlines() == [
        " M old.txt",
        " M site.css",
        "?? artifacts/report.md",
        "?? notes.txt",
    ]


def test_the_size_of_the_folder_does_not_count_for_the_run(tmp_path: Path, world: World, repo: Path) -> None:
    (repo / "build").mkdir()
    (repo / "build/large.bin").write_bytes(bytes(30_000_000))
    wait = {"wait_for": str(tmp_path / "go")}
    skill = world.skill([wait, EDIT, {"finish": {"colour": "blue"}}], name="in-folder")
    large = {"type": "object", "properties": {"file": {"type": "string", "x-input-source": "file"}}}
    full = world.skill([wait], name="full", schemas={"input": large})

    async def main() -> None:
        async with world.working("slots = 2\nlimits.disk = 10") as app:
            run = await reach(app, (await start(app, skill, repo)).id, RunState.RUNNING)
            await until(lambda: app.workspaces.of(run.id).prompt_path("001-001").exists())
            # The disk of a run that started later is checked in the meantime, and found full.
            later = await submit(app, full, files={"file": repo / "build/large.bin"})
            ended = await over(app, later.id)
            assert ended.error is not None
            assert ended.error.cause is ErrorCode.DISK_LIMIT
            (tmp_path / "go").touch()
            run = await over(app, run.id)
            assert (run.state, run.error) == (RunState.SUCCEEDED, None)
            assert app.workspaces.sizes()[run.id] < 10_000_000

    run_async(main)


# Continued runs.


@pytest.mark.contract("J-6", "J-3")
def test_files_of_such_a_run_are_its_own_and_not_the_folder(world: World, repo: Path) -> None:
    first = world.skill([EDIT, REPORT, {"finish": {"colour": "blue"}}], name="first")
    second = world.skill([{"finish": {"colour": "red"}}], name="second")

    def files(workspace: Workspace) -> set[str]:
        found = {str(path.relative_to(workspace.cwd)) for path in workspace.cwd.rglob("*") if path.is_file()}
        return {name for name in found if not name.startswith("skill/")}

    async def main() -> None:
        async with world.working() as app:
            source = await over(app, (await start(app, first, repo)).id)
            for kind in InheritedFiles:
                run = await submit(app, second, origin=Origin(run_id=source.id, files=kind))
                run = await over(app, run.id)
                assert (run.workdir, files(app.workspaces.of(run.id))) == (None, {"artifacts/report.md"})
            with pytest.raises(Invalid) as refused:
                await start(app, second, repo, origin=Origin(run_id=source.id, files=InheritedFiles.ARTIFACTS))
            assert refused.value.problems[0].startswith("from_run.files: ")

    run_async(main)


@pytest.mark.contract("J-6", "J-4")
def test_a_session_is_continued_and_forked_in_the_folder_that_it_knows(
    tmp_path: Path, world: World, repo: Path
) -> None:
    other = repository(tmp_path / "other")
    asking = world.skill([ASK], [EDIT, FINISH])

    async def main() -> None:
        async with world.working() as app:
            source = await waiting(app, (await start(app, asking, repo)).id)
            await app.service.reply(source.id, "red")
            source = await over(app, source.id)
            for origin in (Origin(run_id=source.id, session=True), Origin(run_id=source.id, session=True, at="colour")):
                for wrong in (None, str(other)):
                    with pytest.raises(Invalid) as refused:
                        await submit(app, asking, origin=origin, workdir=wrong)
                    assert str(repo) in refused.value.problems[0]
            fork = await start(app, asking, repo, origin=origin)
            assert fork.state is RunState.WAITING_USER
            await app.service.reply(fork.id, "green")
            fork = await over(app, fork.id)
            assert (fork.state, (await app.service.result(fork.id)).data) == (RunState.SUCCEEDED, {"colour": "green"})

    run_async(main)


# No summary.


def test_a_folder_without_git_has_no_summary_and_says_why(tmp_path: Path, world: World) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    skill = world.skill([EDIT, {"finish": {"colour": "blue"}}])

    async def main() -> None:
        async with world.working() as app:
            run = await over(app, (await start(app, skill, folder)).id)
            assert run.state is RunState.SUCCEEDED
            assert await app.service.changes(run) == Changes(unavailable=NoSummary.NOT_A_REPOSITORY)

    run_async(main)


def test_a_run_that_worked_in_no_folder_has_no_changes(world: World) -> None:
    skill = world.skill([{"finish": {"colour": "blue"}}])

    async def main() -> None:
        async with world.working() as app:
            run = await over(app, (await submit(app, skill)).id)
            assert (run.workdir, (await app.service.result(run.id)).changes) == (None, None)

    run_async(main)


@pytest.mark.contract("J-2", "J-6")
def test_a_variable_in_the_name_of_an_artifact_is_masked_in_the_copy_and_stays_in_the_folder(tmp_path: Path) -> None:
    world, folder, value = World(tmp_path), tmp_path / "mine", "env-value-4711"
    folder.mkdir()
    name = f"of {value}.md"
    turn = [{"write": {"path": f"artifacts/{name}", "text": "x"}}]
    skill = world.skill([*turn, ASK], [*turn, {"finish": {"colour": "red"}}], name="naming")

    async def main() -> None:
        async with world.working() as app:
            run = await submit(app, skill, env={"SHOP_TOKEN": value}, workdir=str(folder))
            await waiting(app, run.id)
            assert [each.path for each in await app.service.artifacts(run.id)] == ["of [redacted].md"]
            await app.service.reply(run.id, "blue")
            await over(app, run.id)
            assert [each.path for each in await app.service.artifacts(run.id)] == ["of [redacted].md"]
            assert [each.name for each in (folder / "artifacts").iterdir()] == [name]

    run_async(main)
