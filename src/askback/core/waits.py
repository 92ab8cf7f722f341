"""The part of `lifecycle.decide` for the signals of a wait: a reply, a deadline, a lost process. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from askback.core import event_factory
from askback.core.actors import ASKBACK
from askback.core.decisions import Decision, Refusal, Stay, finish, finish_held, process_lost, stale
from askback.core.errors import ErrorCode, RefusalCode, RunError
from askback.core.events import NewEvent
from askback.core.interactions import AnsweredBy, Interaction, InteractionOutcome
from askback.core.runs import Run, RunState, TurnKind, TurnOrder
from askback.core.signals import DeadlineNear, DeadlinePassed, ProcessLost, Replied


def reply(run: Run, signal: Replied) -> Decision | Refusal:
    pending = _pending(run, signal.interaction_id)
    if isinstance(pending, Refusal):
        return pending
    closed = replace(
        pending,
        outcome=InteractionOutcome.ANSWERED,
        response=signal.response,
        answered_by=AnsweredBy.USER,
        answered_at=signal.at,
        answered_with=signal.by,
    )
    return _continue(run.evolve(owner=signal.owner), closed, signal.at)


def announce_deadline(run: Run, signal: DeadlineNear) -> Decision | Stay | Refusal:
    pending = _pending(run, signal.interaction_id)
    if isinstance(pending, Refusal):
        return pending
    if run.wait_deadline_at is None or signal.at >= run.wait_deadline_at:
        return Stay(reason="no deadline is ahead")
    if run.expiring:
        return Stay(reason="the deadline is announced already")
    announced = run.evolve(
        version=run.version + 1, expiring_interaction_id=pending.interaction_id, updated_at=signal.at
    )
    return Decision(run=announced, events=(event_factory.expiring(pending, run.wait_deadline_at, signal.at),))


def pass_deadline(run: Run, signal: DeadlinePassed) -> Decision | Stay | Refusal:
    pending = _pending(run, signal.interaction_id)
    if isinstance(pending, Refusal):
        return pending
    if run.wait_deadline_at is None or signal.at < run.wait_deadline_at:
        return Stay(reason="the deadline has not passed")
    if not run.options.interactive_require_user_reply:
        closed = replace(
            pending,
            outcome=InteractionOutcome.AUTO_DECIDED,
            response=pending.default,
            answered_by=AnsweredBy.AUTO_DECIDE,
            answered_at=signal.at,
            answered_with=ASKBACK,
        )
        return _continue(run, closed, signal.at)
    return _expire(run, pending, signal.at)


def _expire(run: Run, pending: Interaction, at: datetime) -> Decision:
    """The question is closed. The run fails when `ProcessTreeEnded` says that no process is alive."""
    closed = replace(pending, outcome=InteractionOutcome.EXPIRED, answered_at=at, answered_with=ASKBACK)
    error = RunError(
        code=ErrorCode.INTERACTION_WAIT_TIMEOUT,
        message=f"no reply within {run.profile.session_timeout_sec:g} s; the engine's process is ended",
    )
    expired = run.evolve(
        version=run.version + 1,
        error=error,
        pending_interaction=None,
        closed_interaction=closed.closing,
        wait_deadline_at=None,
        updated_at=at,
    )
    return Decision(run=expired, events=(event_factory.closed(closed, at),), closed=closed)


def _continue(run: Run, closed: Interaction, at: datetime) -> Decision:
    """A resumable run queues for a slot; a sticky one continues in its process."""
    number = run.attempt_number + 1
    state = RunState.RUNNING if run.sticky else RunState.QUEUED
    continued = run.evolve(
        version=run.version + 1,
        state=state,
        attempt_number=number if run.sticky else run.attempt_number,
        next_turn=TurnOrder(kind=TurnKind.REPLY, attempt_number=number, interaction_id=closed.interaction_id),
        pending_interaction=None,
        closed_interaction=closed.closing,
        wait_deadline_at=None,
        permissions=None if run.permissions is None else run.permissions.after(closed),
        updated_at=at,
    )
    events: tuple[NewEvent, ...] = (event_factory.closed(closed, at), event_factory.moved(run.state, state, at))
    if run.sticky:
        events = (*events, event_factory.turn_started(continued, at))
    return Decision(run=continued, events=events, closed=closed)


def _pending(run: Run, interaction_id: str) -> Interaction | Refusal:
    pending = run.pending_interaction
    if run.state is not RunState.WAITING_USER or pending is None:
        return Refusal(
            code=RefusalCode.INTERACTION_NOT_PENDING,
            message=f"run {run.id} has no pending question; its state is {run.state}",
        )
    if run.cancel_requested:
        return Refusal(code=RefusalCode.INTERACTION_NOT_PENDING, message=f"run {run.id} is being canceled")
    if pending.interaction_id != interaction_id:
        return Refusal(
            code=RefusalCode.INTERACTION_NOT_PENDING,
            message=f"question {interaction_id!r} of run {run.id} is not pending; {pending.interaction_id!r} is",
        )
    return pending


def lose_process(run: Run, signal: ProcessLost) -> Decision | Refusal:
    if run.state is not RunState.WAITING_USER or not run.sticky or run.epoch != signal.epoch:
        return stale(run)
    if run.cancel_requested or run.expired:
        return finish_held(run, signal.at)
    lost = run.evolve(version=run.version + 1, updated_at=signal.at)
    error = signal.error or process_lost()
    return finish(lost, RunState.FAILED, signal.at, (), error=error, interaction=InteractionOutcome.ABANDONED)
