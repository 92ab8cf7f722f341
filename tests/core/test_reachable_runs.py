"""Every run that any order of signals can make, and what holds for each of them and for each step between them.

Runs differ by what a decision may depend on, not by their times and versions, so the search ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

import pytest
from test_decide_table import TRANSITIONS

from askback.core.interactions import InteractionOutcome
from askback.core.lifecycle import MAX_RESTARTS, Decision, Refusal, decide
from askback.core.runs import Mode, OnLostSession, ProfileKind, Run, RunOptions, RunState, TurnKind
from askback.core.signals import (
    Adopted,
    CancelRequested,
    DeadlineNear,
    DeadlinePassed,
    FilesStored,
    HandleNamed,
    ProcessLost,
    ProcessStarted,
    ProcessTreeEnded,
    Replied,
    Signal,
    SlotAcquired,
    TurnEnded,
    TurnLost,
)
from support.specimens import ASKING, BROKEN, DONE, HANDLE, LOST, NOW, OTHER_HANDLE, PROCESS, SOFT, WRONG, queued_run

LATER = NOW + timedelta(days=1)
MAX_ATTEMPT = 3


class Step(NamedTuple):
    before: Run
    signal: Signal
    decision: Decision

    @property
    def after(self) -> Run:
        return self.decision.run

    @property
    def moved(self) -> bool:
        return self.before.state is not self.after.state


class Walk(NamedTuple):
    runs: list[Run]
    steps: list[Step]
    refused_by_final: list[Refusal]


def signals_for(run: Run) -> Iterator[Signal]:
    pending = run.pending_interaction.interaction_id if run.pending_interaction else "none"
    yield SlotAcquired(worker="worker", at=NOW)
    for epoch in (run.epoch, run.epoch - 1):
        yield ProcessStarted(epoch=epoch, process=PROCESS, at=NOW)
        for handle in (HANDLE, OTHER_HANDLE):
            named = replace(handle, created_at_turn=run.attempt_number)
            yield HandleNamed(epoch=epoch, handle=named, at=NOW)
        for outcome in (DONE, SOFT, WRONG, ASKING, BROKEN, LOST):
            yield TurnEnded(epoch=epoch, outcome=outcome, at=NOW)
        yield TurnEnded(epoch=epoch, outcome=ASKING, at=NOW, process_alive=True)
        yield ProcessTreeEnded(epoch=epoch, at=NOW)
        yield TurnLost(epoch=epoch, at=NOW)
        yield TurnLost(epoch=epoch, at=NOW, counted=False)
        yield ProcessLost(epoch=epoch, at=NOW)
        yield FilesStored(epoch=epoch, archive_key="archive", at=NOW)
    yield Replied(interaction_id=pending, response="red", owner="owner", at=NOW)
    yield DeadlineNear(interaction_id=pending, at=NOW)
    yield DeadlinePassed(interaction_id=pending, at=LATER)
    yield CancelRequested(at=NOW)
    for left_by in (run.owner, "somebody else"):
        yield Adopted(owner="another", left_by=left_by, at=NOW)


def likeness(run: Run) -> tuple[object, ...]:
    """What a decision may depend on."""
    return (
        run.state,
        run.next_turn.kind,
        run.next_turn.attempt_number,
        run.attempt_number,
        run.restarts,
        run.repairs,
        run.rebuilds,
        run.handle,
        run.process,
        run.cancel_requested,
        run.interaction_ids,
        run.wait_deadline_at,
        run.expiring,
        run.owner,
    )


def walk(first: Run) -> Walk:
    found = {likeness(first): first}
    todo = [first]
    made = Walk(runs=[], steps=[], refused_by_final=[])
    while todo:
        run = todo.pop()
        made.runs.append(run)
        for signal in signals_for(run):
            answer = decide(run, signal)
            if isinstance(answer, Refusal) and run.state.final:
                made.refused_by_final.append(answer)
            if isinstance(answer, Decision):
                made.steps.append(Step(run, signal, answer))
                if found.setdefault(likeness(answer.run), answer.run) is answer.run:
                    todo.append(answer.run)
    return made


def case_id(case: tuple[ProfileKind, Mode, bool, OnLostSession]) -> str:
    profile, mode, required, on_lost = case
    return f"{profile}-{mode}-{'required' if required else 'decided'}-{on_lost}"


@pytest.fixture(scope="module", params=itertools.product(ProfileKind, Mode, (True, False), OnLostSession), ids=case_id)
def walked(request: pytest.FixtureRequest) -> Walk:
    profile, mode, required, on_lost = request.param
    options = RunOptions(interactive_require_user_reply=required, on_lost_session=on_lost)
    return walk(queued_run(profile=profile, mode=mode, options=options, max_attempt=MAX_ATTEMPT))


def types(step: Step) -> list[str]:
    return [event.type for event in step.decision.events]


def runs_in(walk: Walk, state: RunState) -> Iterable[Run]:
    return (run for run in walk.runs if run.state is state)


def test_the_walk_reaches_every_state_it_should(walked: Walk) -> None:
    auto = walked.runs[0].mode is Mode.AUTO
    assert {run.state for run in walked.runs} == set(RunState) - ({RunState.WAITING_USER} if auto else set())


def test_the_walk_reaches_runs_that_are_being_canceled(walked: Walk) -> None:
    assert [run for run in runs_in(walked, RunState.RUNNING) if run.cancel_requested]
    assert [run for run in runs_in(walked, RunState.CANCELED) if run.cancel_requested]


def test_every_decision_raises_the_version_by_one(walked: Walk) -> None:
    assert {step.after.version - step.before.version for step in walked.steps} == {1}


def test_only_state_changes_of_the_contract_occur(walked: Walk) -> None:
    assert {(step.before.state, step.after.state) for step in walked.steps if step.moved} <= TRANSITIONS


def test_every_state_change_has_exactly_one_event(walked: Walk) -> None:
    for step in walked.steps:
        moves = [(event.data["from"], event.data["to"]) for event in step.decision.events if event.type == "run.state"]
        assert moves == ([(step.before.state, step.after.state)] if step.moved else [])


def test_nothing_leaves_a_final_state(walked: Walk) -> None:
    finals = [run for run in walked.runs if run.state.final]
    assert not [step for step in walked.steps if step.before.state.final]
    assert len(walked.refused_by_final) == sum(len(list(signals_for(run))) for run in finals)


def test_an_identity_never_changes(walked: Walk) -> None:
    fixed = ("id", "skill", "engine", "mode", "profile", "options", "created_at", "max_attempt")
    for step in walked.steps:
        assert [getattr(step.after, name) for name in fixed] == [getattr(step.before, name) for name in fixed]


@pytest.mark.contract("C-7")
def test_no_auto_run_ever_waits(walked: Walk) -> None:
    assert {run.mode for run in runs_in(walked, RunState.WAITING_USER)} <= {Mode.INTERACTIVE}


def test_a_waiting_run_has_its_question_and_no_other_run_has_one(walked: Walk) -> None:
    for run in walked.runs:
        waits = run.state is RunState.WAITING_USER and not run.expired
        assert waits == (run.pending_interaction is not None)


def test_a_question_is_asked_in_the_step_that_begins_the_wait(walked: Walk) -> None:
    for step in walked.steps:
        begins = step.moved and step.after.state is RunState.WAITING_USER
        assert (step.decision.asked is not None) == begins
        assert types(step).count("interaction.asked") == begins
        if begins:
            assert step.decision.asked == step.after.pending_interaction


def test_a_question_is_closed_once_in_the_step_that_ends_the_wait(walked: Walk) -> None:
    for step in walked.steps:
        moved_on = step.moved and step.before.state is RunState.WAITING_USER and not step.before.expired
        ends = moved_on or (step.after.expired and not step.before.expired)
        assert (step.decision.closed is not None) == ends
        assert types(step).count("interaction.closed") == ends
        if step.decision.closed is not None:
            assert step.decision.closed.outcome is not InteractionOutcome.PENDING
            assert step.decision.closed.answered_at is not None


@pytest.mark.contract("H-1")
def test_a_resumable_run_waits_only_with_its_handle(walked: Walk) -> None:
    for run in runs_in(walked, RunState.WAITING_USER):
        assert run.sticky or run.handle is not None


def test_a_resumable_run_waits_without_worker_and_process(walked: Walk) -> None:
    for run in runs_in(walked, RunState.WAITING_USER):
        assert (run.worker is not None) == run.sticky
        assert run.sticky or run.process is None


def test_a_run_is_held_exactly_while_it_has_a_slot(walked: Walk) -> None:
    for run in walked.runs:
        slot = run.state is RunState.RUNNING or (run.state is RunState.WAITING_USER and run.sticky)
        assert (run.worker is not None) == slot
        assert slot or run.process is None


def test_a_wait_has_a_deadline_where_something_happens_at_it(walked: Walk) -> None:
    for run in walked.runs:
        ends = run.sticky or not run.options.interactive_require_user_reply
        waits = run.state is RunState.WAITING_USER and not run.expired
        assert (run.wait_deadline_at is not None) == (waits and ends)


def test_a_run_becomes_running_by_a_slot_or_in_its_own_process(walked: Walk) -> None:
    for step in walked.steps:
        if step.moved and step.after.state is RunState.RUNNING:
            assert isinstance(step.signal, SlotAcquired) or step.before.sticky


def test_only_a_slot_opens_a_new_epoch(walked: Walk) -> None:
    for step in walked.steps:
        assert step.after.epoch - step.before.epoch == isinstance(step.signal, SlotAcquired)


@pytest.mark.contract("H-1", "J-5")
def test_a_handle_is_replaced_only_after_its_own_turn_or_its_session_was_lost(walked: Walk) -> None:
    for step in walked.steps:
        if step.before.handle is not None and step.after.handle != step.before.handle:
            assert step.after.handle is None
            if step.after.next_turn.kind is TurnKind.REBUILD and isinstance(step.signal, TurnEnded):
                assert step.signal.outcome is LOST
                assert step.before.handle.created_at_turn < step.before.attempt_number
            else:
                assert isinstance(step.signal, TurnLost)
                assert step.before.handle.created_at_turn == step.before.attempt_number


@pytest.mark.contract("J-5")
def test_a_session_is_rebuilt_only_where_that_is_allowed_and_once_for_each_question(walked: Walk) -> None:
    first = walked.runs[0]
    begun = [step for step in walked.steps if step.after.rebuilds > step.before.rebuilds]
    allowed = first.options.on_lost_session is OnLostSession.REBUILD and not first.sticky
    assert bool(begun) == allowed
    assert max(run.rebuilds for run in walked.runs) == allowed
    assert all(run.rebuilds == 0 for run in runs_in(walked, RunState.WAITING_USER))
    for step in walked.steps:
        warned = [event.data["code"] for event in step.decision.events if event.type == "run.warning"]
        assert ("CONTEXT_REBUILT" in warned) == (step in begun)
    for step in begun:
        kept = (step.after.state, step.after.epoch, step.after.worker, step.after.next_turn.interaction_id)
        assert kept == (RunState.RUNNING, step.before.epoch, "worker", step.before.next_turn.interaction_id)


def test_a_cancel_that_was_asked_for_ends_in_nothing_but_canceled(walked: Walk) -> None:
    asked = [run for run in walked.runs if run.cancel_requested]
    assert {run.state for run in asked} <= {RunState.RUNNING, RunState.WAITING_USER, RunState.CANCELED}
    assert all(run.sticky for run in asked if run.state is RunState.WAITING_USER)
    for step in walked.steps:
        if step.before.cancel_requested and step.moved:
            assert step.after.state is RunState.CANCELED


def test_a_run_with_a_process_is_canceled_only_when_nothing_of_it_lives(walked: Walk) -> None:
    for step in walked.steps:
        if step.after.state is RunState.CANCELED and step.before.worker is not None:
            over = isinstance(step.signal, ProcessTreeEnded | TurnLost | ProcessLost)
            assert over or (isinstance(step.signal, TurnEnded) and not step.before.sticky)


def test_exactly_the_runs_that_failed_or_are_about_to_have_an_error(walked: Walk) -> None:
    assert all((run.state is RunState.FAILED or run.expired) == (run.error is not None) for run in walked.runs)


@pytest.mark.contract("W-7", "X-5", "B-3")
def test_only_a_wait_with_a_process_runs_out_and_ends_only_when_nothing_of_it_lives(walked: Walk) -> None:
    for run in walked.runs:
        if run.expired:
            assert (run.state, run.sticky, run.worker is not None) == (RunState.WAITING_USER, True, True)
    for step in walked.steps:
        if step.before.expired and step.moved:
            assert isinstance(step.signal, ProcessTreeEnded | ProcessLost)
            assert step.before.cancel_requested or (step.after.state, step.after.error) == (
                RunState.FAILED,
                step.before.error,
            )


def test_a_result_comes_exactly_with_success(walked: Walk) -> None:
    for step in walked.steps:
        assert (step.decision.result is not None) == (step.after.state is RunState.SUCCEEDED)


def test_a_final_run_holds_nothing_and_says_when_it_finished(walked: Walk) -> None:
    for run in walked.runs:
        assert (run.finished_at is not None) == run.state.final


@pytest.mark.contract("C-6")
def test_no_turn_goes_past_max_attempt(walked: Walk) -> None:
    assert max(run.attempt_number for run in walked.runs) <= MAX_ATTEMPT
    assert max(run.next_turn.attempt_number for run in walked.runs) <= MAX_ATTEMPT


def test_a_turn_that_was_cut_off_starts_again_at_most_three_times(walked: Walk) -> None:
    waiting_for_a_start = [run.restarts for run in walked.runs if not run.state.final]
    assert max(waiting_for_a_start) == MAX_RESTARTS == 3


@pytest.mark.contract("C-3")
def test_repairs_never_exceed_what_is_allowed(walked: Walk) -> None:
    assert max(run.repairs for run in walked.runs) == 1


def test_interaction_ids_are_unique_in_their_run(walked: Walk) -> None:
    assert all(len(set(run.interaction_ids)) == len(run.interaction_ids) for run in walked.runs)


def test_every_start_of_a_turn_is_reported_with_its_number(walked: Walk) -> None:
    for step in walked.steps:
        started = [event.data["attempt_number"] for event in step.decision.events if event.type == "turn.started"]
        begins = isinstance(step.signal, SlotAcquired) or step.after.attempt_number > step.before.attempt_number
        assert started == ([step.after.attempt_number] if begins else [])


def test_every_end_or_interruption_of_a_turn_is_reported_once(walked: Walk) -> None:
    """The interruption of a turn by a cancel is reported by the state alone."""
    for step in walked.steps:
        lost = isinstance(step.signal, TurnLost) and not step.before.cancel_requested
        over = isinstance(step.signal, TurnEnded) or lost
        assert types(step).count("turn.ended") == over
