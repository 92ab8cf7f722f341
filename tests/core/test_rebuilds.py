"""A lost session: when the lifecycle orders a new one, and what the run keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from askback.core.errors import ErrorCode, RunError, WarningCode
from askback.core.outcomes import TurnError
from askback.core.runs import (
    Mode,
    OnLostSession,
    Origin,
    ProfileKind,
    Run,
    RunOptions,
    RunState,
    TurnKind,
    TurnOrder,
    Usage,
)
from askback.core.signals import HandleNamed, SlotAcquired, TurnLost
from support.specimens import ASKING, DONE, EPOCH, HANDLE, LOST, NOW, WRONG, decision, ended, event_types, running_run

pytestmark = pytest.mark.contract("J-5")

REPLY = TurnOrder(kind=TurnKind.REPLY, attempt_number=2, interaction_id="colour")
REBUILD = RunOptions(on_lost_session=OnLostSession.REBUILD)


def resuming(**changes: Any) -> Run:
    """A run in the turn that its answer began, which allows a new session."""
    return running_run(**({"options": REBUILD, "attempt_number": 2, "next_turn": REPLY} | changes))


def failed(run: Run) -> ErrorCode:
    assert (run.state, run.next_turn.kind) != (RunState.RUNNING, TurnKind.REBUILD)
    assert run.error is not None
    return run.error.code


def test_a_lost_session_is_followed_by_a_turn_without_a_handle_and_with_a_warning() -> None:
    run = resuming()
    made = decision(run, ended(run, LOST))
    assert (made.run.state, made.run.handle, made.run.error) == (RunState.RUNNING, None, None)
    assert made.run.next_turn == replace(REPLY, kind=TurnKind.REBUILD, attempt_number=3)
    assert (made.run.attempt_number, made.run.worker, made.run.epoch) == (3, run.worker, EPOCH)
    assert made.run.starts_session
    assert event_types(made) == ["turn.ended", "run.warning", "turn.started"]
    (warning,) = made.run.warnings
    assert warning.code is WarningCode.CONTEXT_REBUILT
    assert "turn 2" in warning.message
    assert LOST.error.message in warning.message
    assert made.events[-1].data["kind"] == "rebuild"


def test_by_default_a_lost_session_fails_the_run() -> None:
    run = resuming(options=RunOptions())
    made = decision(run, ended(run, LOST))
    assert failed(made.run) is ErrorCode.SESSION_RESUME_FAILED
    assert made.run.warnings == ()


@pytest.mark.parametrize("cause", ErrorCode)
def test_only_a_session_that_is_gone_or_unusable_is_given_up(cause: ErrorCode) -> None:
    run = resuming()
    error = RunError(code=ErrorCode.SESSION_RESUME_FAILED, message="not resumed", cause=cause)
    made = decision(run, ended(run, TurnError(error=error))).run
    assert (made.state is RunState.RUNNING) == (cause is ErrorCode.ENGINE_CRASHED)


@pytest.mark.parametrize("code", [code for code in ErrorCode if code is not ErrorCode.SESSION_RESUME_FAILED])
def test_a_turn_that_fails_in_its_session_is_not_told_again(code: ErrorCode) -> None:
    run = resuming()
    assert failed(decision(run, ended(run, TurnError(error=RunError(code=code, message="no")))).run) is code


@pytest.mark.parametrize(
    "changes",
    [
        {"rebuilds": 1},
        {"max_attempt": 2},
        {"handle": None},
        {"handle": replace(HANDLE, created_at_turn=2)},
        {"profile": ProfileKind.STICKY_PROCESS},
        {"origin": Origin(run_id="source", session=True)},
    ],
    ids=["again", "last turn", "no session", "session of this turn", "sticky", "session of another run"],
)
def test_no_new_session_is_started(changes: dict[str, Any]) -> None:
    run = resuming(**changes)
    assert failed(decision(run, ended(run, LOST)).run) is ErrorCode.SESSION_RESUME_FAILED


def test_a_run_that_copied_only_files_has_its_whole_transcript() -> None:
    run = resuming(origin=Origin(run_id="source"))
    assert decision(run, ended(run, LOST)).run.state is RunState.RUNNING


def test_an_interrupted_rebuild_starts_again_and_is_counted_once() -> None:
    run = resuming()
    rebuilding = decision(run, ended(run, LOST)).run
    named = replace(HANDLE, handle_value="s-2", created_at_turn=3)
    half = decision(rebuilding, HandleNamed(epoch=EPOCH, handle=named, at=NOW)).run
    queued = decision(half, TurnLost(epoch=EPOCH, at=NOW)).run
    assert (queued.state, queued.handle, queued.next_turn) == (RunState.QUEUED, None, rebuilding.next_turn)
    again = decision(queued, SlotAcquired(worker="other", at=NOW)).run
    assert (again.attempt_number, again.rebuilds, again.warnings) == (3, 1, rebuilding.warnings)
    assert again.starts_session


def test_each_question_has_a_rebuild_of_its_own() -> None:
    run = resuming()
    rebuilding = decision(run, ended(run, LOST)).run.evolve(handle=replace(HANDLE, created_at_turn=3))
    waiting = decision(rebuilding, ended(rebuilding, ASKING)).run
    assert (waiting.state, waiting.rebuilds) == (RunState.WAITING_USER, 0)
    later = waiting.evolve(state=RunState.RUNNING, attempt_number=4, next_turn=replace(REPLY, attempt_number=4))
    second = decision(later, ended(later, LOST)).run
    assert second.next_turn.attempt_number == 5
    assert [each.code for each in second.warnings] == [WarningCode.CONTEXT_REBUILT] * 2


@pytest.mark.parametrize("mode", Mode)
def test_a_repair_turn_that_finds_no_session_keeps_the_problems(mode: Mode) -> None:
    run = running_run(options=REBUILD, mode=mode)
    repairing = decision(run, ended(run, WRONG)).run
    rebuilding = decision(repairing, ended(repairing, LOST)).run
    assert rebuilding.next_turn == TurnOrder(kind=TurnKind.REBUILD, attempt_number=3, problems=WRONG.problems)
    assert failed(decision(rebuilding, ended(rebuilding, WRONG)).run) is ErrorCode.OUTPUT_SCHEMA_INVALID


def test_a_canceled_run_gets_no_new_session() -> None:
    run = resuming(cancel_requested_at=NOW)
    assert decision(run, ended(run, LOST)).run.state is RunState.CANCELED


def test_the_new_session_has_used_nothing_yet() -> None:
    before, lost, used = Usage(total_tokens=100), Usage(total_tokens=30), Usage(total_tokens=5)
    run = resuming(usage=lost, usage_before=before)
    assert run.session_usage == Usage(total_tokens=130)
    rebuilding = decision(run, ended(run, LOST, usage=used)).run
    assert rebuilding.usage == Usage(total_tokens=35)
    assert rebuilding.session_usage == Usage()
    done = decision(rebuilding, ended(rebuilding, DONE, usage=used)).run
    assert (done.usage, done.session_usage) == (Usage(total_tokens=40), used)
