"""Runs that survive the loss of their disk: home and workspace are in the file store between turns."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from askback.app import App
from askback.blobs.base import Files
from askback.core.errors import ErrorCode, WarningCode
from askback.core.runs import InheritedFiles, Origin, Run, RunState
from askback.engines.scripted import Scripted
from askback.fs import archive_writer
from askback.fs.archive_writer import ArchiveLimits
from askback.fs.beneath import remove_tree
from askback.runs.continuation import Continuable
from askback.worker import machine
from askback.worker.turn import files as turn_files
from askback.workspace.archives import FOLDERS, ArchivedFolder
from support.data_folder import ASK, World, events_of, over, run_async, submit, until, waiting
from support.object_store import Bucket, Door

pytestmark = pytest.mark.contract("M-5")

SIZE = {"ask": {"interaction_id": "size", "prompt": "Which size?"}}
LAST = {"finish": {"colour": "{{replies}}"}}
ANY = {"type": "object", "required": ["colour"]}
NOTE = {"write": {"path": "artifacts/notes.txt", "text": "turn {{turn}}"}}


def stored_in(folder: Path) -> str:
    return f'files = "{folder}"\n'


@pytest.fixture
def config(tmp_path: Path) -> str:
    return stored_in(tmp_path / "stored")


def files(app: App) -> Files:
    assert app.files is not None
    return app.files


async def keys(app: App, run: Run) -> list[str]:
    """What is stored of the run, without its artifacts and raw output."""
    stored = [each.key for each in files(app).list(f"runs/{run.id}/")]
    return sorted(key for key in stored if key.split("/")[2] not in ("artifacts", "contents", "turns"))


def lose(app: App, run: Run) -> None:
    """The disk is lost, while no process uses it."""
    remove_tree(app.workspaces.of(run.id).root)


async def asked_and_saved(app: App, run_id: str) -> Run:
    """The run waits, and nothing of its last turn writes any more."""
    run = await waiting(app, run_id)
    workspace = app.workspaces.of(run_id)
    await until(lambda: (workspace.snapshots / "manifest.json").exists() or not workspace.root.exists())
    await app.warm.drop(run_id)
    return run


def once(world: World, run_id: str, *replies: str) -> bool:
    prompts = "\n".join(world.prompts(run_id))
    return all(prompts.count(f"\n{reply}\n</user_reply>") == 1 for reply in replies)


@pytest.mark.databases
def test_a_run_whose_folder_is_lost_goes_on_in_the_same_session(tmp_path: Path, config: str) -> None:
    world = World(tmp_path)
    skill = world.skill([NOTE, ASK], [SIZE], [LAST], output=ANY)

    async def main() -> None:
        async with world.working(config) as app:
            run = await asked_and_saved(app, (await submit(app, skill)).id)
            assert run.kept == f"runs/{run.id}/kept/1-1.tar.zst"
            lose(app, run)
            await app.service.reply(run.id, "red")
            run = await asked_and_saved(app, run.id)
            assert run.kept == f"runs/{run.id}/kept/2-2.tar.zst"
            await until_stored(app, run)
            lose(app, run)
            await app.service.reply(run.id, "large")
            ended = await over(app, run.id)
            assert (ended.state, ended.error, ended.restarts) == (RunState.SUCCEEDED, None, 0)
            assert once(world, run.id, "red", "large")
            assert len(world.prompts(run.id)) == 3
            assert (app.workspaces.of(run.id).artifacts_path / "notes.txt").read_text() == "turn 1"

    run_async(main)


async def until_stored(app: App, run: Run) -> None:
    """The one archive that the run names is there."""
    while await keys(app, run) != [run.kept]:
        await asyncio.sleep(0.01)


def test_a_bucket_and_another_data_folder_are_enough(tmp_path: Path, bucket: Bucket) -> None:
    """As on another machine: only the database, the bucket and the path of the runs are the same."""
    runs = tmp_path / "runs"
    config = f'files = "{bucket.address}"\nruns_dir = "{runs}"\n'
    world = World(tmp_path)
    skill = world.skill([NOTE, ASK], [LAST], output=ANY)
    found: list[Run] = []

    async def ask() -> None:
        async with world.working(config, serving=True) as app:
            found.append(await asked_and_saved(app, (await submit(app, skill)).id))

    async def answer() -> None:
        async with world.working(config, serving=True) as app:
            await app.service.reply(found[0].id, "red")
            ended = await over(app, found[0].id)
            assert (ended.state, ended.error) == (RunState.SUCCEEDED, None)
            session = (runs / ended.id / "home" / ".scripted" / "sessions").glob("*.jsonl")
            prompts = [json.loads(line) for path in session for line in path.read_text().splitlines()]
            assert len([each for each in prompts if each["type"] == "prompt"]) == 2
            (artifact,) = app.workspaces.of(ended.id).artifacts()
            assert artifact.path == "notes.txt"

    run_async(ask)
    remove_tree(runs)
    run_async(answer)


def test_nothing_is_fetched_while_the_folder_is_current(tmp_path: Path, config: str) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [LAST], output=ANY)

    async def main() -> None:
        async with world.working(config) as app:
            run = await asked_and_saved(app, (await submit(app, skill)).id)
            assert run.kept is not None
            files(app).delete([run.kept])
            await app.service.reply(run.id, "red")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED

    run_async(main)


def test_a_run_whose_archive_is_gone_fails_or_is_rebuilt(tmp_path: Path, config: str) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [LAST], [{"finish": {"colour": "rebuilt"}}], output=ANY)

    async def main() -> None:
        async with world.working(config) as app:
            for options, state in ({}, RunState.FAILED), ({"on_lost_session": "rebuild"}, RunState.SUCCEEDED):
                run = await asked_and_saved(app, (await submit(app, skill, options=options)).id)
                assert run.kept is not None
                files(app).delete([run.kept])
                lose(app, run)
                await app.service.reply(run.id, "red")
                ended = await over(app, run.id)
                assert ended.state is state
                if state is RunState.FAILED:
                    assert ended.error is not None
                    assert ended.error.code is ErrorCode.SESSION_RESUME_FAILED
                    assert run.kept in ended.error.message
                else:
                    assert [each.code for each in ended.warnings] == [WarningCode.CONTEXT_REBUILT]

    run_async(main)


def test_an_interrupted_turn_starts_from_what_the_turn_before_left(tmp_path: Path, config: str) -> None:
    """Workspace and home: what the first attempt wrote is gone."""
    world = World(tmp_path)
    started = {"touch": "started"}
    skill = world.skill([ASK], [started, {"wait_for": "go"}, {"say": "on"}, LAST], output=ANY)

    async def main() -> None:
        async with world.working(config) as app:
            run = await asked_and_saved(app, (await submit(app, skill)).id)
            await app.service.reply(run.id, "red")
            work = app.workspaces.of(run.id).cwd
            await until(lambda: (work / "started").exists())
            (work / "left-behind").touch()
        assert (work / "left-behind").exists()
        async with world.working(config) as app:
            await app.service.take_over(run.id)
            await until(lambda: (work / "started").exists() and not (work / "left-behind").exists())
            (work / "go").touch()
            ended = await over(app, run.id)
            assert (ended.state, ended.error) == (RunState.SUCCEEDED, None)
            assert once(world, run.id, "red")

    run_async(main)


def test_the_first_turn_of_a_run_needs_no_archive(tmp_path: Path, config: str) -> None:
    world = World(tmp_path)
    skill = world.skill([{"touch": "started"}, {"wait_for": "go"}, {"finish": {"colour": "red"}}])

    async def main() -> None:
        async with world.working(config) as app:
            run = await submit(app, skill)
            await until(lambda: (app.workspaces.of(run.id).cwd / "started").exists())
        lose(app, run)
        async with world.working(config) as app:
            await app.service.take_over(run.id)
            await until(lambda: (app.workspaces.of(run.id).cwd / "started").exists())
            (app.workspaces.of(run.id).cwd / "go").touch()
            ended = await over(app, run.id)
            assert ended.state is RunState.SUCCEEDED
            assert await keys(app, ended) == [ended.kept]

    run_async(main)


def test_a_file_that_answers_is_there_after_the_loss(tmp_path: Path, config: str) -> None:
    """It came after the archive was made."""
    world = World(tmp_path)
    skill = world.skill([ASK], [LAST], output=ANY)
    (tmp_path / "plan.txt").write_text("the plan")

    async def main() -> None:
        async with world.working(config) as app:
            run = await asked_and_saved(app, (await submit(app, skill)).id)
            lose(app, run)
            await app.service.reply_with_file(run.id, tmp_path / "plan.txt", "colour")
            ended = await over(app, run.id)
            assert (ended.state, ended.error) == (RunState.SUCCEEDED, None)
            (answer,) = (app.workspaces.of(run.id).cwd / "inputs").rglob("plan.txt")
            assert answer.read_text() == "the plan"

    run_async(main)


# The file store is down.


def test_a_reply_waits_for_the_store_of_files_and_is_not_counted(
    tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn_files, "PATIENCE_SEC", 0.0)
    # The turn meets the outage first.
    monkeypatch.setattr(machine, "CHECK_FILES_SEC", 600.0)
    world = World(tmp_path)
    skill = world.skill([ASK], [LAST], output=ANY)

    async def main() -> None:
        async with world.working(f'files = "{bucket.address}"\n') as app:
            run = await asked_and_saved(app, (await submit(app, skill)).id)
            lose(app, run)
            bucket.turn(Door.REFUSING)
            await app.service.reply(run.id, "red")
            while not any(each.data.get("outcome") == "interrupted" for each in await events_of(app, run.id)):
                await asyncio.sleep(0.05)
            assert not (await app.store.get(run.id)).state.final
            bucket.turn(Door.OPEN)
            ended = await over(app, run.id)
            assert (ended.state, ended.error, ended.restarts) == (RunState.SUCCEEDED, None, 0)
            assert once(world, run.id, "red")

    run_async(main)


def test_the_end_of_a_turn_waits_for_the_store_of_files(tmp_path: Path, bucket: Bucket, caplog: Any) -> None:
    world = World(tmp_path)
    skill = world.skill([{"touch": "started"}, {"wait_for": "go"}, ASK], [LAST], output=ANY)

    async def main() -> None:
        async with world.working(f'files = "{bucket.address}"\n') as app:
            run = await submit(app, skill)
            work = app.workspaces.of(run.id).cwd
            await until(lambda: (work / "started").exists())
            bucket.turn(Door.REFUSING)
            (work / "go").touch()
            await until(lambda: "cannot be stored, trying again" in caplog.text)
            assert (await app.store.get(run.id)).state is RunState.RUNNING
            bucket.turn(Door.OPEN)
            run = await waiting(app, run.id)
            assert await keys(app, run) == [run.kept]

    run_async(main)


# What is kept, and for how long.


def test_no_sign_in_is_ever_in_the_store(tmp_path: Path, config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, token = ".scripted/auth.json", "ada-secret-token"
    monkeypatch.setattr(Scripted, "credentials", (name,))
    user = tmp_path / "user"
    (user / name).parent.mkdir(parents=True)
    (user / name).write_text(json.dumps({"token": token}))
    world = World(tmp_path)
    skill = world.skill([ASK], [LAST], output=ANY)
    warm = "[warm]\nmax_processes = 8\nmax_memory = 0\nmin_free_memory = 0\n"
    signed_in = f'{config}warm_sec = 600\n{warm}[engines.scripted]\nhome = "{user}"\n'

    async def main() -> None:
        async with world.working(signed_in) as app:
            run = await waiting(app, (await submit(app, skill)).id)
            await until(lambda: app.warm.find(run.id) is not None)
            # The process is alive, with its sign-in.
            assert token in (app.workspaces.of(run.id).home / name).read_text()
            assert run.kept is not None
            unpacked = await fetched(app, run, tmp_path / "seen")
            assert (unpacked / "home" / ".scripted").is_dir()
            assert not [path for path in unpacked.rglob("*") if path.is_file() and token.encode() in path.read_bytes()]

    run_async(main)


async def fetched(app: App, run: Run, target: Path) -> Path:
    """What the store has of the run, unpacked."""
    from askback.fs.archive_reader import unpack

    assert run.kept is not None
    target.mkdir()
    files(app).fetch(run.kept, target / "archive")
    with (target / "archive").open("rb") as archive:
        unpack(archive, target, names=FOLDERS)
    (target / "archive").unlink()
    return target


def test_a_warm_run_resumes_cold_where_its_process_is_not(tmp_path: Path, config: str) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [SIZE], [LAST], output=ANY)
    warm = f"{config}warm_sec = 600\n[warm]\nmax_processes = 8\nmax_memory = 0\nmin_free_memory = 0\n"

    async def main() -> None:
        async with world.working(warm) as app:
            run = await waiting(app, (await submit(app, skill)).id)
            await until(lambda: app.warm.find(run.id) is not None)
            await app.service.reply(run.id, "red")
            run = await waiting(app, run.id)
            assert app.warm.hits == 1
            await until(lambda: app.warm.find(run.id) is not None)
            await app.warm.drop(run.id)
            lose(app, run)
            await app.service.reply(run.id, "large")
            ended = await over(app, run.id)
            assert (ended.state, ended.error, ended.restarts) == (RunState.SUCCEEDED, None, 0)
            assert once(world, run.id, "red", "large")

    run_async(main)


def test_a_sticky_run_is_kept_when_it_is_over(tmp_path: Path, config: str) -> None:
    world = World(tmp_path)
    skill = world.skill([NOTE, ASK], [LAST], output=ANY)

    async def main() -> None:
        async with world.working(config) as app:
            sticky = {"interactive_profile": "sticky_process"}
            run = await waiting(app, (await submit(app, skill, options=sticky)).id)
            assert run.kept is None
            await app.service.reply(run.id, "red")
            ended = await over(app, run.id)
            assert await keys(app, ended) == [ended.kept]
            canceled = await waiting(app, (await submit(app, skill, options=sticky)).id)
            await app.service.cancel(canceled.id)
            canceled = await over(app, canceled.id)
            unpacked = await fetched(app, canceled, tmp_path / "seen")
            assert (unpacked / "work" / "artifacts" / "notes.txt").read_text() == "turn 1"

    run_async(main)


def test_files_beyond_the_limits_are_not_kept_and_the_run_says_so(
    tmp_path: Path, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_writer, "ArchiveLimits", lambda: ArchiveLimits(max_entries=2))
    world = World(tmp_path)
    skill = world.skill([ASK], [LAST], output=ANY)

    async def main() -> None:
        async with world.working(config) as app:
            run = await asked_and_saved(app, (await submit(app, skill)).id)
            assert [each.code for each in run.warnings] == [WarningCode.FILES_NOT_KEPT]
            assert await keys(app, run) == []
            # Here it goes on.
            await app.service.reply(run.id, "red")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            lost = await asked_and_saved(app, (await submit(app, skill)).id)
            lose(app, lost)
            await app.service.reply(lost.id, "red")
            ended = await over(app, lost.id)
            assert ended.error is not None
            assert ended.error.code is ErrorCode.SESSION_RESUME_FAILED

    run_async(main)


def test_the_key_to_secret_variables_is_in_the_store_until_the_run_is_over(tmp_path: Path, config: str) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [{"finish": {"colour": "{{env.SHADE}}"}}], [LAST], output=ANY)
    secret = "a-very-secret-shade"

    async def main() -> None:
        async with world.working(config) as app:
            run = await asked_and_saved(app, (await submit(app, skill, env={"SHADE": secret})).id)
            pad = f"runs/{run.id}/env.pad"
            assert await keys(app, run) == sorted([pad, str(run.kept)])
            assert (app.workspaces.of(run.id).root / "env.pad").read_bytes() == b""
            lose(app, run)
            await app.service.reply(run.id, "red")
            ended = await over(app, run.id)
            while await keys(app, ended) != [ended.kept]:
                await asyncio.sleep(0.01)
            canceled = await asked_and_saved(app, (await submit(app, skill, env={"SHADE": secret})).id)
            await app.service.cancel(canceled.id)
            assert await keys(app, canceled) == [canceled.kept]

    run_async(main)


# Other runs.


@pytest.mark.parametrize("at", [None, "colour"])
def test_a_run_can_be_continued_where_its_files_are_not(tmp_path: Path, config: str, at: str | None) -> None:
    world = World(tmp_path)
    skill = world.skill([NOTE, ASK], [SIZE], [LAST], [LAST], output=ANY)

    async def main() -> None:
        async with world.working(config) as app:
            run = await asked_and_saved(app, (await submit(app, skill)).id)
            await app.service.reply(run.id, "red")
            run = await asked_and_saved(app, run.id)
            await app.service.reply(run.id, "large")
            source = await over(app, run.id)
            here = await app.service.continuable(source)
            lose(app, source)
            assert await app.service.continuable(source) == here != Continuable()
            origin = Origin(run_id=source.id, session=True, at=at, files=InheritedFiles.ARTIFACTS)
            fork = await submit(app, skill, origin=origin)
            # The first turn may start on another machine.
            assert fork.kept is not None
            lose(app, fork)
            lose(app, source)
            if at is not None:
                await app.service.reply(fork.id, "blue")
                fork = await waiting(app, fork.id)
            else:
                fork = await over(app, fork.id)
                assert fork.state is RunState.SUCCEEDED
            assert len(world.prompts(fork.id)) == (2 if at else 4)
            assert (app.workspaces.of(fork.id).artifacts_path / "notes.txt").read_text() == "turn 1"

    run_async(main)


# Deletion.


def test_a_deleted_run_leaves_nothing_in_the_store(tmp_path: Path, config: str) -> None:
    world = World(tmp_path)
    skill = world.skill([{"finish": {"colour": "red"}}])

    async def main() -> None:
        async with world.working(config) as app:
            run = await over(app, (await submit(app, skill)).id)
            assert await keys(app, run) == [run.kept]
            await app.service.delete(run.id)
            assert await keys(app, run) == []

    run_async(main)


def test_what_nobody_refers_to_is_swept(tmp_path: Path, config: str) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [LAST], output=ANY)

    async def main() -> None:
        async with world.working(config, serving=True) as app:
            run = await asked_and_saved(app, (await submit(app, skill)).id)
            orphan, newer, stranger = (
                f"runs/{run.id}/kept/0-7.tar.zst",
                f"runs/{run.id}/kept/1-2.tar.zst",
                "runs/gone/env.pad",
            )
            for key in (orphan, newer, stranger):
                files(app).put(key, b"x")
            assert app.retention is not None
            await app.retention.sweep()
            assert await keys(app, run) == [run.kept]
            # It may belong to a run that is being submitted.
            assert files(app).size(stranger) == 1
            assert app.archives is not None
            assert (await app.archives.sizes())[run.id] > 0

    run_async(main)


def test_a_note_of_another_boot_does_not_count(tmp_path: Path, config: str) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [LAST], output=ANY)

    async def main() -> None:
        async with world.working(config) as app:
            run = await asked_and_saved(app, (await submit(app, skill)).id)
            folder = ArchivedFolder(app.workspaces.of(run.id))
            assert folder.key() == run.kept
            note = app.workspaces.of(run.id).root / "kept"
            note.write_text(f"another-boot {run.kept}")
            assert folder.key() is None
            # As after a power failure.
            (app.workspaces.of(run.id).home / ".scripted").rename(app.workspaces.of(run.id).home / "damaged")
            await app.service.reply(run.id, "red")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            assert once(world, run.id, "red")

    run_async(main)
