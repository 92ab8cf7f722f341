"""The one chooser of states: `decide(run, signal)` says what a run becomes, and no other code names a target state.

Pure: the clock, the store and the processes are the caller's. A signal that does not fit the run's state, or
comes from a worker that no longer holds it, is refused and changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, assert_never

from askback.core import journal
from askback.core.errors import ErrorCode, RefusalCode, RunError, RunWarning, WarningCode
from askback.core.events import EventType, NewEvent
from askback.core.interactions import AnsweredBy, Interaction, InteractionOutcome, Json, Question
from askback.core.outcomes import AskUser, Final, TurnError, TurnOutcome
from askback.core.runs import Handle, Mode, Run, RunState, TurnKind, TurnOrder, Usage
from askback.core.signals import (
    Adopted,
    CancelRequested,
    DeadlinePassed,
    HandleNamed,
    ProcessLost,
    ProcessStarted,
    Replied,
    Signal,
    SlotAcquired,
    TreeGone,
    TurnEnded,
    TurnLost,
)

MAX_TAKE_UPS = 3
"""How often a turn that was cut off is started again after its first start."""

_INTERACTION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


# Answers: what `decide` may say.


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The run as it becomes, and what is stored with it in one transaction."""

    run: Run
    events: tuple[NewEvent, ...] = ()
    asked: Interaction | None = None
    closed: Interaction | None = None
    result: Json = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """The signal is in order and changes nothing."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    code: RefusalCode
    message: str


def create(run: Run, request: Mapping[str, Any]) -> Decision:
    """The first decision of a run's life: it is queued."""
    created = NewEvent(type=EventType.RUN_CREATED, at=run.created_at, data=dict(request))
    return Decision(run=run, events=(created, journal.moved(None, RunState.QUEUED, run.created_at)))


def decide(run: Run, signal: Signal) -> Decision | Stay | Refusal:
    match signal:
        case SlotAcquired():
            return _start(run, signal)
        case ProcessStarted() | HandleNamed():
            return _note(run, signal)
        case TurnEnded():
            return _end_turn(run, signal)
        case Replied():
            return _reply(run, signal)
        case DeadlinePassed():
            return _pass_deadline(run, signal)
        case CancelRequested():
            return _ask_to_cancel(run, signal)
        case TreeGone():
            return _end_without_tree(run, signal)
        case TurnLost():
            return _take_up(run, signal)
        case ProcessLost():
            return _lose_process(run, signal)
        case Adopted():
            return _adopt(run, signal)
        case _:
            assert_never(signal)


# Starting and noting.


def _start(run: Run, signal: SlotAcquired) -> Decision | Refusal:
    if run.state is not RunState.QUEUED:
        return _unsuitable(run, "start a turn")
    started = run.evolve(
        version=run.version + 1,
        epoch=run.epoch + 1,
        state=RunState.RUNNING,
        worker=signal.worker,
        process=None,
        attempt_number=run.next_turn.attempt_number,
        started_at=run.started_at or signal.at,
        updated_at=signal.at,
    )
    events = (journal.moved(run.state, RunState.RUNNING, signal.at), journal.turn_started(started, signal.at))
    return Decision(run=started, events=events)


def _note(run: Run, signal: ProcessStarted | HandleNamed) -> Decision | Stay | Refusal:
    if run.state is not RunState.RUNNING or run.epoch != signal.epoch:
        return _stale(run)
    if isinstance(signal, ProcessStarted):
        return Decision(run=run.evolve(version=run.version + 1, process=signal.process, updated_at=signal.at))
    if run.handle is not None:
        same = run.handle.handle_value == signal.handle.handle_value
        return Stay(reason="the handle is known") if same else _unsuitable(run, "take another session's handle")
    return Decision(run=run.evolve(version=run.version + 1, handle=signal.handle, updated_at=signal.at))


# The end of a turn.


def _end_turn(run: Run, signal: TurnEnded) -> Decision | Refusal:
    if run.state is not RunState.RUNNING or run.epoch != signal.epoch:
        return _stale(run)
    warnings = (*signal.warnings, *_warnings_of(signal.outcome))
    usage = run.usage if signal.usage is None else (run.usage or Usage()) + signal.usage
    ended = run.evolve(
        version=run.version + 1,
        take_ups=0,
        process=run.process if run.sticky else None,
        usage=usage,
        warnings=_merge(run.warnings, warnings),
        updated_at=signal.at,
    )
    events = journal.turn_ended(run, signal, warnings)
    if run.cancel_requested:
        return _end_canceled(ended, signal.at, events)
    match signal.outcome:
        case Final():
            return _end_final(ended, signal.outcome, signal.at, events)
        case AskUser():
            return _end_asking(ended, signal.outcome.question, signal.at, events)
        case TurnError():
            return _finish(ended, RunState.FAILED, signal.at, events, error=signal.outcome.error)
        case _:
            assert_never(signal.outcome)


def _end_canceled(run: Run, at: datetime, events: tuple[NewEvent, ...]) -> Decision:
    """A sticky run's process outlives its turn; the run is canceled only when `TreeGone` says that nothing lives."""
    return Decision(run=run, events=events) if run.sticky else _finish(run, RunState.CANCELED, at, events)


def _end_final(run: Run, final: Final, at: datetime, events: tuple[NewEvent, ...]) -> Decision:
    if final.problems:
        return _repair(run, final.problems, at, events)
    if run.mode is Mode.INTERACTIVE and not final.done:
        warning = RunWarning(
            code=WarningCode.INTERACTIVE_COMPLETED_WITHOUT_DONE_MARKER,
            message="the output passed its schema, but the engine did not say that it was done",
        )
        run = run.evolve(warnings=_merge(run.warnings, (warning,)))
        events = (*events, journal.warned(warning, at))
    return _finish(run, RunState.SUCCEEDED, at, events, result=final.data)


def _repair(run: Run, problems: tuple[str, ...], at: datetime, events: tuple[NewEvent, ...]) -> Decision:
    """The next turn tells the engine what is wrong. The run keeps its slot and stays `running`."""
    resumable = run.handle is not None or run.sticky
    if run.repairs >= run.options.repair_attempts or not resumable or _at_max_attempt(run):
        error = RunError(
            code=ErrorCode.OUTPUT_SCHEMA_INVALID,
            message="the output does not pass its schema: " + "; ".join(problems),
        )
        return _finish(run, RunState.FAILED, at, events, error=error)
    number = run.attempt_number + 1
    repairing = run.evolve(
        repairs=run.repairs + 1,
        attempt_number=number,
        next_turn=TurnOrder(kind=TurnKind.REPAIR, attempt_number=number, problems=problems),
    )
    return Decision(run=repairing, events=(*events, journal.turn_started(repairing, at)))


def _end_asking(run: Run, question: Question, at: datetime, events: tuple[NewEvent, ...]) -> Decision:
    if run.mode is Mode.AUTO:
        return _repair(run, ("output: the turn asked a question instead of finishing",), at, events)
    if _at_max_attempt(run):
        error = RunError(
            code=ErrorCode.INTERACTIVE_MAX_ATTEMPT_EXCEEDED,
            message=f"turn {run.attempt_number} of at most {run.max_attempt} ended without a result",
        )
        return _finish(run, RunState.FAILED, at, events, error=error)
    if run.handle is None and not run.sticky:
        error = RunError(
            code=ErrorCode.SESSION_RESUME_FAILED,
            message="the engine asked a question but named no session to go on with",
        )
        return _finish(run, RunState.FAILED, at, events, error=error)
    interaction = _interaction(run, question, at)
    waiting = run.evolve(
        state=RunState.WAITING_USER,
        repairs=0,
        worker=run.worker if run.sticky else None,
        pending_interaction=interaction,
        interaction_ids=(*run.interaction_ids, interaction.interaction_id),
        wait_deadline_at=_deadline(run, at),
    )
    return Decision(
        run=waiting,
        events=(*events, journal.asked(interaction, at), journal.moved(run.state, waiting.state, at)),
        asked=interaction,
    )


def _deadline(run: Run, at: datetime) -> datetime | None:
    """A sticky wait always ends; a resumable one only where it is to be decided automatically."""
    if run.sticky or not run.options.interactive_require_user_reply:
        return at + timedelta(seconds=run.profile.session_timeout_sec)
    return None


def _interaction(run: Run, question: Question, at: datetime) -> Interaction:
    return Interaction(
        interaction_id=_interaction_id(run, question.interaction_id),
        kind=question.kind,
        prompt=question.prompt,
        attempt_number=run.attempt_number,
        asked_at=at,
        options=question.options,
        default=question.default,
        response_schema=None if question.response_schema is None else dict(question.response_schema),
        context=question.context,
    )


def _interaction_id(run: Run, wanted: str | None) -> str:
    """The engine's own id if it is well-formed and new in the run, else one of ours."""
    if wanted and _INTERACTION_ID.fullmatch(wanted) and wanted not in run.interaction_ids:
        return wanted
    ours = f"question-{run.attempt_number}"
    while ours in run.interaction_ids:
        ours += "x"
    return ours


# The end of a wait.


def _reply(run: Run, signal: Replied) -> Decision | Refusal:
    pending = _pending(run, signal.interaction_id)
    if isinstance(pending, Refusal):
        return pending
    closed = replace(
        pending,
        outcome=InteractionOutcome.ANSWERED,
        response=signal.response,
        answered_by=AnsweredBy.USER,
        answered_at=signal.at,
    )
    return _go_on(run.evolve(keeper=signal.keeper), closed, signal.at)


def _pass_deadline(run: Run, signal: DeadlinePassed) -> Decision | Stay | Refusal:
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
        )
        return _go_on(run, closed, signal.at)
    return _expire(run, pending, signal.at)


def _expire(run: Run, pending: Interaction, at: datetime) -> Decision:
    """No answer is taken any more. The run fails only when `TreeGone` says that nothing of its process lives."""
    closed = replace(pending, outcome=InteractionOutcome.EXPIRED, answered_at=at)
    error = RunError(
        code=ErrorCode.INTERACTION_WAIT_TIMEOUT,
        message=f"no reply within {run.profile.session_timeout_sec:g} s; the engine's process was ended",
    )
    expired = run.evolve(
        version=run.version + 1, error=error, pending_interaction=None, wait_deadline_at=None, updated_at=at
    )
    return Decision(run=expired, events=(journal.closed(closed, at),), closed=closed)


def _go_on(run: Run, closed: Interaction, at: datetime) -> Decision:
    """Resumable runs queue for a slot; a sticky one runs on in its own process."""
    number = run.attempt_number + 1
    state = RunState.RUNNING if run.sticky else RunState.QUEUED
    going = run.evolve(
        version=run.version + 1,
        state=state,
        attempt_number=number if run.sticky else run.attempt_number,
        next_turn=TurnOrder(kind=TurnKind.REPLY, attempt_number=number, interaction_id=closed.interaction_id),
        pending_interaction=None,
        wait_deadline_at=None,
        updated_at=at,
    )
    events: tuple[NewEvent, ...] = (journal.closed(closed, at), journal.moved(run.state, state, at))
    if run.sticky:
        events = (*events, journal.turn_started(going, at))
    return Decision(run=going, events=events, closed=closed)


def _pending(run: Run, interaction_id: str) -> Interaction | Refusal:
    pending = run.pending_interaction
    if run.state is not RunState.WAITING_USER or pending is None:
        return Refusal(
            code=RefusalCode.INTERACTION_NOT_PENDING,
            message=f"run {run.id} is {run.state}: no question of it is waiting for an answer",
        )
    if run.cancel_requested:
        return Refusal(code=RefusalCode.INTERACTION_NOT_PENDING, message=f"run {run.id} is being canceled")
    if pending.interaction_id != interaction_id:
        return Refusal(
            code=RefusalCode.INTERACTION_NOT_PENDING,
            message=f"question {interaction_id!r} of run {run.id} is not pending; {pending.interaction_id!r} is",
        )
    return pending


# Cancel, loss and recovery.


def _ask_to_cancel(run: Run, signal: CancelRequested) -> Decision | Stay | Refusal:
    if run.state.final:
        return Refusal(code=RefusalCode.RUN_FINAL, message=f"run {run.id} is {run.state} already")
    if run.cancel_requested:
        return Stay(reason="the run is being canceled")
    asked = run.evolve(version=run.version + 1, cancel_requested_at=signal.at, updated_at=signal.at)
    holds_process = run.state is RunState.RUNNING or (run.state is RunState.WAITING_USER and run.sticky)
    if holds_process:
        return Decision(run=asked)
    return _finish(asked, RunState.CANCELED, signal.at, (), interaction=InteractionOutcome.CANCELED)


def _end_without_tree(run: Run, signal: TreeGone) -> Decision | Refusal:
    held = run.state in (RunState.RUNNING, RunState.WAITING_USER)
    if not held or run.epoch != signal.epoch or not (run.cancel_requested or run.expired):
        return _stale(run)
    return _finish_held(run, signal.at)


def _finish_held(run: Run, at: datetime) -> Decision:
    """What a run that was to be ended becomes once nothing of it lives: a cancel outranks a deadline."""
    gone = run.evolve(version=run.version + 1, updated_at=at)
    if run.cancel_requested:
        return _finish(gone, RunState.CANCELED, at, (), interaction=InteractionOutcome.CANCELED)
    return _finish(gone, RunState.FAILED, at, (), error=run.error)


def _take_up(run: Run, signal: TurnLost) -> Decision | Refusal:
    if run.state is not RunState.RUNNING or run.epoch != signal.epoch:
        return _stale(run)
    take_ups = run.take_ups + signal.counted
    lost = run.evolve(
        version=run.version + 1,
        take_ups=take_ups,
        worker=None,
        process=None,
        handle=_handle_before_turn(run),
        updated_at=signal.at,
    )
    if run.cancel_requested:
        return _finish(lost, RunState.CANCELED, signal.at, ())
    interrupted = journal.turn_interrupted(lost, signal.at)
    if run.sticky and run.next_turn.kind is not TurnKind.START:
        return _finish(lost, RunState.FAILED, signal.at, (interrupted,), error=_process_lost_error())
    if take_ups > MAX_TAKE_UPS:
        error = RunError(
            code=ErrorCode.ORCHESTRATOR_RESTART_INTERRUPTED,
            message=f"turn {run.attempt_number} was cut off {take_ups} times; it is not started again",
        )
        return _finish(lost, RunState.FAILED, signal.at, (interrupted,), error=error)
    queued = lost.evolve(state=RunState.QUEUED)
    return Decision(run=queued, events=(interrupted, journal.moved(run.state, queued.state, signal.at)))


def _handle_before_turn(run: Run) -> Handle | None:
    """A session that began in the lost turn is given up with it: the turn starts again from before it."""
    named_here = run.handle is not None and run.handle.created_at_turn == run.attempt_number
    return None if named_here else run.handle


def _lose_process(run: Run, signal: ProcessLost) -> Decision | Refusal:
    if run.state is not RunState.WAITING_USER or not run.sticky or run.epoch != signal.epoch:
        return _stale(run)
    if run.cancel_requested or run.expired:
        return _finish_held(run, signal.at)
    lost = run.evolve(version=run.version + 1, updated_at=signal.at)
    return _finish(
        lost, RunState.FAILED, signal.at, (), error=_process_lost_error(), interaction=InteractionOutcome.EXPIRED
    )


def _process_lost_error() -> RunError:
    return RunError(
        code=ErrorCode.INTERACTION_PROCESS_LOST, message="the engine's process ended while the run needed it"
    )


def _adopt(run: Run, signal: Adopted) -> Decision | Stay | Refusal:
    if run.state.final:
        return Refusal(code=RefusalCode.RUN_FINAL, message=f"run {run.id} is {run.state} already")
    if run.keeper == signal.keeper:
        return Stay(reason="the run has that keeper")
    return Decision(run=run.evolve(version=run.version + 1, keeper=signal.keeper, updated_at=signal.at))


# Shared by several of the above.


def _finish(
    run: Run,
    state: RunState,
    at: datetime,
    events: tuple[NewEvent, ...],
    *,
    error: RunError | None = None,
    result: Json = None,
    interaction: InteractionOutcome | None = None,
) -> Decision:
    """The run is over; a question that is still open ends with it. `run` has its new version already."""
    closed = None
    if run.pending_interaction is not None and interaction is not None:
        closed = replace(run.pending_interaction, outcome=interaction, answered_at=at)
        events = (*events, journal.closed(closed, at))
    done = run.evolve(
        state=state,
        error=error,
        worker=None,
        process=None,
        pending_interaction=None,
        wait_deadline_at=None,
        finished_at=at,
    )
    events = (*events, journal.moved(run.state, state, at, error))
    return Decision(run=done, events=events, closed=closed, result=result)


def _at_max_attempt(run: Run) -> bool:
    return run.max_attempt is not None and run.attempt_number >= run.max_attempt


def _merge(old: tuple[RunWarning, ...], new: tuple[RunWarning, ...]) -> tuple[RunWarning, ...]:
    merged = list(old)
    for warning in new:
        if warning not in merged:
            merged.append(warning)
    return tuple(merged)


def _warnings_of(outcome: TurnOutcome) -> tuple[RunWarning, ...]:
    return () if isinstance(outcome, TurnError) else outcome.warnings


def _stale(run: Run) -> Refusal:
    return Refusal(
        code=RefusalCode.RUN_STALE, message=f"run {run.id} is {run.state} (epoch {run.epoch}) and was not yours to move"
    )


def _unsuitable(run: Run, what: str) -> Refusal:
    return Refusal(code=RefusalCode.STATE_UNSUITABLE, message=f"run {run.id} is {run.state}: it cannot {what}")
