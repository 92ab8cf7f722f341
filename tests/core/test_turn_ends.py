"""How turns start and end: the numbers, texts and times that the table of states does not show."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askback.core.errors import ErrorCode, RunWarning, WarningCode
from askback.core.interactions import InteractionOutcome, Question
from askback.core.lifecycle import create
from askback.core.outcomes import AskUser, Final
from askback.core.runs import Mode, ProcessIdentity, ProfileKind, RunOptions, RunState, TurnKind, TurnOrder, Usage
from askback.core.signals import HandleNamed, ProcessStarted, SlotAcquired, TurnLost, TurnProcess
from support.specimens import (
    ASKING,
    BROKEN,
    CREATED,
    DONE,
    EPOCH,
    HANDLE,
    NOW,
    QUESTION,
    SESSION_TIMEOUT_SEC,
    SOFT,
    WRONG,
    decision,
    ended,
    event_types,
    queued_run,
    running_run,
)

STICKY = ProfileKind.STICKY_PROCESS
LENIENT_WARNING = RunWarning(code=WarningCode.ASK_USER_PAYLOAD_INVALID, message="the engine's question is malformed")


# Creation and start.


def test_the_first_state_event_of_a_run_comes_from_null() -> None:
    made = create(queued_run(), {"skill": "skill"})
    assert event_types(made) == ["run.created", "run.state"]
    assert made.events[0].data == {"skill": "skill"}
    assert made.events[1].data == {"from": None, "to": RunState.QUEUED}
    assert made.run == queued_run()


def test_a_start_takes_the_number_of_the_turn_that_was_ordered() -> None:
    order = TurnOrder(kind=TurnKind.REPLY, attempt_number=4, interaction_id="colour")
    made = decision(queued_run(next_turn=order, attempt_number=3, epoch=7), SlotAcquired(worker="w-2", at=NOW))
    assert (made.run.attempt_number, made.run.epoch, made.run.worker) == (4, 8, "w-2")
    assert event_types(made) == ["run.state", "turn.started"]
    started = {"attempt_number": 4, "kind": TurnKind.REPLY, "restarts": 0, "worker": "w-2"}
    assert made.events[1].data == started | {"process": "new"}


@pytest.mark.contract("V-2")
def test_the_start_of_a_turn_says_which_process_it_uses() -> None:
    order = TurnOrder(kind=TurnKind.REPLY, attempt_number=4, interaction_id="colour")
    queued = queued_run(next_turn=order, attempt_number=3)
    made = [decision(queued, SlotAcquired(worker="w", at=NOW, process=each)) for each in TurnProcess]
    assert [each.events[1].data["process"] for each in made] == ["new", "warm", "prewarmed"]
    assert made[0].run == made[1].run == made[2].run


def test_the_first_start_is_kept_as_the_time_of_start() -> None:
    assert decision(queued_run(), SlotAcquired(worker="w", at=NOW)).run.started_at == NOW
    assert decision(queued_run(started_at=CREATED), SlotAcquired(worker="w", at=NOW)).run.started_at == CREATED


def test_a_handle_is_kept_the_moment_it_is_named() -> None:
    made = decision(running_run(handle=None), HandleNamed(epoch=EPOCH, handle=HANDLE, at=NOW))
    assert made.run.handle == HANDLE
    assert made.run.state is RunState.RUNNING


def test_the_process_that_was_started_is_kept() -> None:
    other = ProcessIdentity(pid=7, start_ticks=8, boot_id="boot")
    assert decision(running_run(), ProcessStarted(epoch=EPOCH, process=other, at=NOW)).run.process == other


def test_the_process_that_named_the_handle_is_kept_with_it() -> None:
    other = ProcessIdentity(pid=7, start_ticks=8, boot_id="boot")
    named = HandleNamed(epoch=EPOCH, handle=HANDLE, at=NOW, process=other)
    assert decision(running_run(handle=None), named).run.process == other
    unnamed = running_run(handle=None, process=other)
    assert decision(unnamed, HandleNamed(epoch=EPOCH, handle=HANDLE, at=NOW)).run.process == other


# Completion.


@pytest.mark.contract("C-1", "T-3")
def test_a_done_turn_with_a_passing_output_succeeds_with_its_data() -> None:
    made = decision(running_run(), ended(running_run(), DONE))
    assert made.run.state is RunState.SUCCEEDED
    assert made.result == {"ok": True}
    assert made.run.warnings == ()


@pytest.mark.contract("C-4", "X-8")
def test_a_soft_completion_has_a_warning() -> None:
    made = decision(running_run(), ended(running_run(), SOFT))
    assert made.run.state is RunState.SUCCEEDED
    assert [warning.code for warning in made.run.warnings] == [WarningCode.INTERACTIVE_COMPLETED_WITHOUT_DONE_MARKER]
    assert event_types(made) == ["turn.ended", "run.warning", "run.state"]


@pytest.mark.contract("C-7")
def test_an_auto_run_needs_no_marker_to_complete() -> None:
    run = running_run(mode=Mode.AUTO)
    made = decision(run, ended(run, SOFT))
    assert made.run.state is RunState.SUCCEEDED
    assert made.run.warnings == ()


@pytest.mark.contract("C-7")
def test_an_auto_run_that_only_asked_fails_by_its_output() -> None:
    run = running_run(mode=Mode.AUTO, repairs=1)
    made = decision(run, ended(run, ASKING))
    assert made.run.error is not None
    assert made.run.error.code is ErrorCode.OUTPUT_SCHEMA_INVALID
    assert made.asked is None


@pytest.mark.contract("H-12")
@pytest.mark.parametrize(("named_at", "kept"), [(1, True), (2, False)])
def test_a_handle_that_was_first_named_in_a_cut_off_turn_is_dropped_with_it(named_at: int, kept: bool) -> None:
    handle = replace(HANDLE, created_at_turn=named_at)
    run = running_run(handle=handle, attempt_number=2)
    queued = decision(run, TurnLost(epoch=EPOCH, at=NOW)).run
    assert queued.state is RunState.QUEUED
    assert queued.handle == (handle if kept else None)


# Repair.


@pytest.mark.contract("C-3")
@pytest.mark.parametrize("mode", Mode)
def test_a_repair_turn_is_a_turn_that_says_what_is_wrong(mode: Mode) -> None:
    run = running_run(mode=mode)
    made = decision(run, ended(run, WRONG))
    assert made.run.state is RunState.RUNNING
    assert (made.run.attempt_number, made.run.repairs) == (2, 1)
    assert made.run.next_turn == TurnOrder(kind=TurnKind.REPAIR, attempt_number=2, problems=WRONG.problems)
    assert made.run.worker == run.worker
    assert made.run.epoch == run.epoch
    assert event_types(made) == ["turn.ended", "turn.started"]


@pytest.mark.contract("C-3")
@pytest.mark.parametrize("allowed", [0, 1, 3])
def test_repairs_are_started_as_often_as_allowed(allowed: int) -> None:
    run = running_run(options=RunOptions(repair_attempts=allowed))
    for number in range(allowed):
        run = decision(run, ended(run, WRONG)).run
        assert (run.state, run.repairs) == (RunState.RUNNING, number + 1)
    made = decision(run, ended(run, WRONG))
    assert made.run.state is RunState.FAILED
    assert made.run.error is not None
    assert made.run.error.code is ErrorCode.OUTPUT_SCHEMA_INVALID
    assert "output.ok: 1 is not a boolean" in made.run.error.message


@pytest.mark.contract("C-3")
@pytest.mark.parametrize(("attempt", "state"), [(1, RunState.RUNNING), (2, RunState.FAILED), (3, RunState.FAILED)])
def test_no_repair_is_started_at_max_attempt(attempt: int, state: RunState) -> None:
    run = running_run(attempt_number=attempt, max_attempt=2)
    assert decision(run, ended(run, WRONG)).run.state is state


@pytest.mark.contract("C-3")
def test_a_repair_needs_a_session_to_go_on_with() -> None:
    lone = running_run(handle=None)
    made = decision(lone, ended(lone, WRONG))
    assert made.run.error is not None
    assert made.run.error.code is ErrorCode.OUTPUT_SCHEMA_INVALID
    resident = running_run(handle=None, profile=STICKY)
    assert decision(resident, ended(resident, WRONG)).run.state is RunState.RUNNING


@pytest.mark.contract("C-3")
def test_a_wait_makes_room_for_new_repairs() -> None:
    run = running_run(repairs=1, attempt_number=2)
    assert decision(run, ended(run, ASKING)).run.repairs == 0


# Waiting.


@pytest.mark.contract("C-2")
def test_a_question_is_kept_as_it_was_asked() -> None:
    question = Question(
        interaction_id="q.1",
        prompt="Which?",
        kind="choice",
        options=("a", {"label": "B", "value": 2}),
        default="a",
        response_schema={"type": "string"},
        context={"file": "x"},
    )
    made = decision(running_run(), ended(running_run(), AskUser(question=question)))
    assert made.run.state is RunState.WAITING_USER
    assert made.asked is not None
    for name in ("interaction_id", "prompt", "kind", "options", "default", "response_schema", "context"):
        assert getattr(made.asked, name) == getattr(question, name)
    assert (made.asked.asked_at, made.asked.attempt_number) == (NOW, 1)
    assert made.asked.outcome is InteractionOutcome.PENDING


def test_the_question_is_reported_before_the_wait() -> None:
    made = decision(running_run(), ended(running_run(), ASKING))
    assert event_types(made) == ["turn.ended", "interaction.asked", "run.state"]
    assert made.events[1].data["prompt"] == QUESTION.prompt


@pytest.mark.contract("T-5")
def test_a_malformed_question_waits_with_a_warning() -> None:
    run = running_run()
    made = decision(run, ended(run, AskUser(question=QUESTION, warnings=(LENIENT_WARNING,))))
    assert made.run.state is RunState.WAITING_USER
    assert made.run.warnings == (LENIENT_WARNING,)
    assert "run.warning" in event_types(made)


@pytest.mark.contract("C-6", "X-7")
@pytest.mark.parametrize(
    ("attempt", "limit", "waits"), [(1, 2, True), (2, 2, False), (3, 2, False), (1, 1, False), (99, None, True)]
)
def test_the_last_allowed_turn_may_not_ask(attempt: int, limit: int | None, waits: bool) -> None:
    run = running_run(attempt_number=attempt, max_attempt=limit)
    made = decision(run, ended(run, ASKING))
    assert (made.run.state is RunState.WAITING_USER) == waits
    if not waits:
        assert made.run.error is not None
        assert made.run.error.code is ErrorCode.INTERACTIVE_MAX_ATTEMPT_EXCEEDED
        assert made.asked is None


@pytest.mark.contract("C-6")
def test_the_last_allowed_turn_may_complete() -> None:
    run = running_run(attempt_number=2, max_attempt=2)
    assert decision(run, ended(run, SOFT)).run.state is RunState.SUCCEEDED


@pytest.mark.contract("X-1")
def test_a_resumable_run_without_a_handle_cannot_wait() -> None:
    run = running_run(handle=None)
    made = decision(run, ended(run, ASKING))
    assert made.run.state is RunState.FAILED
    assert made.run.error is not None
    assert made.run.error.code is ErrorCode.SESSION_RESUME_FAILED
    assert made.asked is None


def test_a_run_that_completes_needs_no_handle() -> None:
    run = running_run(handle=None)
    assert decision(run, ended(run, DONE)).run.state is RunState.SUCCEEDED


def test_a_sticky_run_waits_without_a_handle_and_keeps_its_process() -> None:
    run = running_run(handle=None, profile=STICKY)
    made = decision(run, ended(run, ASKING))
    assert made.run.state is RunState.WAITING_USER
    assert (made.run.process, made.run.worker) == (run.process, run.worker)
    assert made.run.wait_deadline_at == NOW + timedelta(seconds=SESSION_TIMEOUT_SEC)


@given(st.lists(st.one_of(st.none(), st.sampled_from(["a", "question-1", "question-2", "-x"]), st.text(max_size=5))))
def test_interaction_ids_are_unique_and_well_formed_whatever_the_engine_says(wanted: list[str | None]) -> None:
    run = running_run()
    for number, own in enumerate(wanted, start=1):
        question = Question(interaction_id=own, prompt="?")
        run = decision(run, ended(run, AskUser(question=question))).run
        assert run.interaction_ids[-1][0].isalnum()
        assert len(run.interaction_ids[-1]) <= 128
        run = run.evolve(state=RunState.RUNNING, pending_interaction=None, worker="w", attempt_number=number + 1)
    assert len(set(run.interaction_ids)) == len(run.interaction_ids) == len(wanted)


@pytest.mark.parametrize("own", ["colour", "A.b:c-9_", "0", "x" * 128])
def test_the_engines_own_id_is_kept_when_it_is_well_formed_and_new(own: str) -> None:
    run = running_run(interaction_ids=("before",))
    made = decision(run, ended(run, AskUser(question=Question(interaction_id=own, prompt="?"))))
    assert made.run.interaction_ids == ("before", own)


@pytest.mark.parametrize("own", [None, "", "before", "-a", "a b", "a/b", "a\n", "é", "x" * 129])
def test_an_id_that_will_not_do_is_replaced_by_ours(own: str | None) -> None:
    run = running_run(interaction_ids=("before",), attempt_number=4)
    made = decision(run, ended(run, AskUser(question=Question(interaction_id=own, prompt="?"))))
    assert made.run.interaction_ids == ("before", "question-4")


# What a run gathers.


def test_usage_adds_up_over_turns() -> None:
    spent = Usage(input_tokens=1, output_tokens=2, cached_tokens=3, total_tokens=6)
    run = running_run()
    first = decision(run, ended(run, WRONG, usage=spent))
    second = decision(first.run, ended(first.run, DONE, usage=spent))
    assert second.run.usage == Usage(input_tokens=2, output_tokens=4, cached_tokens=6, total_tokens=12)
    assert "usage" in event_types(first)
    assert decision(first.run, ended(first.run, DONE)).run.usage == spent


def test_a_run_has_the_same_warning_only_once() -> None:
    run = running_run(warnings=(LENIENT_WARNING,))
    again = AskUser(question=QUESTION, warnings=(LENIENT_WARNING,))
    assert decision(run, ended(run, again)).run.warnings == (LENIENT_WARNING,)


def test_warnings_of_a_turn_that_failed_are_kept() -> None:
    run = running_run()
    cut = RunWarning(code=WarningCode.ENGINE_LINE_TRUNCATED, message="a line was left out")
    made = decision(run, ended(run, BROKEN, warnings=(cut,)))
    assert made.run.warnings == (cut,)
    assert made.run.error == BROKEN.error
    assert made.events[-1].data["error"]["code"] == "ENGINE_CRASHED"


def test_a_result_of_null_is_a_result() -> None:
    made = decision(running_run(), ended(running_run(), Final(data=None, done=True)))
    assert made.run.state is RunState.SUCCEEDED


@pytest.mark.contract("B-1")
def test_a_turn_that_was_interrupted_too_often_says_why() -> None:
    run = running_run(restarts=3)
    lost = decision(run, TurnLost(epoch=EPOCH, at=NOW, why="the disk was full")).run
    assert lost.error is not None
    assert lost.error.code is ErrorCode.ORCHESTRATOR_RESTART_INTERRUPTED
    assert "interrupted 4 times, the last time because the disk was full" in lost.error.message
