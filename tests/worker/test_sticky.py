"""Runs that keep their process: slot and process held, the reply into that process, and every way a wait ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from askback.app import App
from askback.core.errors import Conflict, ErrorCode
from askback.core.interactions import AnsweredBy, InteractionOutcome
from askback.core.runs import ProfileKind, Run, RunState
from askback.engines import registry
from askback.process import tree
from askback.wire.base import plain
from askback.wire.runs import Run as WireRun
from support.data_folder import ASK, FINISH, World, events_of, over, reach, run_async, submit, until, waiting
from support.passing_time import PassingTime

SECOND = {"ask": {"interaction_id": "size", "prompt": "Which size?", "default": "small"}}
STICKY = {"interactive_profile": "sticky_process"}
NO_RESUME = "[engines.scripted]\ncommand = " + json.dumps([*registry.get("scripted").default_command, "--no-resume"])


def pids(world: World, run_id: str) -> list[int]:
    """Who heard the run's prompts, by the engine's own session file."""
    (session,) = world.sessions(run_id)
    return [entry["pid"] for entry in session if entry["type"] == "prompt"]


def alive(run: Run) -> bool:
    return run.process is not None and tree.identity(run.process.pid) == run.process


def nothing_lives(run_id: str) -> bool:
    return not tree.Tree(mark=run_id).members()


async def sticky(app: App, skill: str, **options: Any) -> Run:
    run = await submit(app, skill, options={**STICKY, **options})
    return await waiting(app, run.id)


@pytest.mark.databases
@pytest.mark.contract("W-4", "W-5", "W-6", "P-5", "M-1")
def test_two_answers_go_into_the_one_process_that_asked(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [SECOND], [FINISH])

    async def main() -> None:
        async with world.working("slots = 1") as app:
            run = await sticky(app, skill, session_timeout_sec=300)
            assert (run.profile.kind, app.slots.taken) == (ProfileKind.STICKY_PROCESS, 1)
            assert run.process is not None
            assert run.wait_deadline_at is not None
            assert abs((run.wait_deadline_at - run.updated_at).total_seconds() - 300) < 1
            held = run.process
            assert tree.identity(held.pid) == held
            await app.service.reply(run.id, "crimson")
            run = await waiting(app, run.id)
            assert (run.attempt_number, run.process, app.slots.taken) == (2, held, 1)
            await app.service.reply(run.id, "large")
            done = await over(app, run.id)
            assert (done.state, done.attempt_number) == (RunState.SUCCEEDED, 3)
            assert (await app.service.result(run.id)).data == {"colour": "large"}
            assert pids(world, run.id) == [held.pid] * 3
            assert ["crimson" in text for text in world.prompts(run.id)] == [False, True, False]
            assert nothing_lives(run.id)

    run_async(main)


@pytest.mark.contract("B-3")
def test_a_run_that_succeeded_has_outlived_its_process_however_slowly_that_ends(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([{"misbehave": "ignore_term"}, ASK], [FINISH])

    async def main() -> None:
        async with world.working() as app:
            run = await sticky(app, skill)
            await app.service.reply(run.id, "red")
            done = await over(app, run.id)
            assert not alive(run)
            assert done.state is RunState.SUCCEEDED

    run_async(main)


@pytest.mark.contract("P-2")
def test_an_engine_that_cannot_resume_gets_a_sticky_run_by_itself(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working(NO_RESUME) as app:
            run = await waiting(app, (await submit(app, skill)).id)
            assert run.profile.kind is ProfileKind.STICKY_PROCESS
            assert "--resume" in run.profile.reason
            await app.service.reply(run.id, "red")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            assert len(set(pids(world, run.id))) == 1

    run_async(main)


@pytest.mark.contract("P-2")
def test_an_auto_run_of_such_an_engine_needs_no_process_that_stays(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([{"finish": {"colour": "blue"}}])

    async def main() -> None:
        async with world.working(NO_RESUME) as app:
            run = await over(app, (await submit(app, skill, mode="auto")).id)
            assert run.state is RunState.SUCCEEDED

    run_async(main)


@pytest.mark.contract("W-4")
def test_a_held_process_keeps_its_slot_from_a_queued_run(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working("slots = 1") as app:
            run = await sticky(app, skill)
            other = await submit(app, world.skill([{"finish": {"colour": "blue"}}], name="other"))
            await app.service.store.get(other.id)
            assert app.service.queue_reason(other) == "slots"
            await app.service.reply(run.id, "red")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            done = await over(app, other.id)
            assert done.started_at is not None
            ended = (await app.service.store.get(run.id)).finished_at
            assert ended is not None
            assert done.started_at >= ended

    run_async(main)


def test_a_waiting_run_shows_the_process_it_holds_and_until_when(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working() as app:
            run = await sticky(app, skill)
            view = plain(WireRun.of(run))
            assert run.process is not None
            assert view["held_process"] == {"pid": run.process.pid, "until": view["wait_deadline_at"]}
            await app.service.reply(run.id, "red")
            assert "held_process" not in plain(WireRun.of(await over(app, run.id)))

    run_async(main)


@pytest.mark.contract("W-7", "X-5", "B-3", "A-4")
def test_at_the_deadline_of_a_required_reply_the_process_is_ended_and_then_the_run_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, time = World(tmp_path), PassingTime(monkeypatch)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working("slots = 1") as app:
            run = await sticky(app, skill, session_timeout_sec=30)
            time.passes(30)
            failed = await over(app, run.id)
            assert not alive(run)
            assert nothing_lives(run.id)
            assert failed.error is not None
            assert (failed.state, failed.error.code) == (RunState.FAILED, ErrorCode.INTERACTION_WAIT_TIMEOUT)
            (asked,) = await app.service.store.interactions(run.id)
            assert (asked.outcome, asked.answered_by) == (InteractionOutcome.EXPIRED, None)
            with pytest.raises(Conflict):
                await app.service.reply(run.id, "red", "colour")
            await until(lambda: app.slots.taken == 0)

    run_async(main)


@pytest.mark.contract("W-8")
def test_at_the_deadline_without_a_required_reply_a_decision_goes_into_the_same_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, time = World(tmp_path), PassingTime(monkeypatch)
    skill = world.skill([SECOND], [{"finish": {"colour": "blue"}}])

    async def main() -> None:
        async with world.working() as app:
            run = await sticky(app, skill, session_timeout_sec=30, interactive_require_user_reply=False)
            time.passes(30)
            done = await over(app, run.id)
            assert done.state is RunState.SUCCEEDED
            assert run.process is not None
            assert pids(world, run.id) == [run.process.pid] * 2
            (asked,) = await app.service.store.interactions(run.id)
            assert (asked.outcome, asked.answered_by) == (InteractionOutcome.AUTO_DECIDED, AnsweredBy.AUTO_DECIDE)

    run_async(main)


@pytest.mark.contract("W-11", "X-6")
@pytest.mark.parametrize("how", ["killed", "ended by itself"])
def test_a_process_that_is_gone_fails_the_run_at_once(tmp_path: Path, how: str) -> None:
    world = World(tmp_path)
    leave = tmp_path / "leave"
    gone = {"misbehave": "exit_while_waiting", "when": str(leave)}
    skill = world.skill([gone, ASK], [FINISH])

    async def main() -> None:
        async with world.working() as app:
            run = await sticky(app, skill)
            assert run.process is not None
            if how == "killed":
                os.kill(run.process.pid, signal.SIGKILL)
            else:
                leave.touch()
            failed = await over(app, run.id)
            assert failed.error is not None
            assert failed.error.code is ErrorCode.INTERACTION_PROCESS_LOST
            assert [each.outcome for each in await app.service.store.interactions(run.id)] == [
                InteractionOutcome.ABANDONED
            ]
            with pytest.raises(Conflict):
                await app.service.reply(run.id, "red", "colour")

    run_async(main)


@pytest.mark.contract("B-2", "B-3")
@pytest.mark.parametrize("state", ["waiting", "in its second turn"])
def test_a_canceled_run_is_canceled_only_when_its_process_is_gone(tmp_path: Path, state: str) -> None:
    world = World(tmp_path)
    begun, never = tmp_path / "begun", tmp_path / "never"
    skill = world.skill([ASK], [{"touch": str(begun)}, {"wait_for": str(never)}, FINISH])

    async def main() -> None:
        async with world.working() as app:
            run = await sticky(app, skill)
            if state != "waiting":
                await app.service.reply(run.id, "red")
                await until(begun.exists)
            await app.service.cancel(run.id)
            canceled = await over(app, run.id)
            assert canceled.state is RunState.CANCELED
            assert not alive(run)
            assert nothing_lives(run.id)

    run_async(main)


@pytest.mark.contract("B-1", "B-3")
def test_a_stopped_program_ends_the_process_it_holds_and_says_so(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working(serving=True) as app:
            run = await sticky(app, skill)
        assert not alive(run)
        async with world.client() as app:
            failed = await app.service.store.get(run.id)
            assert failed.error is not None
            assert failed.error.code is ErrorCode.INTERACTION_PROCESS_LOST

    run_async(main)


def test_a_first_turn_that_a_stop_interrupted_restarts_in_a_new_process(tmp_path: Path) -> None:
    world = World(tmp_path)
    begun, go = tmp_path / "begun", tmp_path / "go"
    skill = world.skill([{"touch": str(begun)}, {"wait_for": str(go)}, ASK], [FINISH])

    async def main() -> None:
        async with world.working(serving=True) as app:
            run = await submit(app, skill, options=STICKY)
            await until(begun.exists)
        go.touch()
        async with world.working(serving=True) as app:
            run = await waiting(app, run.id)
            await app.service.reply(run.id, "red")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            assert len(set(pids(world, run.id))) == 1

    run_async(main)


@pytest.mark.contract("T-8")
def test_the_engines_own_question_is_answered_in_its_own_form(tmp_path: Path) -> None:
    world = World(tmp_path)
    native = {"ask_native": {"prompt": "Which colour?", "options": ["red", "blue"]}}
    skill = world.skill([{"say": "Let me see."}, native, FINISH])

    async def main() -> None:
        async with world.working() as app:
            run = await sticky(app, skill)
            assert run.pending_interaction is not None
            assert run.pending_interaction.options == ("red", "blue")
            await app.service.reply(run.id, "blue")
            done = await over(app, run.id)
            assert (done.state, done.attempt_number) == (RunState.SUCCEEDED, 2)
            assert (await app.service.result(run.id)).data == {"colour": "blue"}
            # One prompt: the answer was no second one.
            assert len(world.prompts(run.id)) == 1
            said = [event.data["text"] for event in await events_of(app, run.id) if event.type == "assistant.message"]
            assert said[0] == "Let me see."

    run_async(main)


@pytest.mark.contract("C-3")
def test_an_output_that_fails_is_repaired_in_the_same_process(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([{"finish": {"wrong": 1}}], [{"finish": {"colour": "red"}}])

    async def main() -> None:
        async with world.working() as app:
            done = await over(app, (await submit(app, skill, options=STICKY)).id)
            assert (done.state, done.attempt_number) == (RunState.SUCCEEDED, 2)
            assert len(set(pids(world, done.id))) == 1

    run_async(main)


@pytest.mark.contract("X-9")
def test_a_turn_that_takes_too_long_ends_the_process_and_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, time = World(tmp_path), PassingTime(monkeypatch)
    begun = tmp_path / "begun"
    skill = world.skill([ASK], [{"touch": str(begun)}, {"wait_for": str(tmp_path / "never")}])

    async def main() -> None:
        async with world.working() as app:
            run = await sticky(app, skill, turn_timeout_sec=30)
            await app.service.reply(run.id, "red")
            await until(begun.exists)
            time.passes(30)
            failed = await over(app, run.id)
            assert failed.error is not None
            assert failed.error.code is ErrorCode.TURN_TIMEOUT
            assert nothing_lives(run.id)

    run_async(main)


@pytest.mark.contract("X-9")
def test_a_process_that_dies_in_a_later_turn_is_an_engine_that_crashed(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [{"misbehave": "crash"}])

    async def main() -> None:
        async with world.working() as app:
            run = await sticky(app, skill)
            await app.service.reply(run.id, "red")
            failed = await over(app, run.id)
            assert failed.error is not None
            assert failed.error.code is ErrorCode.ENGINE_CRASHED

    run_async(main)


def test_noise_while_it_waits_neither_ends_the_wait_nor_becomes_an_event(tmp_path: Path) -> None:
    world = World(tmp_path)
    noise = tmp_path / "noise"
    skill = world.skill([{"misbehave": "noise_while_waiting", "mb": 3, "then_touch": str(noise)}, ASK], [FINISH])

    async def main() -> None:
        async with world.working() as app:
            run = await sticky(app, skill)
            await until(noise.exists)
            before = await events_of(app, run.id)
            await app.service.reply(run.id, "red")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            assert "Nobody asked me." not in [event.data.get("text") for event in await events_of(app, run.id)]
            assert before[-1].type == "run.state"

    run_async(main)


@pytest.mark.contract("A-3")
def test_the_raw_output_of_each_turn_is_kept_apart(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([{"say": "first words"}, ASK], [{"say": "second words"}, FINISH])

    async def main() -> None:
        async with world.working() as app:
            run = await sticky(app, skill)
            await app.service.reply(run.id, "red")
            await over(app, run.id)
            turns = world.data_dir / "runs" / run.id / "turns"
            texts = [path.read_text() for path in sorted(turns.glob("*stdout*"))]
            assert len(texts) == 2
            assert ["first words" in text for text in texts] == [True, False]
            assert ["second words" in text for text in texts] == [False, True]

    run_async(main)


@pytest.mark.contract("W-13")
def test_of_many_replies_to_a_held_process_one_wins_and_is_heard_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working() as app:
            run = await sticky(app, skill)
            tried = [app.service.reply(run.id, f"colour-{number}", "colour") for number in range(20)]
            answers = await asyncio.gather(*tried, return_exceptions=True)
            assert sum(isinstance(answer, Run) for answer in answers) == 1
            assert sum(isinstance(answer, Conflict) for answer in answers) == 19
            await reach(app, run.id, RunState.SUCCEEDED)
            (_, heard) = world.prompts(run.id)
            assert heard.count("colour-") == 1

    run_async(main)
