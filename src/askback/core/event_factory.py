"""The events of a run's changes, one function for each."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any, assert_never

from askback.core.actors import Actor
from askback.core.errors import RunError, RunWarning
from askback.core.events import EventType, NewEvent
from askback.core.interactions import Interaction
from askback.core.outcomes import AskUser, Final, TurnError, TurnOutcome
from askback.core.runs import Parking, Run, RunState
from askback.core.signals import CallDecided, TurnEnded, TurnProcess


def moved(old: RunState | None, new: RunState, at: datetime, error: RunError | None = None) -> NewEvent:
    data: dict[str, Any] = {"from": old, "to": new}
    if error is not None:
        data["error"] = asdict(error)
    return NewEvent(type=EventType.RUN_STATE, at=at, data=data)


def warned(warning: RunWarning, at: datetime) -> NewEvent:
    return NewEvent(type=EventType.RUN_WARNING, at=at, data={"code": warning.code, "message": warning.message})


def turn_started(run: Run, at: datetime) -> NewEvent:
    data = {
        "attempt_number": run.attempt_number,
        "kind": "continue" if run.next_turn.continues else run.next_turn.kind,
        "restarts": run.restarts,
        "worker": run.worker,
    }
    return NewEvent(type=EventType.TURN_STARTED, at=at, data=data)


def parked(run: Run, parking: Parking, at: datetime) -> NewEvent:
    data = {"limit": asdict(parking.limit), "not_before": parking.not_before, "times": parking.times}
    return NewEvent(type=EventType.RUN_PARKED, at=at, data={"attempt_number": run.attempt_number, **data})


def resumed(by: Actor | None, at: datetime) -> NewEvent:
    return NewEvent(type=EventType.RUN_RESUMED, at=at, data={"by": None if by is None else asdict(by)})


def turn_claimed(run: Run, at: datetime, process: TurnProcess) -> NewEvent:
    """The start of a turn that took a slot."""
    started = turn_started(run, at)
    return NewEvent(type=started.type, at=at, data={**started.data, "process": process})


def turn_ended(run: Run, signal: TurnEnded, warnings: tuple[RunWarning, ...]) -> tuple[NewEvent, ...]:
    events = [warned(warning, signal.at) for warning in warnings]
    if signal.usage is not None:
        data = {"attempt_number": run.attempt_number, **asdict(signal.usage)}
        events.append(NewEvent(type=EventType.USAGE, at=signal.at, data=data))
    ended = {"attempt_number": run.attempt_number, "outcome": outcome_name(signal.outcome)}
    events.append(NewEvent(type=EventType.TURN_ENDED, at=signal.at, data=ended))
    return tuple(events)


def turn_interrupted(run: Run, at: datetime) -> NewEvent:
    data = {"attempt_number": run.attempt_number, "outcome": "interrupted", "restarts": run.restarts}
    return NewEvent(type=EventType.TURN_ENDED, at=at, data=data)


def outcome_name(outcome: TurnOutcome) -> str:
    match outcome:
        case Final():
            return "final"
        case AskUser():
            return "ask_user"
        case TurnError():
            return "error"
        case _:
            assert_never(outcome)


def call_decided(run: Run, signal: CallDecided) -> NewEvent:
    """Without the input of the call, which may be large or secret."""
    data = {
        "attempt_number": run.attempt_number,
        "tool": signal.tool,
        "digest": signal.digest,
        "decision": signal.decision,
        "rule": signal.rule,
    }
    return NewEvent(type=EventType.PERMISSION_DECIDED, at=signal.at, data=data)


def asked(interaction: Interaction, at: datetime) -> NewEvent:
    data = {
        "interaction_id": interaction.interaction_id,
        "attempt_number": interaction.attempt_number,
        "kind": interaction.kind,
        "prompt": interaction.prompt,
        "options": list(interaction.options),
        "default": interaction.default,
        "response_schema": interaction.response_schema,
        "context": interaction.context,
    }
    if interaction.questions:
        data["questions"] = [asdict(field) for field in interaction.questions]
    return NewEvent(type=EventType.INTERACTION_ASKED, at=at, data=data)


def expiring(interaction: Interaction, deadline: datetime, at: datetime) -> NewEvent:
    data = {"interaction_id": interaction.interaction_id, "deadline_at": deadline}
    return NewEvent(type=EventType.INTERACTION_EXPIRING, at=at, data=data)


def closed(interaction: Interaction, at: datetime) -> NewEvent:
    data = {
        "interaction_id": interaction.interaction_id,
        "outcome": interaction.outcome,
        "answered_by": interaction.answered_by,
        "answered_with": None if interaction.answered_with is None else asdict(interaction.answered_with),
        "response": interaction.shown_response,
    }
    return NewEvent(type=EventType.INTERACTION_CLOSED, at=at, data=data)
