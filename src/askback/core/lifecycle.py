"""The only code that chooses states: `decide(run, signal)` returns what a run becomes.

Pure: it uses no clock, store or process; the caller supplies the time. A signal that does not fit the run's state, or comes from
a worker that no longer holds the run, is refused and changes nothing. The signals of turns and waits are in `turns`
and `waits`; those that may come at any time are here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, assert_never

from askback.core import event_factory, parking, turns, waits
from askback.core.decisions import Decision, Refusal, Stay, finish, finish_held, stale, unsuitable
from askback.core.errors import RefusalCode
from askback.core.events import EventType, NewEvent
from askback.core.interactions import Interaction, InteractionOutcome
from askback.core.runs import Run, RunState
from askback.core.signals import (
    Adopted,
    CallDecided,
    CancelRequested,
    DeadlineNear,
    DeadlinePassed,
    FilesStored,
    HandleNamed,
    LimitKnown,
    ParkEnded,
    ProcessLost,
    ProcessStarted,
    ProcessTreeEnded,
    Replied,
    Signal,
    SlotAcquired,
    TurnEnded,
    TurnLost,
)
from askback.core.turns import MAX_RESTARTS

__all__ = ["MAX_RESTARTS", "Decision", "Refusal", "Stay", "create", "decide", "fork"]


def create(run: Run, request: Mapping[str, Any]) -> Decision:
    """The first decision: the run is queued."""
    created = NewEvent(type=EventType.RUN_CREATED, at=run.created_at, data=dict(request))
    return Decision(run=run, events=(created, event_factory.moved(None, RunState.QUEUED, run.created_at)))


def fork(run: Run, request: Mapping[str, Any], question: Interaction) -> Decision:
    """The first decision of a run that starts with a question of another run: it waits."""
    at = run.created_at
    asked = replace(
        question,
        attempt_number=run.attempt_number,
        asked_at=at,
        outcome=InteractionOutcome.PENDING,
        response=None,
        answered_by=None,
        answered_at=None,
        answered_with=None,
    )
    waiting = run.evolve(
        state=RunState.WAITING_USER,
        pending_interaction=asked,
        interaction_ids=(*run.interaction_ids, asked.interaction_id),
        wait_deadline_at=turns.deadline(run, at),
    )
    created = NewEvent(type=EventType.RUN_CREATED, at=at, data=dict(request))
    events = (created, event_factory.asked(asked, at), event_factory.moved(None, waiting.state, at))
    return Decision(run=waiting, events=events, asked=asked)


def decide(run: Run, signal: Signal) -> Decision | Stay | Refusal:
    match signal:
        case SlotAcquired():
            return turns.start(run, signal)
        case ProcessStarted() | HandleNamed():
            return turns.record(run, signal)
        case CallDecided():
            return turns.record_call(run, signal)
        case TurnEnded():
            return turns.end_turn(run, signal)
        case Replied():
            return waits.reply(run, signal)
        case DeadlineNear():
            return waits.announce_deadline(run, signal)
        case DeadlinePassed():
            return waits.pass_deadline(run, signal)
        case LimitKnown():
            return parking.avoid(run, signal)
        case ParkEnded():
            return parking.end(run, signal)
        case CancelRequested():
            return _request_cancel(run, signal)
        case ProcessTreeEnded():
            return _finish_after_exit(run, signal)
        case TurnLost():
            return turns.restart(run, signal)
        case ProcessLost():
            return _completed(waits.lose_process(run, signal), signal)
        case FilesStored():
            return _store_files(run, signal)
        case Adopted():
            return _adopt(run, signal)
        case _:
            assert_never(signal)


def _request_cancel(run: Run, signal: CancelRequested) -> Decision | Stay | Refusal:
    if run.state.final:
        return Refusal(code=RefusalCode.RUN_FINAL, message=f"run {run.id} is {run.state} already")
    if run.cancel_requested:
        return Stay(reason="the run is being canceled")
    asked = run.evolve(
        version=run.version + 1, cancel_requested_at=signal.at, canceled_by=signal.by, updated_at=signal.at
    )
    holds_process = run.state is RunState.RUNNING or (run.state is RunState.WAITING_USER and run.sticky)
    if holds_process:
        return Decision(run=asked)
    return finish(asked, RunState.CANCELED, signal.at, (), interaction=InteractionOutcome.CANCELED)


def _finish_after_exit(run: Run, signal: ProcessTreeEnded) -> Decision | Refusal:
    held = run.state in (RunState.RUNNING, RunState.WAITING_USER)
    if not held or run.epoch != signal.epoch or not (run.cancel_requested or run.expired):
        return stale(run)
    return _completed(finish_held(run, signal.at), signal)


def _completed(decision: Decision | Refusal, signal: ProcessTreeEnded | ProcessLost) -> Decision | Refusal:
    """The same decision, with the warnings and the files of the signal."""
    if isinstance(decision, Refusal):
        return decision
    run = decision.run.evolve(
        warnings=turns.merge_warnings(decision.run.warnings, signal.warnings),
        kept=signal.archive_key or decision.run.kept,
    )
    warned = (event_factory.warned(warning, signal.at) for warning in signal.warnings)
    return replace(decision, run=run, events=(*warned, *decision.events))


def _store_files(run: Run, signal: FilesStored) -> Decision | Stay | Refusal:
    """A run that is being executed is refused: the end of its turn names the archive."""
    if run.state.final or run.state is RunState.RUNNING or (run.state is RunState.WAITING_USER and run.sticky):
        return unsuitable(run, "have its files stored")
    if run.epoch != signal.epoch:
        return stale(run)
    if run.kept is not None:
        return Stay(reason="the run's files are stored already")
    warnings = turns.merge_warnings(run.warnings, signal.warnings)
    kept = run.evolve(version=run.version + 1, kept=signal.archive_key, warnings=warnings, updated_at=signal.at)
    return Decision(run=kept, events=tuple(event_factory.warned(each, signal.at) for each in signal.warnings))


def _adopt(run: Run, signal: Adopted) -> Decision | Stay | Refusal:
    if run.state.final:
        return Refusal(code=RefusalCode.RUN_FINAL, message=f"run {run.id} is {run.state} already")
    if run.owner == signal.owner:
        return Stay(reason="the run already has that owner")
    if run.owner != signal.left_by:
        message = f"another program has taken over run {run.id}; read it again"
        return Refusal(code=RefusalCode.RUN_HELD, message=message)
    return Decision(run=run.evolve(version=run.version + 1, owner=signal.owner, updated_at=signal.at))
