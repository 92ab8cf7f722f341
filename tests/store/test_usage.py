"""What turns have used, by model: recorded with the end of each turn, and added up by what somebody asks for."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from askback.app import App
from askback.core.runs import Run, RunState, Usage, UsageKey
from askback.store.pages import UsageSums
from support.data_folder import World, over, reach, submit

MODEL_A = {"usage": {"input_tokens": 100, "output_tokens": 20, "cached_tokens": 60, "model": "a", "cost_usd": 0.5}}
MODEL_B = {"usage": {"input_tokens": 7, "output_tokens": 3, "reasoning_tokens": 1, "model": "b"}}
FINISH = {"finish": {"colour": "red"}}


async def sums(app: App, by: UsageKey, **labels: str) -> UsageSums:
    return await app.service.restricted_to(labels).usage(by, 2)


def shown(sums: UsageSums) -> dict[str | None, tuple[Any, ...]]:
    return {
        each.name: (each.turns, each.input_tokens, each.output_tokens, each.cost_usd, each.turns_with_cost)
        for each in sums.items
    }


@pytest.mark.databases
@pytest.mark.contract("U-1", "U-2")
def test_usage_is_added_up_by_day_engine_model_skill_token_and_label(tmp_path: Path) -> None:
    world = World(tmp_path)
    first = world.skill([MODEL_A, FINISH], name="first")
    second = world.skill([MODEL_B, {"misbehave": "api_error"}], name="second")
    silent = world.skill([FINISH], name="silent")

    async def main() -> None:
        async with world.working() as app:
            done = await over(app, (await submit(app, first, labels={"team": "a", "env": "x"}, created_by="ann")).id)
            failed = await over(app, (await submit(app, second, labels={"team": "b"})).id)
            await over(app, (await submit(app, silent)).id)
            assert (done.state, failed.state) == (RunState.SUCCEEDED, RunState.FAILED)
            assert done.usage is not None
            assert failed.usage is not None
            assert [each.model for each in (*done.usage.by_model, *failed.usage.by_model)] == ["a", "b"]
            # A failed turn counts as well. What is not reported is None, and never zero.
            assert shown(await sums(app, UsageKey.MODEL)) == {"a": (1, 100, 20, 0.5, 1), "b": (1, 7, 3, None, 0)}
            assert shown(await sums(app, UsageKey.SKILL)) == {
                "first": (1, 100, 20, 0.5, 1),
                "second": (1, 7, 3, None, 0),
            }
            assert shown(await sums(app, UsageKey.TOKEN)) == {"ann": (1, 100, 20, 0.5, 1), None: (1, 7, 3, None, 0)}
            assert shown(await sums(app, UsageKey.LABEL)) == {
                "env=x": (1, 100, 20, 0.5, 1),
                "team=a": (1, 100, 20, 0.5, 1),
                "team=b": (1, 7, 3, None, 0),
            }
            (day,) = (await sums(app, UsageKey.DAY)).items
            assert day.name == (done.finished_at or done.updated_at).date().isoformat()
            engines = await sums(app, UsageKey.ENGINE)
            assert shown(engines) == {"scripted": (2, 107, 23, 0.5, 1)}
            assert (engines.total.turns, engines.total.reasoning_tokens) == (2, 1)
            # A caller that is restricted to labels sees its runs alone.
            assert shown(await sums(app, UsageKey.SKILL, team="a")) == {"first": (1, 100, 20, 0.5, 1)}
            assert (await sums(app, UsageKey.SKILL, team="a", env="y")).items == ()
            # What was used still counts when its run is deleted, without its labels.
            await app.service.delete(done.id)
            assert (await sums(app, UsageKey.SKILL)).total == engines.total
            assert shown(await sums(app, UsageKey.LABEL)) == {"team=b": (1, 7, 3, None, 0)}

    asyncio.run(main())


@pytest.mark.contract("U-1")
def test_each_turn_of_a_run_is_recorded_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    ask = {"ask": {"interaction_id": "colour", "prompt": "Which?"}}
    skill = world.skill([MODEL_A, ask], [MODEL_B, FINISH])

    async def main() -> None:
        async with world.working() as app:
            run = await reach(app, (await submit(app, skill)).id, RunState.WAITING_USER)
            await app.service.reply(run.id, "red")
            ended: Run = await over(app, run.id)
            report = await sums(app, UsageKey.MODEL)
            assert shown(report) == {"a": (1, 100, 20, 0.5, 1), "b": (1, 7, 3, None, 0)}
            assert ended.usage is not None
            assert (ended.usage.input_tokens, ended.usage.cost_usd) == (107, 0.5)
            assert report.total.input_tokens == ended.usage.input_tokens

    asyncio.run(main())


@pytest.mark.contract("U-1")
def test_a_count_of_the_session_becomes_that_of_the_turn() -> None:
    before = Usage(input_tokens=100, output_tokens=10, cached_tokens=40, total_tokens=110, cost_usd=0.25)
    now = Usage(
        input_tokens=150, output_tokens=15, cached_tokens=40, total_tokens=165, reasoning_tokens=3, cost_usd=1.0
    )
    turn = now.beyond(before)
    assert (turn.input_tokens, turn.cached_tokens, turn.reasoning_tokens, turn.cost_usd) == (50, 0, 3, 0.75)
    unknown = replace(now, cached_tokens=None, cost_usd=None).beyond(before)
    assert (unknown.cached_tokens, unknown.cost_usd) == (None, None)
    assert (unknown + unknown).cost_usd is None
    assert (unknown + before).cost_usd == 0.25
