"""Waiting: what is stored, what is freed, and how a wait ends."""

import asyncio
import json
import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from askback.app import App
from askback.core.errors import Conflict, Invalid, RefusalCode, WarningCode
from askback.core.events import EventType
from askback.core.interactions import AnsweredBy, InteractionOutcome
from askback.core.runs import RunState
from askback.process.tree import Tree
from support.data_folder import ASK, FINISH, World, events_of, over, reach, run_async, submit, waiting
from support.passing_time import PassingTime

TIME_SEC = 30.0
AUTO_DECIDE = {"interactive_require_user_reply": False, "session_timeout_sec": TIME_SEC}


@pytest.mark.databases
@pytest.mark.contract("W-1", "H-1", "M-1")
def test_waiting_stores_question_and_handle_with_the_state(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working() as app:
            run = await waiting(app, (await submit(app, skill)).id)
            assert run.handle is not None
            assert run.handle.handle_type == "session_id"
            assert run.handle.engine == "scripted"
            assert run.handle.created_at_turn == 1
        # Another program that opens the data folder finds all of it.
        async with world.working() as app:
            stored = await app.service.store.get(run.id)
            assert stored == run
            (interaction,) = await app.service.store.interactions(run.id)
            assert interaction == run.pending_interaction

    run_async(main)


@pytest.mark.databases
@pytest.mark.contract("W-2", "W-3", "M-1")
def test_a_waiting_run_frees_its_slot_and_queues_for_one_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    asks = world.skill([ASK], [FINISH], name="asks")
    holds = world.skill([{"touch": "started"}, {"wait_for": "go"}, {"finish": {"colour": "x"}}], name="holds")

    async def main() -> None:
        async with world.working("slots = 1\n") as app:
            first = await waiting(app, (await submit(app, asks)).id)
            second = await submit(app, holds)
            await reach(app, second.id, RunState.RUNNING)
            # The only slot is taken: the answered run must wait in the queue for it.
            await app.service.reply(first.id, "red")
            work = app.workspaces.of(second.id).cwd
            while not (work / "started").exists():
                await asyncio.sleep(0.01)
            assert (await app.service.store.get(first.id)).state is RunState.QUEUED
            (work / "go").touch()
            await over(app, second.id)
            ended = await over(app, first.id)
            assert ended.state is RunState.SUCCEEDED
            states = [e.data["to"] for e in await events_of(app, first.id) if e.type is EventType.RUN_STATE]
            assert states == ["queued", "running", "waiting_user", "queued", "running", "succeeded"]

    run_async(main)


@pytest.mark.contract("W-9")
def test_a_strict_wait_has_no_deadline_and_outlives_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, time = World(tmp_path), PassingTime(monkeypatch)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working() as app:
            patient = await submit(app, skill, options={"session_timeout_sec": 0.01})
            decided = await waiting(app, (await submit(app, skill, options=AUTO_DECIDE)).id)
            run = await waiting(app, patient.id)
            assert run.wait_deadline_at is None
            time.passes(TIME_SEC)
            # By the time a later deadline has fired, the strict run's time is long over.
            await over(app, decided.id)
            assert (await app.service.store.get(patient.id)).state is RunState.WAITING_USER
            await app.service.reply(patient.id, "red")
            assert (await over(app, patient.id)).state is RunState.SUCCEEDED

    run_async(main)


@pytest.mark.databases
@pytest.mark.contract("W-10", "A-4", "M-1")
def test_past_the_deadline_an_auto_decision_is_the_reply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, time = World(tmp_path), PassingTime(monkeypatch)
    ask = {"ask": {**ASK["ask"], "default": "blue"}}
    skill = world.skill([ask], [{"finish": {"colour": "decided"}}])

    async def main() -> None:
        async with world.working() as app:
            run = await submit(app, skill, options=AUTO_DECIDE)
            asked = await waiting(app, run.id)
            assert asked.wait_deadline_at is not None
            time.passes(TIME_SEC)
            ended = await over(app, run.id)
            assert ended.state is RunState.SUCCEEDED
            (interaction,) = await app.service.store.interactions(run.id)
            assert interaction.outcome is InteractionOutcome.AUTO_DECIDED
            assert interaction.answered_by is AnsweredBy.AUTO_DECIDE
            assert interaction.response == "blue"
            assert interaction.answered_at is not None
            assert interaction.answered_at >= asked.wait_deadline_at
            states = [e.data["to"] for e in await events_of(app, run.id) if e.type is EventType.RUN_STATE]
            assert states[2:4] == ["waiting_user", "queued"]
        prompt = world.prompts(run.id)[1]
        assert "user_reply" not in prompt
        assert "did not answer" in prompt

    run_async(main)


@pytest.mark.contract("W-12")
def test_a_deadline_that_passed_while_nobody_ran_fires_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, time = World(tmp_path), PassingTime(monkeypatch)
    skill = world.skill([ASK], [{"finish": {"colour": "decided"}}])

    async def main() -> None:
        async with world.working(serving=True) as app:
            run = await waiting(app, (await submit(app, skill, options=AUTO_DECIDE)).id)
        time.passes(TIME_SEC)
        async with world.working(serving=True) as app:
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            (interaction,) = await app.service.store.interactions(run.id)
            assert interaction.outcome is InteractionOutcome.AUTO_DECIDED

    run_async(main)


@pytest.mark.databases
@pytest.mark.contract("W-13", "M-1")
def test_of_many_racing_replies_exactly_one_wins(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working() as app:
            run = await waiting(app, (await submit(app, skill)).id)
            replies = [app.service.reply(run.id, f"answer {n}", "colour") for n in range(20)]
            outcomes = await asyncio.gather(*replies, return_exceptions=True)
            won = [n for n, outcome in enumerate(outcomes) if not isinstance(outcome, BaseException)]
            lost = [outcome for outcome in outcomes if isinstance(outcome, Conflict)]
            assert (len(won), len(lost)) == (1, 19)
            assert {each.code for each in lost} == {RefusalCode.INTERACTION_NOT_PENDING}
            await over(app, run.id)
            (interaction,) = await app.service.store.interactions(run.id)
            assert interaction.response == f"answer {won[0]}"
            assert (await app.service.result(run.id)).data == {"colour": f"answer {won[0]}"}
        assert sum(f"answer {won[0]}" in prompt for prompt in world.prompts(run.id)) == 1

    run_async(main)


@pytest.mark.contract("W-14")
def test_many_waiting_runs_cost_no_process_thread_or_task(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working("slots = 4\n") as app:
            first = await waiting(
                app, (await submit(app, skill, options=AUTO_DECIDE | {"session_timeout_sec": 1000})).id
            )
            await _fill_thread_pools(app, first.id)
            threads, tasks = _threads(), len(asyncio.all_tasks())
            runs = [await submit(app, skill, options=AUTO_DECIDE | {"session_timeout_sec": 1000}) for _ in range(24)]
            for run in runs:
                await waiting(app, run.id)
            # A turn that has just ended may still be letting go of its slot.
            while len(asyncio.all_tasks()) > tasks:
                await asyncio.sleep(0.01)
            # The pool that prepares turns grows to its eight threads as it is used; a run that waits adds none.
            assert _threads() <= threads + 8
            for run in runs:
                assert Tree(mark=run.id).members() == set()

    run_async(main)


async def _fill_thread_pools(app: App, run_id: str) -> None:
    """Pools grow to a fixed size as they are used; let them, so that what comes after is not their doing."""
    await asyncio.gather(*(app.service.store.get(run_id) for _ in range(200)))
    together = threading.Barrier(min(32, (os.cpu_count() or 1) + 4))
    await asyncio.gather(*(asyncio.to_thread(together.wait) for _ in range(together.parties)))


def _threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


@pytest.mark.contract("H-11")
def test_a_reply_to_another_question_or_a_finished_run_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working() as app:
            run = await waiting(app, (await submit(app, skill)).id)
            with pytest.raises(Conflict, match=r"'other' of run .* is not pending; 'colour' is"):
                await app.service.reply(run.id, "red", "other")
            assert await app.service.store.get(run.id) == run
            await app.service.reply(run.id, "red", "colour")
            await over(app, run.id)
            with pytest.raises(Conflict, match="no longer pending"):
                await app.service.reply(run.id, "blue", "colour")

    run_async(main)


def test_an_answer_that_does_not_fit_is_refused_and_the_run_goes_on_waiting(tmp_path: Path) -> None:
    world = World(tmp_path)
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    skill = world.skill(
        [{"ask": {"interaction_id": "n", "prompt": "How many?", "response_schema": schema}}],
        [{"finish": {"colour": "{{reply}}"}}],
    )

    async def main() -> None:
        async with world.working() as app:
            run = await waiting(app, (await submit(app, skill)).id)
            with pytest.raises(Invalid) as refused:
                await app.service.reply(run.id, {"n": "many"})
            assert refused.value.code is RefusalCode.REPLY_INVALID
            assert any("response.n" in problem for problem in refused.value.problems)
            assert await app.service.store.get(run.id) == run
            await app.service.reply(run.id, {"n": 3})
            await over(app, run.id)
            data = (await app.service.result(run.id)).data
            assert json.loads(data["colour"]) == {"n": 3}

    run_async(main)


@pytest.mark.contract("T-2")
@pytest.mark.parametrize("verb", ["ask", "ask_native"])
def test_an_answer_is_checked_against_a_scalar_schema(tmp_path: Path, verb: str) -> None:
    world = World(tmp_path)
    schema = {"type": "string", "enum": ["red", "blue"]}
    asks = {verb: {"interaction_id": "colour", "prompt": "Which?", "response_schema": schema}}
    turns = ([asks], [FINISH]) if verb == "ask" else ([asks, FINISH],)
    profile = {"interactive_profile": "sticky_process" if verb == "ask_native" else "resumable"}

    async def main() -> None:
        async with world.working() as app:
            run = await waiting(app, (await submit(app, world.skill(*turns), options=profile)).id)
            assert run.pending_interaction is not None
            assert run.pending_interaction.response_schema == schema
            with pytest.raises(Invalid) as refused:
                await app.service.reply(run.id, "purple")
            assert refused.value.code is RefusalCode.REPLY_INVALID
            await app.service.reply(run.id, "blue")
            run = await over(app, run.id)
            assert (run.state, run.warnings) == (RunState.SUCCEEDED, ())

    run_async(main)


@pytest.mark.contract("T-2")
@pytest.mark.parametrize("verb", ["ask", "ask_native"])
def test_a_schema_of_another_form_is_ignored_with_a_warning(tmp_path: Path, verb: str) -> None:
    world = World(tmp_path)
    asks = {verb: {"interaction_id": "colour", "prompt": "Which?", "response_schema": {"type": "array"}}}
    turns = ([asks], [FINISH]) if verb == "ask" else ([asks, FINISH],)
    profile = {"interactive_profile": "sticky_process" if verb == "ask_native" else "resumable"}

    async def main() -> None:
        async with world.working() as app:
            run = await waiting(app, (await submit(app, world.skill(*turns), options=profile)).id)
            assert run.pending_interaction is not None
            assert run.pending_interaction.response_schema is None
            assert [warning.code for warning in run.warnings] == [WarningCode.RESPONSE_SCHEMA_IGNORED]
            await app.service.reply(run.id, "red")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED

    run_async(main)


@pytest.mark.databases
@pytest.mark.contract("A-1", "A-4", "M-1")
def test_every_question_and_reply_is_kept_with_who_and_when(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [{"ask": {"interaction_id": "size", "prompt": "Which size?"}}], [FINISH])

    async def main() -> None:
        async with world.working() as app:
            before = datetime.now(UTC)
            run = await submit(app, skill)
            for answer in ("red", "large"):
                await waiting(app, run.id)
                await app.service.reply(run.id, answer)
                await reach(app, run.id, RunState.WAITING_USER, RunState.SUCCEEDED)
            first, second = await app.service.store.interactions(run.id)
            assert [(e.interaction_id, e.prompt, e.response) for e in (first, second)] == [
                ("colour", "Which colour?", "red"),
                ("size", "Which size?", "large"),
            ]
            for each in (first, second):
                assert each.outcome is InteractionOutcome.ANSWERED
                assert each.answered_by is AnsweredBy.USER
                assert each.answered_at is not None
                assert before <= each.asked_at <= each.answered_at <= datetime.now(UTC) + timedelta(seconds=1)

    run_async(main)
