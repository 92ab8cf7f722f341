"""A program on PostgreSQL that loses its lease: its engines end, it stores nothing more, and it works again afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from askback.app import App, opening
from askback.cluster import instances as clock
from askback.core.errors import Conflict
from askback.core.events import EventType
from askback.core.outcomes import Final
from askback.core.runs import Run, RunState
from askback.core.signals import ProcessStarted, TurnEnded, TurnLost
from askback.process.tree import Tree
from askback.store.base import move
from askback.store.pages import StaleWrite
from support import postgres
from support.data_folder import ASK, FINISH, World, events_of, over, reach, run_async, submit, until, waiting
from support.postgres import databases
from support.program import work_folder

HELD: list[dict[str, Any]] = [{"touch": "started"}, {"wait_for": "go"}, {"finish": {"colour": "red"}}]
DECIDED = {"finish": {"colour": "{{reply|none}}"}}
WARM = "warm_sec = 600"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    with databases.chosen(True):
        yield World(tmp_path)


def processes(run: Run) -> set[int]:
    return Tree(mark=run.id, root=run.process).members()


async def lose_lease(world: World, app: App) -> str:
    """Have the next renewal of the program's lease fail; return the name that it had."""
    before = app.instances.name
    address = world.database
    assert address is not None

    def remove() -> None:
        import psycopg

        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("DELETE FROM askback.programs WHERE name = %s", [before])

    await asyncio.to_thread(remove)
    await until(lambda: app.instances.name != before)
    return before


async def started(world: World, app: App, run: Run) -> Run:
    await until(lambda: (work_folder(world, run.id) / "started").exists())
    while (run := await app.store.get(run.id)).process is None:
        await asyncio.sleep(0.01)
    return run


async def refused_writes(app: App, run: Run) -> None:
    """Everything that the worker of a lost turn could still try to store."""
    at, epoch = app.clock(), run.epoch
    outcome = Final(data={"colour": "stale"}, done=True)
    for signal in (
        TurnEnded(epoch=epoch, outcome=outcome, at=at),
        TurnLost(epoch=epoch, at=at),
        *([] if run.process is None else [ProcessStarted(epoch=epoch, process=run.process, at=at)]),
    ):
        with pytest.raises(Conflict):
            await move(app.store, run.id, signal, seen=run)
    with pytest.raises(StaleWrite):
        await app.store.append(run.id, epoch, ())


@pytest.mark.contract("M-4")
def test_a_turn_of_a_lost_lease_ends_and_is_restarted_under_a_higher_epoch(world: World) -> None:
    skill = world.skill(HELD)

    async def main() -> None:
        async with world.working(serving=True) as app:
            first = await started(world, app, await submit(app, skill))
            assert processes(first)
            (work_folder(world, first.id) / "started").unlink()
            name = await lose_lease(world, app)
            assert not processes(first)
            second = await started(world, app, first)
            assert second.epoch > first.epoch
            assert (first.worker, second.worker) == (name, app.instances.name)
            await refused_writes(app, first)
            (work_folder(world, first.id) / "go").touch()
            run = await over(app, first.id)
            assert (run.state, run.restarts) == (RunState.SUCCEEDED, 0)
            ended = [event for event in await events_of(app, run.id) if event.type is EventType.TURN_ENDED]
            assert ["interrupted" in str(event.data) for event in ended] == [True, False]
            assert await app.store.result(run.id) == {"colour": "red"}

    run_async(main)


def test_a_resident_process_of_a_lost_lease_ends_and_its_run_fails(world: World) -> None:
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working(serving=True) as app:
            options = {"interactive_profile": "sticky_process", "session_timeout_sec": 3600}
            run = await waiting(app, (await submit(app, skill, options=options)).id)
            assert processes(run)
            await lose_lease(world, app)
            assert not processes(run)
            run = await over(app, run.id)
            assert run.error is not None
            assert run.error.code == "INTERACTION_PROCESS_LOST"

    run_async(main)


def test_a_warm_process_of_a_lost_lease_ends_and_its_run_resumes(world: World) -> None:
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working(WARM, serving=True) as app:
            run = await waiting(app, (await submit(app, skill)).id)
            await until(lambda: app.warm.count == 1)
            await lose_lease(world, app)
            assert app.warm.count == 0
            assert not processes(run)
            await app.service.reply(run.id, "blue")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED

    run_async(main)


def test_a_command_that_has_lost_its_lease_continues_its_own_runs(world: World) -> None:
    skill = world.skill(HELD)

    async def main() -> None:
        async with world.working() as app:
            first = await started(world, app, await submit(app, skill))
            assert first.owner == app.instances.name
            (work_folder(world, first.id) / "started").unlink()
            await lose_lease(world, app)
            second = await started(world, app, first)
            assert second.owner == second.worker == app.instances.name
            (work_folder(world, first.id) / "go").touch()
            assert (await reach(app, first.id, RunState.SUCCEEDED)).epoch == second.epoch

    run_async(main)


# The clock.


def test_a_machine_whose_clock_is_wrong_does_not_let_questions_expire(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clock is an hour fast, and the deadline half an hour away."""
    wrong = lambda: datetime.now(UTC) + timedelta(hours=1)  # noqa: E731
    skill = world.skill([{"ask": {"interaction_id": "colour", "prompt": "Which?", "default": "red"}}], [DECIDED])
    options = {"interactive_require_user_reply": False, "session_timeout_sec": 1800}

    async def main() -> None:
        async with world.working(serving=True) as right:
            run = await waiting(right, (await submit(right, skill, options=options)).id)
        monkeypatch.setattr(opening, "wall_clock", wrong)
        monkeypatch.setattr(clock, "wall_clock", wrong)
        async with world.working(serving=True) as fast:
            # The program that leads now has looked at all deadlines before it announces this one.
            assert abs(fast.clock() - datetime.now(UTC)) < timedelta(minutes=10)
            other = await waiting(fast, (await submit(fast, skill, options=options)).id)
            assert other.wait_deadline_at is not None
            assert run.wait_deadline_at is not None
            assert abs(other.wait_deadline_at - run.wait_deadline_at) < timedelta(minutes=10)
            soon = await submit(fast, skill, options={**options, "session_timeout_sec": 1})
            assert (await over(fast, soon.id)).state is RunState.SUCCEEDED
            assert (await fast.store.get(run.id)).state is RunState.WAITING_USER

    run_async(main)
