"""One queue for several programs: each run is executed once, and a program that stops leaves nothing behind."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from askback.app import App, opened
from askback.core.events import EventType
from askback.core.runs import RunState
from askback.store.base import Store
from askback.store.sqlite import SqliteStore
from support.data_folder import ASK, FINISH, World, events_of, over, reach, run_async, submit, until

ENDLESS = [{"touch": "started"}, {"wait_for": "never"}]
LIMIT_SEC = 120.0


async def jobs(app: App) -> list[str]:
    """The states of the jobs. The queue in SQLite has none."""
    assert isinstance(app.store, Store)
    if isinstance(app.store, SqliteStore):
        return []
    sql = "SELECT status::text FROM procrastinate_jobs ORDER BY id"
    return [state for (state,) in await app.store.read(lambda connection: connection.fetch(sql))]


async def until_no_jobs(app: App) -> None:
    async with asyncio.timeout(LIMIT_SEC):
        while await jobs(app):
            await asyncio.sleep(0.02)


@pytest.mark.databases
@pytest.mark.contract("M-1", "M-3")
def test_servers_on_one_queue_execute_every_turn_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        settings = world.settings("slots = 2\n")
        async with (
            opened(settings, serving=True) as app,
            opened(settings, serving=True) as other,
            app.working(),
            other.working(),
            asyncio.timeout(LIMIT_SEC),
        ):
            runs = [await submit((app, other)[n % 2], skill) for n in range(8)]
            for run in runs:
                await reach(app, run.id, RunState.WAITING_USER)
                await app.service.reply(run.id, "red")
            for run in runs:
                ended = await over(app, run.id)
                assert (ended.state, ended.epoch, ended.restarts) == (RunState.SUCCEEDED, 2, 0)
                began = [e for e in await events_of(app, run.id) if e.type is EventType.TURN_STARTED]
                assert len(began) == 2
            await until_no_jobs(app)

    run_async(main)


@pytest.mark.databases
@pytest.mark.contract("M-2")
def test_a_program_that_stops_before_a_claim_leaves_the_run_in_the_queue(tmp_path: Path, database_of_test: str) -> None:
    world = World(tmp_path)
    skill = world.skill([FINISH])

    async def main() -> None:
        settings = world.settings("slots = 1\n")
        async with opened(settings, serving=True) as app:
            run = await submit(app, skill)
            for method in ("get", "queued"):
                stop_after(app, method)
            async with app.working(), asyncio.timeout(LIMIT_SEC):
                await until(lambda: not app.health.worker_alive)
            assert app.slots.taken == 0
        async with opened(settings, serving=True) as app:
            assert (await app.store.get(run.id)).state is RunState.QUEUED
            assert await jobs(app) == (["todo"] if database_of_test == "postgres" else [])
            async with app.working(), asyncio.timeout(LIMIT_SEC):
                assert (await over(app, run.id)).epoch == 1

    run_async(main)


def stop_after(app: App, method: str) -> None:
    """The worker is stopped when it has read the queue, or the run of its job."""
    real = getattr(app.store, method)

    async def read(*args: Any, **rest: Any) -> Any:
        found = await real(*args, **rest)
        app.worker.stop()
        return found

    setattr(app.store, method, read)


@pytest.mark.databases
@pytest.mark.contract("M-2")
def test_a_turn_that_is_put_back_has_a_job_again(tmp_path: Path, database_of_test: str) -> None:
    world = World(tmp_path)
    skill = world.skill(ENDLESS)

    async def main() -> None:
        settings = world.settings("slots = 1\n")
        async with opened(settings, serving=True) as app:
            async with app.working(), asyncio.timeout(LIMIT_SEC):
                run = await submit(app, skill)
                await until(lambda: bool(list(world.data_dir.glob("runs/*/work/started"))))
                assert await jobs(app) == []
            assert (await app.store.get(run.id)).state is RunState.QUEUED
            assert await jobs(app) == (["todo"] if database_of_test == "postgres" else [])

    run_async(main)
