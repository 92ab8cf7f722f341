"""What `lifecycle.decide` may return, and the endings that several signals share. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from askback.core import event_factory
from askback.core.access import AuditEntry
from askback.core.actors import ASKBACK
from askback.core.errors import ErrorCode, RefusalCode, RunError
from askback.core.events import NewEvent
from askback.core.interactions import Interaction, InteractionOutcome, Json
from askback.core.runs import Run, RunState, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The new run, and what is stored with it in one transaction."""

    run: Run
    events: tuple[NewEvent, ...] = ()
    asked: Interaction | None = None
    closed: Interaction | None = None
    result: Json = None
    usage: Usage | None = None
    """What the turn has used that has just ended."""
    audit: AuditEntry | None = None
    """If somebody wrote it, the entry in the audit log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """The signal is accepted and changes nothing."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    code: RefusalCode
    message: str


def finish(
    run: Run,
    state: RunState,
    at: datetime,
    events: tuple[NewEvent, ...],
    *,
    error: RunError | None = None,
    result: Json = None,
    interaction: InteractionOutcome | None = None,
) -> Decision:
    """End the run, and close its pending question with the outcome `interaction`. `run` already has its new version."""
    closed = None
    if run.pending_interaction is not None and interaction is not None:
        by = run.canceled_by if interaction is InteractionOutcome.CANCELED else ASKBACK
        closed = replace(run.pending_interaction, outcome=interaction, answered_at=at, answered_with=by)
        events = (*events, event_factory.closed(closed, at))
    done = run.evolve(
        state=state,
        error=error,
        worker=None,
        process=None,
        pending_interaction=None,
        closed_interaction=run.closed_interaction if closed is None else closed.closing,
        wait_deadline_at=None,
        finished_at=at,
    )
    events = (*events, event_factory.moved(run.state, state, at, error))
    return Decision(run=done, events=events, closed=closed, result=result)


def finish_held(run: Run, at: datetime) -> Decision:
    """End a canceled or expired run whose processes have ended. A cancel takes precedence over a deadline."""
    gone = run.evolve(version=run.version + 1, updated_at=at)
    if run.cancel_requested:
        return finish(gone, RunState.CANCELED, at, (), interaction=InteractionOutcome.CANCELED)
    return finish(gone, RunState.FAILED, at, (), error=run.error)


def process_lost() -> RunError:
    return RunError(
        code=ErrorCode.INTERACTION_PROCESS_LOST, message="the engine's process ended while the run needed it"
    )


def stale(run: Run) -> Refusal:
    return Refusal(
        code=RefusalCode.RUN_STALE,
        message=f"run {run.id} is {run.state} (epoch {run.epoch}); the worker that sent this signal no longer holds it",
    )


def unsuitable(run: Run, what: str) -> Refusal:
    return Refusal(code=RefusalCode.STATE_UNSUITABLE, message=f"run {run.id} is {run.state}: it cannot {what}")
