"""A file store belongs to one database. Another one, or none, is a store that cannot be used, and never one that has
lost its files."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from functools import partial
from pathlib import Path

import pytest

from askback.app import App, opened
from askback.app.files import examine, files_at
from askback.app.storage import open_store
from askback.blobs.base import read_address
from askback.blobs.identity import ID_FILE, read_id
from askback.cluster.file_store import identify
from askback.core.errors import RefusalCode, Unavailable
from askback.core.runs import RunState
from askback.fs.beneath import remove_tree
from support.data_folder import ASK, FINISH, World, over, reach, run_async, submit, until, waiting
from support.object_store import Bucket, Door

both = pytest.mark.parametrize("database_of_test", ["sqlite", "postgres"], indirect=True)
MOUNTED = "is the share mounted"


def world_in(folder: Path) -> World:
    folder.mkdir()
    return World(folder)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return world_in(tmp_path / "world")


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    return tmp_path / "stored"


def config(files: Path | str) -> str:
    return f'files = "{files}"'


def mark_of(folder: Path) -> str:
    return str(json.loads((folder / ID_FILE).read_text())["id"])


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def recorded(app: App) -> str:
    found = await app.store.file_store()
    assert found is not None
    assert found.confirmed
    return found.id


async def ask(world: World, files: Path | str, skill: str) -> str:
    """A run that waits, on a server that has ended. Nothing of it is on this machine."""
    async with world.working(config(files), serving=True) as app:
        run = await waiting(app, (await submit(app, skill)).id)
    remove_tree(world.data_dir / "runs")
    return run.id


async def answer(app: App, run_id: str) -> RunState:
    await app.service.reply(run_id, "red")
    return (await over(app, run_id)).state


async def refused(world: World, settings: str) -> str:
    with pytest.raises(Unavailable) as refusal:
        async with world.working(settings, serving=True):
            pass
    assert refusal.value.code is RefusalCode.FILES_UNAVAILABLE
    return refusal.value.message


# At the start.


@both
def test_programs_that_start_at_once_agree_on_the_store(world: World, store_address: str) -> None:
    async def start() -> str:
        settings, address = world.settings(), read_address(store_address)
        store = await open_store(settings)
        try:
            return await identify(store, files_at(address), address)
        finally:
            await store.close()

    async def main() -> None:
        world.data_dir.mkdir(parents=True)
        ids = await asyncio.gather(*(start() for _ in range(6)))
        assert set(ids) == {read_id(files_at(read_address(store_address)))}
        assert await start() == ids[0]

    run_async(main)


def test_another_store_is_refused_and_left_as_it_is(world: World, stored: Path, tmp_path: Path) -> None:
    skill = world.skill([ASK], [FINISH])
    empty, missing, foreign = (tmp_path / name for name in ("empty", "missing", "foreign"))

    async def main() -> None:
        run_id = await ask(world, stored, skill)
        async with world_in(tmp_path / "other").working(config(foreign), serving=True):
            pass
        empty.mkdir()
        before = content_of(foreign)
        assert f"has no file {ID_FILE}" in await refused(world, config(empty))
        assert MOUNTED in await refused(world, config(missing))
        message = await refused(world, config(foreign))
        assert mark_of(foreign) in message
        assert mark_of(stored) in message
        assert not missing.exists()
        assert content_of(empty) == {}
        assert content_of(foreign) == before
        async with world.working(config(stored), serving=True) as app:
            assert await answer(app, run_id) is RunState.SUCCEEDED

    run_async(main)


@both
def test_two_databases_do_not_share_a_store(world: World, stored: Path, tmp_path: Path) -> None:
    other = world_in(tmp_path / "other")

    async def main() -> None:
        async with world.working(config(stored), serving=True):
            pass
        before = content_of(stored)
        message = await refused(other, config(stored))
        assert "of another database" in message
        assert "askback files adopt" in message
        assert content_of(stored) == before
        # It has recorded nothing that keeps it from using a store of its own.
        async with other.working(config(tmp_path / "own"), serving=True) as app:
            assert await recorded(app) == mark_of(tmp_path / "own") != mark_of(stored)

    run_async(main)


def test_a_database_with_a_store_is_not_used_without_it(world: World, stored: Path) -> None:
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        run_id = await ask(world, stored, skill)
        assert "the setting `files` is not set" in await refused(world, "")
        # Looking is possible.
        async with opened(world.settings(), read_only=True) as app:
            assert (await app.service.store.get(run_id)).state is RunState.WAITING_USER
        async with world.working(config(stored), serving=True) as app:
            assert not await app.store.has_unshared_files() or world.database is None
            assert await answer(app, run_id) is RunState.SUCCEEDED

    run_async(main)


def test_a_store_that_was_moved_with_its_mark_is_used(world: World, stored: Path, tmp_path: Path) -> None:
    skill, moved = world.skill([ASK], [FINISH]), tmp_path / "moved"

    async def main() -> None:
        run_id = await ask(world, stored, skill)
        shutil.copytree(stored, moved)
        remove_tree(stored)
        (moved / ID_FILE).rename(tmp_path / ID_FILE)
        assert f"has no file {ID_FILE}" in await refused(world, config(moved))
        (tmp_path / ID_FILE).rename(moved / ID_FILE)
        async with world.working(config(moved), serving=True) as app:
            assert await answer(app, run_id) is RunState.SUCCEEDED

    run_async(main)


@pytest.mark.contract("M-9")
def test_a_program_starts_for_the_first_time_while_the_object_store_is_down(world: World, bucket: Bucket) -> None:
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        bucket.turn(Door.REFUSING)
        async with world.working(config(bucket.address), serving=True) as app:
            with pytest.raises(Unavailable):
                await submit(app, skill)
            bucket.turn(Door.OPEN)
            run = await waiting(app, (await submit(app, skill)).id)
            assert await recorded(app) in bucket.content(ID_FILE).decode()
            assert await answer(app, run.id) is RunState.SUCCEEDED

    run_async(main)


# From before there were ids.


async def forget_marks(world: World, stored: Path) -> None:
    """The store as the version before left it, and the database after its upgrade."""
    (stored / ID_FILE).unlink()
    store = await open_store(world.settings(config(stored)))
    await store.replace_file_store(None)
    await store.close()


@both
def test_the_first_start_of_this_version_marks_the_store_that_is_in_use(
    world: World, stored: Path, tmp_path: Path
) -> None:
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        run_id = await ask(world, stored, skill)
        await forget_marks(world, stored)
        # Not even this start takes an empty folder, or none, for the store.
        (tmp_path / "empty").mkdir()
        for wrong in (tmp_path / "empty", tmp_path / "missing"):
            message = await refused(world, config(wrong))
            assert "none of the files that waiting and queued runs need" in message
            async with opened(world.settings(config(wrong)), read_only=True) as app:
                assert (await examine(app.settings, app.store)).problem == message
        assert content_of(tmp_path / "empty") == {}
        assert not (tmp_path / "missing").exists()
        async with world.working(config(stored), serving=True) as app:
            assert await recorded(app) == mark_of(stored)
            assert await answer(app, run_id) is RunState.SUCCEEDED

    run_async(main)


# While a program is running.


class Swapped:
    """An empty folder where the store was: what an unmounted share leaves behind."""

    def __init__(self, stored: Path) -> None:
        self._stored = stored
        self._elsewhere = stored.with_name("elsewhere")

    def take(self) -> None:
        self._stored.rename(self._elsewhere)
        self._stored.mkdir(mode=0o700)

    def give_back(self) -> None:
        assert content_of(self._stored) == {}, "something was stored in the mount point"
        self._stored.rmdir()
        self._elsewhere.rename(self._stored)


@both
@pytest.mark.contract("M-5")
@pytest.mark.contract("M-9")
def test_a_share_that_is_unmounted_is_an_outage_and_no_loss(world: World, stored: Path) -> None:
    skill, share = world.skill([ASK], [FINISH]), Swapped(stored)

    async def main() -> None:
        run_id = await ask(world, stored, skill)
        async with world.working(config(stored), serving=True) as app:
            share.take()
            await app.service.reply(run_id, "red")
            await until(lambda: app.machine.problem is RefusalCode.FILES_UNAVAILABLE)
            assert not (await app.store.get(run_id)).state.final
            for call in (app.uploads.survey, app.workspaces.of(run_id).fetch_inputs):
                with pytest.raises(Unavailable):
                    await asyncio.to_thread(call)
            assert app.files is not None
            for call in (partial(app.files.put, "runs/x/y", b"x"), partial(app.files.list, "runs/"), app.files.check):
                with pytest.raises(Unavailable):
                    await asyncio.to_thread(call)
            share.give_back()
            ended = await over(app, run_id)
            assert (ended.state, ended.restarts) == (RunState.SUCCEEDED, 0)

    run_async(main)


def test_the_end_of_a_turn_waits_for_a_share_that_was_unmounted(
    world: World, stored: Path, caplog: pytest.LogCaptureFixture
) -> None:
    skill = world.skill([{"touch": "started"}, {"wait_for": "go"}, ASK], [FINISH])
    share = Swapped(stored)

    async def main() -> None:
        async with world.working(config(stored), serving=True) as app:
            run_id = (await submit(app, skill)).id
            work = world.data_dir / "runs" / run_id / "work"
            await until((work / "started").exists)
            share.take()
            (work / "go").touch()
            await until(lambda: "cannot be stored, trying again" in caplog.text)
            share.give_back()
            await waiting(app, run_id)
            assert await answer(app, run_id) is RunState.SUCCEEDED

    run_async(main)


def test_nothing_is_removed_on_the_word_of_another_store(world: World, stored: Path, tmp_path: Path) -> None:
    other = world_in(tmp_path / "other")

    async def main() -> None:
        async with other.working(config(tmp_path / "theirs"), serving=True) as app:
            theirs = await waiting(app, (await submit(app, other.skill([ASK], [FINISH]))).id)
        async with world.working(config(stored), serving=True) as app:
            assert app.retention is not None
            stored.rename(tmp_path / "elsewhere")
            (tmp_path / "theirs").rename(stored)
            for path in stored.rglob("*"):
                os.utime(path, (0, 0))
            before = content_of(stored)
            with pytest.raises(Unavailable):
                await app.retention.sweep()
            await asyncio.to_thread(app.workspaces.withdraw, theirs.id)
            assert content_of(stored) == before

    run_async(main)


@pytest.mark.contract("M-9")
def test_a_bucket_that_was_emptied_is_an_outage(world: World, bucket: Bucket) -> None:
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        run_id = await ask(world, bucket.address, skill)
        files = files_at(read_address(bucket.address))
        async with world.working(config(bucket.address), serving=True) as app:
            keys = [each.key for each in files.list("runs/")] + [ID_FILE]
            kept = {key: files.get(key, 1 << 20) for key in keys}
            files.delete(keys)
            await app.service.reply(run_id, "red")
            await until(lambda: app.machine.problem is RefusalCode.FILES_UNAVAILABLE)
            assert not (await app.store.get(run_id)).state.final
            for key, content in kept.items():
                files.put(key, content)
            assert (await over(app, run_id)).state is RunState.SUCCEEDED

    run_async(main)


def test_what_the_right_store_has_lost_is_lost(world: World, stored: Path) -> None:
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        run_id = await ask(world, stored, skill)
        remove_tree(stored / "runs")
        async with world.working(config(stored), serving=True) as app:
            await app.service.reply(run_id, "red")
            ended = await reach(app, run_id, RunState.FAILED)
            assert ended.error is not None
            assert ended.error.code == "SESSION_RESUME_FAILED"

    run_async(main)


def test_a_damaged_mark_is_none(world: World, stored: Path) -> None:
    async def main() -> None:
        async with world.working(config(stored), serving=True):
            pass
        for damaged in (b"", b"{", b'{"id": 1}', b"\xff"):
            (stored / ID_FILE).write_bytes(damaged)
            assert "is damaged" in await refused(world, config(stored))

    run_async(main)
