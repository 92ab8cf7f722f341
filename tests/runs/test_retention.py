"""What a server removes: runs that are over, by age and by size, and old uploads; never a run that is not over."""

from __future__ import annotations

import asyncio
import io
import os
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from askback.app import App, now
from askback.core.errors import NotFound
from askback.runs.deletion import Retention, RetentionPolicy
from askback.store.pages import RunFilter
from askback.workspace.uploads import Uploads
from support.data_folder import ASK, FINISH, World, over, run_async, submit, until, waiting

MB = 1024 * 1024


def retention(app: App, *, days_later: float = 0, days: float | None = None, max_bytes: int | None = None) -> Retention:
    moment = now() + timedelta(days=days_later)
    return retention_at(app, moment, RetentionPolicy(days=days, max_bytes=max_bytes))


def retention_at(app: App, moment: datetime, keeping: RetentionPolicy) -> Retention:
    return Retention(store=app.store, deletion=app.deletion, policy=keeping, clock=lambda: moment)


async def ended(app: App, skill: str, megabytes: int = 0) -> str:
    """A run that is over and has left files."""
    run = await over(app, (await submit(app, skill, mode="auto")).id)
    (app.workspaces.of(run.id).artifacts_path / "file").write_bytes(os.urandom(megabytes * MB))
    return run.id


async def left(app: App) -> set[str]:
    return {run.id for run in (await app.store.list_runs(RunFilter())).items}


def folders(world: World) -> set[str]:
    return {path.name for path in (world.data_dir / "runs").iterdir()}


def test_runs_that_were_over_long_ago_go_with_their_files(tmp_path: Path) -> None:
    world = World(tmp_path)
    done, asks = world.skill([{"finish": {"colour": "red"}}]), world.skill([ASK], [FINISH], name="asks")

    async def main() -> None:
        async with world.working() as app:
            old = {await ended(app, done), await ended(app, done)}
            still = (await waiting(app, (await submit(app, asks)).id)).id
            await retention(app, days_later=6, days=7).sweep()
            assert await left(app) == folders(world) == old | {still}
            await retention(app, days_later=8, days=7).sweep()
            assert await left(app) == folders(world) == {still}
            await app.service.reply(still, "red")
            await over(app, still)

    run_async(main)


def test_age_counts_from_the_end_not_from_the_beginning(tmp_path: Path) -> None:
    world = World(tmp_path)
    asks, done = world.skill([ASK], [FINISH]), world.skill([{"finish": {"colour": "red"}}], name="done")

    async def main() -> None:
        async with world.working() as app:
            first = (await waiting(app, (await submit(app, asks)).id)).id
            second = await ended(app, done)
            await app.service.reply(first, "red")
            run = await over(app, first)
            assert run.finished_at is not None
            between = run.finished_at - timedelta(microseconds=1)
            await retention_at(app, between + timedelta(days=1), RetentionPolicy(days=1)).sweep()
            assert await left(app) == {first}, f"{second} was over before"

    run_async(main)


def test_beyond_its_size_the_oldest_that_are_over_go(tmp_path: Path) -> None:
    world = World(tmp_path)
    done, asks = world.skill([{"finish": {"colour": "red"}}]), world.skill([ASK], [FINISH], name="asks")

    async def main() -> None:
        async with world.working() as app:
            still = (await waiting(app, (await submit(app, asks)).id)).id
            (app.workspaces.of(still).artifacts_path / "file").write_bytes(os.urandom(3 * MB))
            runs = [await ended(app, done, 2) for _ in range(4)]
            await retention(app, max_bytes=100 * MB).sweep()
            assert await left(app) == {still, *runs}
            await retention(app, max_bytes=8 * MB).sweep()
            assert await left(app) == folders(world) == {still, *runs[2:]}
            await retention(app, max_bytes=1).sweep()
            assert await left(app) == folders(world) == {still}

    run_async(main)


def test_without_a_setting_everything_is_kept(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([{"finish": {"colour": "red"}}])

    async def main() -> None:
        async with world.working() as app:
            run_id = await ended(app, skill)
            await retention(app, days_later=10_000).sweep()
            assert await left(app) == folders(world) == {run_id}

    run_async(main)


def test_a_server_sweeps_when_it_starts(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([{"finish": {"colour": "red"}}])

    async def main() -> None:
        async with world.working() as app:
            run_id = await ended(app, skill)
        async with world.working("[retention]\ndays = 0.0000001\n", serving=True) as app:
            await until(lambda: not folders(world))
            while await left(app):
                await asyncio.sleep(0.01)
            with pytest.raises(NotFound):
                await app.service.store.get(run_id)

    run_async(main)


def test_a_crash_in_the_middle_is_finished_by_the_next_sweep(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([{"finish": {"colour": "red"}}])

    async def main() -> None:
        async with world.working() as app:
            run_id = await ended(app, skill)
            app.workspaces.remove(run_id)
            await retention(app, days_later=2, days=1).sweep()
            assert await left(app) == set()

    run_async(main)


def test_files_behind_a_link_and_in_a_locked_folder(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([{"finish": {"colour": "red"}}])
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o750)
    (outside / "kept").write_text("mine")

    async def main() -> None:
        async with world.working() as app:
            run_id = await ended(app, skill)
            folder = app.workspaces.of(run_id).artifacts_path
            (folder / "link").symlink_to(outside)
            (folder / "locked" / "inner").mkdir(parents=True)
            (folder / "locked" / "inner").chmod(0)
            (folder / "locked").chmod(0o500)
            await retention(app, days_later=2, days=1).sweep()
            assert folders(world) == set()
            assert (outside / "kept").read_text() == "mine"
            assert outside.stat().st_mode & 0o777 == 0o750

    run_async(main)


def test_uploads_are_kept_for_a_day(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def main() -> None:
        async with world.client() as app:
            uploads = Uploads(world.data_dir / "uploads")
            old, new = uploads.store("a.txt", io.BytesIO(b"a")), uploads.store("b.txt", io.BytesIO(b"b"))
            past = time.time() - 25 * 3600
            os.utime(world.data_dir / "uploads" / old.upload_id, (past, past))
            await retention(app).sweep()
            assert uploads.path(new.upload_id).read_bytes() == b"b"
            with pytest.raises(NotFound):
                uploads.path(old.upload_id)

    run_async(main)


def test_files_of_a_run_that_never_came_to_be_go_after_a_day(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])
    text = tmp_path / "plan.txt"
    text.write_text("plan")

    async def main() -> None:
        async with world.client() as app:
            queued = (await submit(app, skill)).id
            for run_id in (queued, "half-made"):
                app.workspaces.of(run_id).stage_input("plan", text)
            await retention(app).sweep()
            assert folders(world) == {queued, "half-made"}
            await retention(app, days_later=1.1).sweep()
            assert folders(world) == {queued}

    run_async(main)
