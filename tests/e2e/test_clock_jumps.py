"""The wall clock is set forth and back while runs go on: turns do not notice, and a deadline fires once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from askback.app import App, opening
from askback.core.interactions import AnsweredBy
from askback.core.runs import Run, RunState
from support.data_folder import ASK, World, events_of, over, run_async, submit, until, waiting
from support.program import work_folder

DAY = timedelta(days=1)
DECIDED = {"interactive_require_user_reply": False, "session_timeout_sec": 3600}
ASKS = {"ask": {"interaction_id": "colour", "prompt": "Which colour?", "default": "red"}}
FINISH = {"finish": {"colour": "{{reply|none}}"}}


class WallClock:
    """The clock of the whole program, which the test can set."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    clock = WallClock()
    monkeypatch.setattr(opening, "wall_clock", clock)
    return clock


async def _stir(app: App, skill: str) -> None:
    """Another run that begins to wait makes the one sleeper look at the clock again."""
    await waiting(app, (await submit(app, skill, options={**DECIDED, "session_timeout_sec": 10**6})).id)


async def _decided(app: App, run: Run) -> int:
    return sum(each.answered_by is AnsweredBy.AUTO_DECIDE for each in await app.service.store.interactions(run.id))


@pytest.mark.contract("W-10", "W-12")
@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
def test_a_clock_that_is_set_forth_fires_a_deadline_once(tmp_path: Path, clock: WallClock, restarted: bool) -> None:
    world = World(tmp_path)
    skill = world.skill([ASKS], [FINISH])

    async def main() -> None:
        async with world.working(serving=True) as app:
            run = await waiting(app, (await submit(app, skill, options=DECIDED)).id)
            if not restarted:
                clock.ahead = DAY
                await _stir(app, skill)
                assert (await over(app, run.id)).state is RunState.SUCCEEDED
        clock.ahead = DAY
        async with world.working(serving=True) as app:
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            assert await _decided(app, run) == 1
            clock.ahead = 2 * DAY
            await _stir(app, skill)
            assert await _decided(app, run) == 1

    run_async(main)


@pytest.mark.contract("W-12")
def test_a_clock_that_is_set_back_fires_no_deadline_early_and_none_twice(tmp_path: Path, clock: WallClock) -> None:
    world = World(tmp_path)
    skill = world.skill([ASKS], [FINISH])

    async def main() -> None:
        async with world.working(serving=True) as app:
            run = await waiting(app, (await submit(app, skill, options=DECIDED)).id)
        clock.ahead = -DAY
        async with world.working(serving=True) as app:
            await _stir(app, skill)
            assert (await app.service.store.get(run.id)).state is RunState.WAITING_USER
            clock.ahead = DAY
            await _stir(app, skill)
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            clock.ahead = -DAY
            await _stir(app, skill)
            assert await _decided(app, run) == 1

    run_async(main)


@pytest.mark.contract("A-2")
@pytest.mark.parametrize("jump", [DAY, -DAY], ids=["forth", "back"])
def test_a_turn_does_not_notice_that_the_clock_is_set(tmp_path: Path, clock: WallClock, jump: timedelta) -> None:
    world = World(tmp_path)
    skill = world.skill([{"touch": "started"}, {"wait_for": "go"}, {"say": "I go on."}, ASK], [FINISH])

    async def main() -> None:
        async with world.working() as app:
            run = await submit(app, skill, options={"turn_timeout_sec": 600})
            work = work_folder(world, run.id)
            await until((work / "started").exists)
            clock.ahead = jump
            (work / "go").touch()
            await waiting(app, run.id)
            await app.service.reply(run.id, "blue")
            done = await over(app, run.id)
            assert (done.state, done.error) == (RunState.SUCCEEDED, None)
            events = await events_of(app, run.id)
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            jumps = [later.at - sooner.at for sooner, later in pairwise(events)]
            assert [abs(each) > DAY / 2 for each in jumps].count(True) == 1

    run_async(main)


def test_a_question_is_answered_in_time_whatever_the_clock_says(tmp_path: Path, clock: WallClock) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])
    sets: list[Callable[[], timedelta]] = [lambda: DAY, lambda: -DAY]

    async def main() -> None:
        async with world.working() as app:
            for ahead in sets:
                run = await waiting(app, (await submit(app, skill)).id)
                clock.ahead = ahead()
                await app.service.reply(run.id, "blue")
                assert (await over(app, run.id)).state is RunState.SUCCEEDED
                (closed,) = await app.service.store.interactions(run.id)
                assert closed.answered_by is AnsweredBy.USER

    run_async(main)
