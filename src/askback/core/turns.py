"""The part of `lifecycle.decide` for the signals of a turn: start, process and handle, end, interruption. Pure."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta
from typing import assert_never

from askback.core import event_factory, parking
from askback.core.decisions import Decision, Refusal, Stay, finish, process_lost, stale, unsuitable
from askback.core.errors import ErrorCode, RunError, RunWarning, WarningCode
from askback.core.events import NewEvent
from askback.core.interactions import APPROVAL, FORM, Interaction, Question, complete_fields, form_default, form_schema
from askback.core.outcomes import AskUser, Final, TurnError, TurnOutcome
from askback.core.runs import Mode, OnLostSession, Run, RunState, TurnKind, TurnOrder
from askback.core.signals import CallDecided, HandleNamed, ProcessStarted, SlotAcquired, TurnEnded, TurnLost

MAX_RESTARTS = 3
"""How often an interrupted turn is restarted."""

_ASKED = ("output: the turn asked a question instead of finishing",)
_LOST = (None, ErrorCode.ENGINE_CRASHED)
"""Causes of a failed resume with which the session counts as lost. Others, such as a rate limit, are not about it."""
_INTERACTION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


def start(run: Run, signal: SlotAcquired) -> Decision | Refusal:
    if not run.in_queue:
        return unsuitable(run, "start a turn")
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
    events = (
        event_factory.moved(run.state, RunState.RUNNING, signal.at),
        event_factory.turn_claimed(started, signal.at, signal.process),
    )
    return Decision(run=started, events=events)


def record(run: Run, signal: ProcessStarted | HandleNamed) -> Decision | Stay | Refusal:
    if run.state is not RunState.RUNNING or run.epoch != signal.epoch:
        return stale(run)
    if isinstance(signal, ProcessStarted):
        return Decision(run=run.evolve(version=run.version + 1, process=signal.process, updated_at=signal.at))
    if run.handle is not None:
        same = run.handle.handle_value == signal.handle.handle_value
        return Stay(reason="the handle is known") if same else unsuitable(run, "take another session's handle")
    process = signal.process or run.process
    return Decision(
        run=run.evolve(version=run.version + 1, handle=signal.handle, process=process, updated_at=signal.at)
    )


def record_call(run: Run, signal: CallDecided) -> Decision | Refusal:
    """A decision of the gate. An approval is used up once, whatever becomes of the process."""
    if run.state is not RunState.RUNNING or run.epoch != signal.epoch or run.permissions is None:
        return stale(run)
    permissions, answered = run.permissions, run.permissions.answered
    if signal.uses_approval:
        if answered is None or answered.digest != signal.digest or not answered.approved or answered.started:
            return unsuitable(run, "make a call of which the approval is used up")
        permissions = replace(permissions, answered=replace(answered, started=True))
    decided = run.evolve(version=run.version + 1, permissions=permissions, updated_at=signal.at)
    return Decision(run=decided, events=(event_factory.call_decided(run, signal),))


# The end of a turn.


def end_turn(run: Run, signal: TurnEnded) -> Decision | Refusal:
    decision = _end_turn(run, signal)
    return replace(decision, usage=signal.usage) if isinstance(decision, Decision) else decision


def _end_turn(run: Run, signal: TurnEnded) -> Decision | Refusal:
    if run.state is not RunState.RUNNING or run.epoch != signal.epoch:
        return stale(run)
    of_outcome = () if isinstance(signal.outcome, TurnError) else signal.outcome.warnings
    warnings = (*signal.warnings, *of_outcome)
    usage = run.usage if signal.usage is None else signal.usage
    if run.usage is not None and signal.usage is not None:
        usage = run.usage + signal.usage
    ended = run.evolve(
        version=run.version + 1,
        restarts=0,
        process=run.process if run.sticky or (run.cancel_requested and signal.process_alive) else None,
        kept=signal.archive_key,
        usage=usage,
        warnings=merge_warnings(run.warnings, warnings),
        updated_at=signal.at,
    )
    events = event_factory.turn_ended(run, signal, warnings)
    outcome, at = signal.outcome, signal.at
    if run.cancel_requested:
        if run.sticky or signal.process_alive:
            # The run is canceled when its process has ended: see `ProcessTreeEnded`.
            return Decision(run=ended, events=events)
        return finish(ended, RunState.CANCELED, at, events)
    if (parked := parking.plan(run, signal)) is not None:
        return parking.park(ended, signal, parked, events)
    ended = ended.evolve(parking=None)
    if (error := _fatal(ended, outcome)) is not None:
        return finish(ended, RunState.FAILED, at, events, error=error)
    match outcome:
        case Final():
            return (
                _repair(ended, outcome.problems, at, events)
                if outcome.problems
                else _succeed(ended, outcome, at, events)
            )
        case AskUser():
            if run.mode is Mode.AUTO:
                return _repair(ended, _ASKED, at, events)
            return _wait(ended, outcome.question, at, events)
        case TurnError(error=lost):
            return _rebuild(ended, lost, at, events)
        case _:
            assert_never(outcome)


def ends_run(run: Run, signal: TurnEnded) -> bool:
    """Whether the turn is the run's last."""
    if parking.plan(run, signal) is not None:
        return False
    outcome = signal.outcome
    succeeded = isinstance(outcome, Final) and not outcome.problems
    return succeeded or _fatal(run, outcome) is not None


def is_repeated(run: Run, signal: TurnEnded) -> bool:
    """Whether the turn is executed again as if it had not begun, because it met a limit."""
    return parking.plan(run, signal) is not None and parking.repeats(run, signal)


def _fatal(run: Run, outcome: TurnOutcome) -> RunError | None:
    """The error with which this outcome ends the run: its own, or that no further turn is possible."""
    match outcome:
        case TurnError(error=error):
            return None if _may_rebuild(run, error) else error
        case Final(problems=problems):
            return _no_repair(run, problems) if problems else None
        case AskUser():
            return _no_repair(run, _ASKED) if run.mode is Mode.AUTO else _no_wait(run)
        case _:
            assert_never(outcome)


def _may_rebuild(run: Run, error: RunError) -> bool:
    """Whether a new session may replace the one that this turn could not resume. Tried once for each question.

    Our transcript of a run that continues another one is incomplete.
    """
    lost = error.code is ErrorCode.SESSION_RESUME_FAILED and error.cause in _LOST
    resumed = run.handle is not None and run.handle.created_at_turn < run.attempt_number and not run.sticky
    allowed = run.options.on_lost_session is OnLostSession.REBUILD and run.rebuilds == 0
    return lost and resumed and allowed and not run.continues_session and not _at_max_attempt(run)


def _no_repair(run: Run, problems: tuple[str, ...]) -> RunError | None:
    resumable = run.handle is not None or run.sticky
    if run.repairs < run.options.repair_attempts and resumable and not _at_max_attempt(run):
        return None
    return RunError(
        code=ErrorCode.OUTPUT_SCHEMA_INVALID, message="the output does not pass its schema: " + "; ".join(problems)
    )


def _no_wait(run: Run) -> RunError | None:
    if _at_max_attempt(run):
        return RunError(
            code=ErrorCode.INTERACTIVE_MAX_ATTEMPT_EXCEEDED,
            message=f"turn {run.attempt_number} of at most {run.max_attempt} ended without a result",
        )
    if run.handle is None and not run.sticky:
        return RunError(
            code=ErrorCode.SESSION_RESUME_FAILED,
            message="the engine asked a question but named no session to resume",
        )
    return None


def _succeed(run: Run, final: Final, at: datetime, events: tuple[NewEvent, ...]) -> Decision:
    if run.mode is Mode.INTERACTIVE and not final.done:
        warning = RunWarning(
            code=WarningCode.INTERACTIVE_COMPLETED_WITHOUT_DONE_MARKER,
            message="the output passed its schema, but the engine did not say that it was done",
        )
        run = run.evolve(warnings=merge_warnings(run.warnings, (warning,)))
        events = (*events, event_factory.warned(warning, at))
    return finish(run, RunState.SUCCEEDED, at, events, result=final.data)


def _repair(run: Run, problems: tuple[str, ...], at: datetime, events: tuple[NewEvent, ...]) -> Decision:
    """The next turn tells the engine what is wrong. The run keeps its slot and stays `running`."""
    number = run.attempt_number + 1
    repairing = run.evolve(
        repairs=run.repairs + 1,
        attempt_number=number,
        next_turn=TurnOrder(kind=TurnKind.REPAIR, attempt_number=number, problems=problems),
    )
    return Decision(run=repairing, events=(*events, event_factory.turn_started(repairing, at)))


def _rebuild(run: Run, error: RunError, at: datetime, events: tuple[NewEvent, ...]) -> Decision:
    """The next turn starts a new session from our transcript. The run keeps its slot and stays `running`."""
    number = run.attempt_number + 1
    message = (
        f"turn {run.attempt_number} could not resume the session ({error.message}); "
        f"turn {number} starts a new one with the questions and answers so far"
    )
    warning = RunWarning(code=WarningCode.CONTEXT_REBUILT, message=message)
    rebuilding = run.evolve(
        rebuilds=run.rebuilds + 1,
        attempt_number=number,
        next_turn=replace(run.next_turn, kind=TurnKind.REBUILD, attempt_number=number),
        handle=None,
        usage_before=None,
        usage_lost=run.usage,
        warnings=merge_warnings(run.warnings, (warning,)),
    )
    started = event_factory.turn_started(rebuilding, at)
    return Decision(run=rebuilding, events=(*events, event_factory.warned(warning, at), started))


def _wait(run: Run, question: Question, at: datetime, events: tuple[NewEvent, ...]) -> Decision:
    interaction = _interaction(run, question, at)
    waiting = run.evolve(
        state=RunState.WAITING_USER,
        repairs=0,
        rebuilds=0,
        worker=run.worker if run.sticky else None,
        pending_interaction=interaction,
        interaction_ids=(*run.interaction_ids, interaction.interaction_id),
        wait_deadline_at=deadline(run, at),
    )
    return Decision(
        run=waiting,
        events=(*events, event_factory.asked(interaction, at), event_factory.moved(run.state, waiting.state, at)),
        asked=interaction,
    )


def deadline(run: Run, at: datetime) -> datetime | None:
    """A sticky wait always has a deadline; a resumable one only if it is decided automatically."""
    if run.sticky or not run.options.interactive_require_user_reply:
        return at + timedelta(seconds=run.profile.session_timeout_sec)
    return None


def _interaction(run: Run, question: Question, at: datetime) -> Interaction:
    interaction = Interaction(
        interaction_id=_interaction_id(run, question.interaction_id),
        kind=question.kind if question.approval or question.kind != APPROVAL else "text",
        prompt=question.prompt,
        attempt_number=run.attempt_number,
        asked_at=at,
        options=question.options,
        default=question.default,
        response_schema=None if question.response_schema is None else dict(question.response_schema),
        context=question.context,
    )
    if not question.questions:
        return interaction
    fields = complete_fields(question.questions)
    schema, default = form_schema(fields), form_default(fields)
    return replace(interaction, kind=FORM, options=(), questions=fields, response_schema=schema, default=default)


def _interaction_id(run: Run, wanted: str | None) -> str:
    """The engine's own id if it is well-formed and new in the run, else a generated one."""
    if wanted and _INTERACTION_ID.fullmatch(wanted) and wanted not in run.interaction_ids:
        return wanted
    generated = f"question-{run.attempt_number}"
    while generated in run.interaction_ids:
        generated += "x"
    return generated


def _at_max_attempt(run: Run) -> bool:
    return run.max_attempt is not None and run.attempt_number >= run.max_attempt


def merge_warnings(old: tuple[RunWarning, ...], new: tuple[RunWarning, ...]) -> tuple[RunWarning, ...]:
    merged = list(old)
    for warning in new:
        if warning not in merged:
            merged.append(warning)
    return tuple(merged)


# Interrupted turns.


def restart(run: Run, signal: TurnLost) -> Decision | Refusal:
    if run.state is not RunState.RUNNING or run.epoch != signal.epoch:
        return stale(run)
    restarts = run.restarts + signal.counted
    lost = run.evolve(
        version=run.version + 1,
        restarts=restarts,
        worker=None,
        process=None,
        handle=run.handle_before_turn,
        updated_at=signal.at,
    )
    if run.cancel_requested:
        return finish(lost, RunState.CANCELED, signal.at, ())
    interrupted = event_factory.turn_interrupted(lost, signal.at)
    if run.bound_to_process:
        return finish(lost, RunState.FAILED, signal.at, (interrupted,), error=process_lost())
    if restarts > MAX_RESTARTS:
        error = RunError(
            code=ErrorCode.ORCHESTRATOR_RESTART_INTERRUPTED,
            message=f"turn {run.attempt_number} was interrupted {restarts} times, the last time because {signal.why}; "
            "it is not restarted again",
        )
        return finish(lost, RunState.FAILED, signal.at, (interrupted,), error=error)
    repeated = _repeated_in_workdir(run)
    queued = lost.evolve(state=RunState.QUEUED, warnings=merge_warnings(run.warnings, repeated))
    warned = (event_factory.warned(warning, signal.at) for warning in repeated)
    return Decision(run=queued, events=(interrupted, *warned, event_factory.moved(run.state, queued.state, signal.at)))


def _repeated_in_workdir(run: Run) -> tuple[RunWarning, ...]:
    """The user's folder is never rolled back."""
    if run.workdir is None:
        return ()
    message = f"turn {run.attempt_number} was interrupted and is repeated; {run.workdir.path} still has what it changed"
    return (RunWarning(code=WarningCode.WORKDIR_TURN_REPEATED, message=message),)
