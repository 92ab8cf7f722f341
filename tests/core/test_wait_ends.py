"""How waits, cancels and lost turns end: the numbers, texts and times that the table of states does not show."""

from __future__ import annotations

from datetime import timedelta

import pytest

from askback.core.errors import ErrorCode, RefusalCode, RunWarning, WarningCode
from askback.core.events import EventType
from askback.core.interactions import AnsweredBy, InteractionOutcome, Question
from askback.core.lifecycle import Refusal, Stay, decide
from askback.core.outcomes import AskUser
from askback.core.runs import ProfileKind, Run, RunOptions, RunState, TurnKind, TurnOrder
from askback.core.signals import (
    Adopted,
    CancelRequested,
    DeadlinePassed,
    FilesStored,
    HandleNamed,
    ProcessLost,
    ProcessTreeEnded,
    Replied,
    SlotAcquired,
    TurnLost,
)
from support.specimens import (
    ASKING,
    CREATED,
    DONE,
    EPOCH,
    HANDLE,
    NOW,
    OWNER,
    SESSION_TIMEOUT_SEC,
    WRONG,
    decision,
    ended,
    event_types,
    queued_run,
    running_run,
    waiting_run,
)

STICKY = ProfileKind.STICKY_PROCESS


def reply(interaction_id: str = "colour", **more: object) -> Replied:
    return Replied(**({"interaction_id": interaction_id, "response": "red", "owner": OWNER, "at": NOW} | more))


def deadline(run: Run) -> DeadlinePassed:
    return DeadlinePassed(interaction_id="colour", at=run.wait_deadline_at or NOW)


def decided_run(**changes: object) -> Run:
    """A waiting run whose question is decided automatically at its deadline."""
    options = RunOptions(interactive_require_user_reply=False)
    return waiting_run(options=options, **changes)


# The end of a wait.


@pytest.mark.contract("A-4")
def test_a_reply_is_kept_with_who_and_when() -> None:
    made = decision(waiting_run(), reply())
    assert made.closed is not None
    assert made.closed.interaction_id == "colour"
    assert made.closed.prompt == "Which colour?"
    assert made.closed.response == "red"
    assert made.closed.outcome is InteractionOutcome.ANSWERED
    assert made.closed.answered_by is AnsweredBy.USER
    assert (made.closed.asked_at, made.closed.answered_at) == (CREATED, NOW)


def test_a_reply_queues_the_next_turn_and_starts_nothing() -> None:
    made = decision(waiting_run(), reply(owner="other"))
    order = TurnOrder(kind=TurnKind.REPLY, attempt_number=2, interaction_id="colour")
    assert made.run.state is RunState.QUEUED
    assert made.run.next_turn == order
    assert (made.run.attempt_number, made.run.worker, made.run.handle) == (1, None, HANDLE)
    assert made.run.owner == "other"
    assert event_types(made) == ["interaction.closed", "run.state"]


def test_a_reply_to_a_sticky_run_begins_its_next_turn_at_once() -> None:
    run = waiting_run(profile=STICKY)
    made = decision(run, reply())
    assert (made.run.state, made.run.attempt_number) == (RunState.RUNNING, 2)
    assert (made.run.process, made.run.worker, made.run.epoch) == (run.process, run.worker, run.epoch)
    assert event_types(made) == ["interaction.closed", "run.state", "turn.started"]


def test_of_two_replies_the_second_is_refused() -> None:
    first = decision(waiting_run(), reply())
    second = decide(first.run, reply(response="green"))
    assert isinstance(second, Refusal)
    assert second.code is RefusalCode.INTERACTION_NOT_PENDING


@pytest.mark.parametrize("profile", ProfileKind)
def test_of_a_reply_and_a_deadline_the_second_is_refused(profile: ProfileKind) -> None:
    run = decided_run(profile=profile)
    for first, second in ((reply(), deadline(run)), (deadline(run), reply())):
        answer = decide(decision(run, first).run, second)
        assert isinstance(answer, Refusal)
        assert answer.code is RefusalCode.INTERACTION_NOT_PENDING


def test_the_refusal_of_an_answer_to_an_earlier_question_names_the_pending_one() -> None:
    answer = decide(waiting_run(), reply("size"))
    assert isinstance(answer, Refusal)
    assert "'size'" in answer.message
    assert "'colour'" in answer.message


@pytest.mark.contract("W-9")
@pytest.mark.parametrize("years", [0, 1, 100])
def test_a_resumable_run_that_needs_a_reply_waits_past_every_time(years: int) -> None:
    waiting = decision(running_run(), ended(running_run(), ASKING)).run
    assert waiting.wait_deadline_at is None
    late = NOW + timedelta(seconds=SESSION_TIMEOUT_SEC, days=365 * years)
    answer = decide(waiting, DeadlinePassed(interaction_id="colour", at=late))
    assert isinstance(answer, Stay)
    assert decision(waiting, reply(at=late)).run.state is RunState.QUEUED


@pytest.mark.contract("W-10", "A-4")
def test_a_resumable_run_is_decided_at_its_deadline() -> None:
    running = running_run(options=RunOptions(interactive_require_user_reply=False))
    waiting = decision(running, ended(running, ASKING)).run
    due = NOW + timedelta(seconds=SESSION_TIMEOUT_SEC)
    assert waiting.wait_deadline_at == due
    early = decide(waiting, DeadlinePassed(interaction_id="colour", at=due - timedelta(microseconds=1)))
    assert isinstance(early, Stay)
    made = decision(waiting, DeadlinePassed(interaction_id="colour", at=due))
    assert made.run.state is RunState.QUEUED
    assert made.run.next_turn.interaction_id == "colour"
    assert made.closed is not None
    assert made.closed.outcome is InteractionOutcome.AUTO_DECIDED
    assert made.closed.answered_by is AnsweredBy.AUTO_DECIDE
    assert (made.closed.response, made.closed.answered_at) == ("blue", due)


@pytest.mark.contract("A-4")
@pytest.mark.parametrize(
    ("signal", "outcome"),
    [
        (DeadlinePassed(interaction_id="colour", at=NOW), InteractionOutcome.EXPIRED),
        (ProcessLost(epoch=EPOCH, at=NOW), InteractionOutcome.ABANDONED),
    ],
)
def test_a_wait_that_nobody_answered_is_not_reported_as_an_answer(
    signal: DeadlinePassed, outcome: InteractionOutcome
) -> None:
    made = decision(waiting_run(profile=STICKY), signal)
    assert made.closed is not None
    assert made.closed.outcome is outcome
    assert (made.closed.response, made.closed.answered_by, made.closed.answered_at) == (None, None, NOW)
    assert made.run.state is RunState.FAILED or made.run.expired


@pytest.mark.contract("A-4")
def test_the_question_of_a_canceled_run_is_canceled() -> None:
    made = decision(waiting_run(), CancelRequested(at=NOW))
    assert made.closed is not None
    assert made.closed.outcome is InteractionOutcome.CANCELED
    assert (made.closed.response, made.closed.answered_by) == (None, None)


def test_a_secret_reply_is_kept_out_of_the_events() -> None:
    asked = AskUser(question=Question(interaction_id="colour", prompt="The key?", kind="secret"))
    waiting = decision(running_run(), ended(running_run(), asked)).run
    made = decision(waiting, reply(response="hush"))
    assert made.closed is not None
    assert made.closed.response == "hush"
    assert "hush" not in repr(made.events)


# Cancel.


def test_a_cancel_is_kept_with_its_time() -> None:
    assert decision(running_run(), CancelRequested(at=NOW)).run.cancel_requested_at == NOW
    assert decision(queued_run(), CancelRequested(at=NOW)).run.cancel_requested_at == NOW


def test_a_sticky_run_is_canceled_after_its_turn_only_when_its_process_is_gone() -> None:
    run = running_run(profile=STICKY, cancel_requested_at=CREATED)
    noted = decision(run, ended(run, ASKING))
    assert noted.run.state is RunState.RUNNING
    assert noted.asked is None
    assert event_types(noted) == ["turn.ended"]
    assert decision(noted.run, ProcessTreeEnded(epoch=EPOCH, at=NOW)).run.state is RunState.CANCELED


def test_a_cancel_wins_over_the_result_of_the_turn_it_cut() -> None:
    run = running_run(cancel_requested_at=CREATED)
    made = decision(run, ended(run, DONE))
    assert made.run.state is RunState.CANCELED
    assert made.result is None


# Loss.


def lost(run: Run, *, counted: bool = True) -> Run:
    """The run after its turn was lost and, if it may, started again."""
    queued = decision(run, TurnLost(epoch=run.epoch, at=NOW, counted=counted)).run
    return queued if queued.state.final else decision(queued, SlotAcquired(worker="w", at=NOW)).run


def test_a_turn_starts_three_times_after_its_first_start_and_no_more() -> None:
    run = decision(queued_run(), SlotAcquired(worker="w", at=NOW)).run
    for restarts in (1, 2, 3):
        run = lost(run)
        assert (run.state, run.restarts, run.attempt_number) == (RunState.RUNNING, restarts, 1)
    made = decision(run, TurnLost(epoch=run.epoch, at=NOW))
    assert made.run.state is RunState.FAILED
    assert made.run.error is not None
    assert made.run.error.code is ErrorCode.ORCHESTRATOR_RESTART_INTERRUPTED
    assert event_types(made) == ["turn.ended", "run.state"]
    assert made.events[0].data["outcome"] == "interrupted"


def test_a_planned_stop_does_not_count() -> None:
    run = running_run(restarts=3)
    for _ in range(10):
        run = lost(run, counted=False)
    assert (run.state, run.restarts) == (RunState.RUNNING, 3)


def test_a_turn_that_ends_properly_clears_the_count() -> None:
    run = running_run(restarts=3)
    assert decision(run, ended(run, ASKING)).run.restarts == 0
    assert decision(run, ended(run, WRONG)).run.restarts == 0


def test_a_turn_that_is_restarted_is_the_same_turn() -> None:
    order = TurnOrder(kind=TurnKind.REPLY, attempt_number=2, interaction_id="colour")
    run = lost(running_run(attempt_number=2, next_turn=order))
    assert (run.next_turn, run.attempt_number, run.handle, run.epoch) == (order, 2, HANDLE, EPOCH + 1)


def test_a_session_that_began_in_the_lost_turn_is_given_up_with_it() -> None:
    run = lost(running_run())
    assert run.handle is None
    again = decision(run, HandleNamed(epoch=run.epoch, handle=HANDLE, at=NOW))
    assert again.run.handle == HANDLE


# Files that are stored between turns.


def test_a_run_whose_files_are_stored_names_them_and_changes_in_nothing_else() -> None:
    warning = RunWarning(code=WarningCode.FILES_NOT_KEPT, message="too large")
    for run in (waiting_run(), queued_run()):
        made = decision(run, FilesStored(epoch=run.epoch, archive_key="archive", at=NOW, warnings=(warning,)))
        assert made.run == run.evolve(kept="archive", warnings=(warning,), version=made.run.version, updated_at=NOW)
        assert [event.type for event in made.events] == [EventType.RUN_WARNING]
        assert decision(run, FilesStored(epoch=run.epoch, archive_key="archive", at=NOW)).events == ()


# Another program.


def test_a_run_that_is_adopted_has_its_new_owner_and_nothing_else() -> None:
    made = decision(waiting_run(), Adopted(owner="another", left_by=OWNER, at=NOW))
    assert made.run == waiting_run().evolve(owner="another", version=made.run.version, updated_at=NOW)
    assert made.events == ()
