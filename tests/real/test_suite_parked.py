"""Askback with every real engine whose model has no more for now, and later has: the prompt is in the session once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from double import ModelDouble, Request, Step, fail, run_shell, say
from suite import Stage, finish, question, reply_in

from askback.app import App
from askback.core.runs import Run, RunState
from support.data_folder import over, waiting
from support.passing_time import PassingTime

PARK = 'on_limit = "park"\n'


class Lifting:
    """A model that has no more until somebody lifts its limit."""

    def __init__(self, body: str | None) -> None:
        self.lifted = False
        self._body = body

    def before(self, step: Step) -> Callable[[Request], Step]:
        return lambda request: step if self.lifted else fail(429, body=self._body)


async def parked(app: App, run_id: str) -> Run:
    changes = app.store.changes()
    try:
        while (run := await app.store.get(run_id)).not_before is None:
            assert not run.state.final, run.error
            await changes.wait()
        return run
    finally:
        changes.close()


def in_two_programs(
    stage: Stage,
    passing: PassingTime,
    lifting: Lifting,
    before: Callable[[App], Coroutine[Any, Any, Run]],
) -> Run:
    """Park a run in one program, and finish it in another one after the limit."""
    runs: list[Run] = []

    async def first() -> None:
        async with stage.working(PARK, serving=True) as app:
            runs.append(await parked(app, (await before(app)).id))

    async def second() -> None:
        async with stage.working(PARK, serving=True) as app:
            lifting.lifted = True
            run = runs.pop()
            assert run.not_before is not None
            passing.passes((run.not_before - passing.now()).total_seconds() + 1)
            runs.append(await over(app, run.id))

    asyncio.run(first())
    asyncio.run(second())
    return runs[0]


def count(double: ModelDouble, words: str) -> int:
    """How often the last request has a text in what its user said."""
    return sum(text.count(words) for text in double.requests[-1].user_texts)


@pytest.fixture
def passing(monkeypatch: pytest.MonkeyPatch) -> PassingTime:
    return PassingTime(monkeypatch)


@pytest.mark.contract("U-4")
def test_a_limit_in_the_first_request_repeats_the_turn_in_a_new_session(
    stage: Stage, double: ModelDouble, passing: PassingTime
) -> None:
    lifting = Lifting(stage.engine.error_body)
    double.play(*[lifting.before(say(finish()))] * 40)
    ended = in_two_programs(stage, passing, lifting, lambda app: stage.submit(app, stage.skill()))
    assert (ended.state, ended.attempt_number, ended.restarts) == (RunState.SUCCEEDED, 1, 0)
    assert count(double, "Do it.") == 1


@pytest.mark.contract("U-4")
def test_a_limit_in_a_later_turn_leaves_one_answer_in_the_session(
    stage: Stage, double: ModelDouble, passing: PassingTime
) -> None:
    lifting = Lifting(stage.engine.error_body)
    double.play(say(question()), *[lifting.before(say(finish("green")))] * 40)

    async def answered(app: App) -> Run:
        asked = await waiting(app, (await stage.submit(app, stage.skill())).id)
        return await app.service.reply(asked.id, "green")

    ended = in_two_programs(stage, passing, lifting, answered)
    assert (ended.state, ended.attempt_number) == (RunState.SUCCEEDED, 2)
    assert (count(double, "Do it."), count(double, reply_in("green"))) == (1, 1)


@pytest.mark.contract("U-4")
def test_a_limit_after_a_tool_continues_and_does_not_repeat_its_work(
    stage: Stage, double: ModelDouble, passing: PassingTime, tmp_path: Path
) -> None:
    if not stage.engine.tells_its_tools:
        pytest.skip("the engine does not say what tools it uses")
    lifting = Lifting(stage.engine.error_body)
    double.play(run_shell("echo once >> artifacts/log.txt"), *[lifting.before(say(finish()))] * 40)
    ended = in_two_programs(stage, passing, lifting, lambda app: stage.submit(app, stage.skill()))
    assert (ended.state, ended.attempt_number) == (RunState.SUCCEEDED, 2)
    assert (count(double, "Do it."), count(double, "The limit is over. Continue.")) == (1, 1)
    log = stage.data_dir / "runs" / ended.id / "work" / "artifacts" / "log.txt"
    assert log.read_text() == "once\n"
