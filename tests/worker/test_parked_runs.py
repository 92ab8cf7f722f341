"""Runs that wait for a limit of the model provider to end: without a slot, through restarts, and the prompt is there once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from askback.app import App
from askback.core.actors import Actor, Channel
from askback.core.errors import Conflict, ErrorCode
from askback.core.events import EventType
from askback.core.runs import Run, RunState
from askback.wire import runs as wire
from support.data_folder import ASK, FINISH, World, events_of, over, reach, submit
from support.passing_time import PassingTime

PARK = 'on_limit = "park"\n'
USAGE_LIMIT = "You've hit your usage limit. Please try again in 2h."
ANN = Actor(name="ann", via=Channel.API)


def limited(lifted: Path, message: str = USAGE_LIMIT) -> dict[str, Any]:
    return {"misbehave": "rate_limit", "message": message, "unless": str(lifted)}


async def parked(app: App, run_id: str, times: int = 1) -> Run:
    """Wait until the run is parked after its own turns have met a limit so often."""
    changes = app.store.changes()
    try:
        while True:
            run = await app.store.get(run_id)
            assert not run.state.final, run.error
            if run.parking is not None and run.not_before is not None and run.parking.times >= times:
                return run
            await changes.wait()
    finally:
        changes.close()


async def when_due(app: App, run: Run, passing: PassingTime) -> Run:
    assert run.not_before is not None
    passing.passes((run.not_before - passing.now()).total_seconds() + 1)
    return await over(app, run.id)


@pytest.mark.databases
@pytest.mark.contract("U-4")
def test_a_parked_run_has_no_slot_and_is_finished_after_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passing, world, lifted = PassingTime(monkeypatch), World(tmp_path), tmp_path / "lifted"
    skill = world.skill([limited(lifted), ASK], [FINISH])
    other = world.skill([{"finish": {"colour": "red"}}], name="other")

    async def main() -> None:
        async with world.working(PARK + "slots = 1\n", serving=True) as app:
            run = await parked(app, (await submit(app, skill)).id)
            view = wire.Run.of(run, queue_reason=app.service.queue_reason(run))
            assert (view.state, view.queue_reason, view.not_before) == (RunState.QUEUED, "usage_limit", run.not_before)
            assert view.parked_for is not None
            assert view.parked_for.kind == "usage_window"
            assert (run.worker, run.process) == (None, None)
            # Its slot is free, for a run that does not avoid limits.
            assert (
                await over(app, (await submit(app, other, options={"on_limit": "fail"})).id)
            ).state is RunState.SUCCEEDED
            lifted.touch()
            assert run.not_before is not None
            passing.passes((run.not_before - passing.now()).total_seconds() + 1)
            asking = await reach(app, run.id, RunState.WAITING_USER)
            assert asking.parking is None
            await app.service.reply(run.id, "red")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            events = await events_of(app, run.id)
            kinds = [event.type for event in events if event.type in (EventType.RUN_PARKED, EventType.RUN_RESUMED)]
            assert kinds == [EventType.RUN_PARKED, EventType.RUN_RESUMED]
            assert len(world.prompts(run.id)) == 2

    asyncio.run(main())


@pytest.mark.databases
@pytest.mark.contract("U-4", "B-1")
def test_a_run_stays_parked_through_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passing, world, lifted = PassingTime(monkeypatch), World(tmp_path), tmp_path / "lifted"
    skill = world.skill([limited(lifted), FINISH], output=None)
    runs: list[Run] = []

    async def first() -> None:
        async with world.working(PARK, serving=True) as app:
            runs.append(await parked(app, (await submit(app, skill)).id))

    async def second() -> None:
        async with world.working(PARK, serving=True) as app:
            (run,) = runs
            again = await app.store.get(run.id)
            assert again.parking == run.parking
            lifted.touch()
            ended = await when_due(app, run, passing)
            assert ended.state is not RunState.QUEUED
            assert ended.restarts == 0
            assert len(world.prompts(run.id)) == 1

    asyncio.run(first())
    asyncio.run(second())


@pytest.mark.databases
@pytest.mark.contract("U-4")
def test_a_run_whose_time_came_while_no_program_was_alive_is_executed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passing, world, lifted = PassingTime(monkeypatch), World(tmp_path), tmp_path / "lifted"
    skill = world.skill([limited(lifted), {"finish": {"colour": "red"}}])
    runs: list[Run] = []

    async def first() -> None:
        async with world.working(PARK, serving=True) as app:
            runs.append(await parked(app, (await submit(app, skill)).id))

    async def second() -> None:
        passing.passes(3 * 3600)
        async with world.working(PARK, serving=True) as app:
            assert (await over(app, runs[0].id)).state is RunState.SUCCEEDED

    asyncio.run(first())
    lifted.touch()
    asyncio.run(second())


@pytest.mark.contract("U-4")
def test_work_that_was_done_before_the_limit_is_continued_and_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passing, world, lifted = PassingTime(monkeypatch), World(tmp_path), tmp_path / "lifted"
    made = {"tool": {"name": "shell", "detail": "make it"}}
    # The engine `scripted` plays the script of a turn again if the turn before it failed.
    skill = world.skill([made, limited(lifted), {"finish": {"colour": "red"}}], runner={"max_attempt": 1})

    async def main() -> None:
        async with world.working(PARK, serving=True) as app:
            run = await parked(app, (await submit(app, skill)).id)
            assert run.next_turn.continues
            lifted.touch()
            ended = await when_due(app, run, passing)
            assert (ended.state, ended.attempt_number) == (RunState.SUCCEEDED, 2), ended.error
            first, second = world.prompts(run.id)
            assert "Do it." in first
            assert second == "The limit is over. Continue.\n"
            kinds = [e.data["kind"] for e in await events_of(app, run.id) if e.type is EventType.TURN_STARTED]
            assert kinds == ["start", "continue"]

    asyncio.run(main())


@pytest.mark.contract("U-4")
def test_an_answer_is_in_the_session_once_if_its_turn_meets_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passing, world, lifted = PassingTime(monkeypatch), World(tmp_path), tmp_path / "lifted"
    skill = world.skill([ASK], [limited(lifted), FINISH])

    async def main() -> None:
        async with world.working(PARK, serving=True) as app:
            run = await reach(app, (await submit(app, skill)).id, RunState.WAITING_USER)
            await app.service.reply(run.id, "red")
            run = await parked(app, run.id)
            assert len(world.prompts(run.id)) == 2
            lifted.touch()
            ended = await when_due(app, run, passing)
            assert (ended.state, ended.attempt_number) == (RunState.SUCCEEDED, 2), ended.error
            assert len(world.prompts(run.id)) == 2

    asyncio.run(main())


@pytest.mark.contract("U-4")
def test_a_limit_that_holds_parks_again_until_the_run_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passing, world = PassingTime(monkeypatch), World(tmp_path)
    skill = world.skill([limited(tmp_path / "never", "429: slow down")])

    async def main() -> None:
        async with world.working(PARK + "max_park_sec = 3600\n", serving=True) as app:
            run_id = (await submit(app, skill)).id
            for times in (1, 2, 3):
                run = await parked(app, run_id, times)
                assert run.not_before is not None
                passing.passes((run.not_before - passing.now()).total_seconds() + 1)
            ended = await over(app, run_id)
            assert ended.error is not None
            assert (ended.state, ended.error.code) == (RunState.FAILED, ErrorCode.ENGINE_RATE_LIMITED)

    asyncio.run(main())


@pytest.mark.databases
@pytest.mark.contract("U-4")
def test_somebody_can_resume_or_cancel_a_parked_run(tmp_path: Path) -> None:
    world, lifted = World(tmp_path), tmp_path / "lifted"
    skill = world.skill([limited(lifted), {"finish": {"colour": "red"}}])

    async def main() -> None:
        async with world.working(PARK, serving=True) as app:
            resumed, canceled = [(await submit(app, skill)).id for _ in range(2)]
            await asyncio.gather(parked(app, resumed), parked(app, canceled, 0))
            assert (await app.service.cancel(canceled)).state is RunState.CANCELED
            lifted.touch()
            await app.service.resume(resumed, by=ANN)
            assert (await over(app, resumed)).state is RunState.SUCCEEDED
            for run_id in (resumed, canceled):
                with pytest.raises(Conflict):
                    await app.service.resume(run_id, by=ANN)
            actions = [entry.action async for entry in _audit(app)]
            assert actions.count("run.resume") == 1

    async def _audit(app: App) -> Any:
        from askback.store.pages import AuditFilter

        for entry in (await app.store.audit_entries(AuditFilter(), None)).items:
            yield entry

    asyncio.run(main())


@pytest.mark.databases
@pytest.mark.contract("U-5")
def test_while_a_limit_is_known_no_other_run_is_started_only_to_meet_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passing, world, lifted = PassingTime(monkeypatch), World(tmp_path), tmp_path / "lifted"
    skill = world.skill([limited(lifted), {"finish": {"colour": "red"}}])

    async def main() -> None:
        async with world.working(PARK, serving=True) as app:
            first = await parked(app, (await submit(app, skill)).id)
            others = [await parked(app, (await submit(app, skill)).id, 0) for _ in range(5)]
            assert first.parking is not None
            for run in others:
                assert run.parking is not None
                assert (run.epoch, run.parking.until) == (0, first.parking.until)
                assert run.started_at is None
            # A run with variables may have another account.
            own = await submit(app, skill, env={"OTHER_KEY": "secret-of-the-run"})
            assert (await parked(app, own.id)).epoch == 1
            lifted.touch()
            passing.passes(2 * 3600 + 200)
            for run in (first, *others, own):
                assert (await over(app, run.id)).state is RunState.SUCCEEDED

    asyncio.run(main())


@pytest.mark.parametrize("ends_in", [timedelta(hours=-1), timedelta(days=3650)], ids=["past", "ten years"])
def test_an_end_that_cannot_be_is_no_end(tmp_path: Path, ends_in: timedelta) -> None:
    world = World(tmp_path)
    end = datetime.now(UTC) + ends_in
    skill = world.skill(
        [limited(tmp_path / "never", f"429: usage limit, regain access on {end:%Y-%m-%d at %H:%M} UTC")]
    )

    async def main() -> None:
        async with world.working(PARK, serving=True) as app:
            run = await parked(app, (await submit(app, skill)).id)
            assert run.parking is not None
            pause = run.parking.until - run.parking.since
            assert pause == timedelta(minutes=15)

    asyncio.run(main())
