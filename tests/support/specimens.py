"""Runs and signals for the tests of the core, each made by one word."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from askback.core.errors import ErrorCode, RunError
from askback.core.interactions import Interaction, Question
from askback.core.lifecycle import Decision, decide
from askback.core.outcomes import AskUser, Final, TurnError, TurnOutcome
from askback.core.runs import (
    Handle,
    Mode,
    ProcessIdentity,
    Profile,
    ProfileKind,
    Run,
    RunOptions,
    RunState,
    SkillRef,
    TurnKind,
    TurnOrder,
)
from askback.core.signals import Signal, TurnEnded

CREATED = datetime(2026, 1, 1, tzinfo=UTC)
NOW = CREATED + timedelta(hours=1)
SESSION_TIMEOUT_SEC = 1200
EPOCH = 3
OWNER = "owner"

HANDLE = Handle(engine="scripted", handle_type="session_id", handle_value="s-1", created_at_turn=1)
OTHER_HANDLE = Handle(engine="scripted", handle_type="session_id", handle_value="s-2", created_at_turn=1)
PROCESS = ProcessIdentity(pid=41, start_ticks=1000, boot_id="boot")
QUESTION = Question(interaction_id="colour", prompt="Which colour?", default="blue")

DONE = Final(data={"ok": True}, done=True)
SOFT = Final(data={"ok": True}, done=False)
WRONG = Final(data={"ok": 1}, done=True, problems=("output.ok: 1 is not a boolean",))
ASKING = AskUser(question=QUESTION)
LOST = TurnError(error=RunError(code=ErrorCode.SESSION_RESUME_FAILED, message="the engine no longer has the session"))
BROKEN = TurnError(error=RunError(code=ErrorCode.ENGINE_CRASHED, message="the engine ended without its last event"))


def queued_run(
    *,
    profile: ProfileKind = ProfileKind.RESUMABLE,
    mode: Mode = Mode.INTERACTIVE,
    options: RunOptions | None = None,
    **changes: Any,
) -> Run:
    """A run as it is created."""
    run = Run(
        id="run-1",
        state=RunState.QUEUED,
        skill=SkillRef(id="skill", version=None, digest="digest"),
        engine="scripted",
        mode=mode,
        profile=Profile(kind=profile, reason="seen", session_timeout_sec=SESSION_TIMEOUT_SEC),
        options=options or RunOptions(session_timeout_sec=SESSION_TIMEOUT_SEC),
        next_turn=TurnOrder(kind=TurnKind.START, attempt_number=1),
        created_at=CREATED,
        updated_at=CREATED,
        owner=OWNER,
    )
    return run.evolve(**changes)


def running_run(**changes: Any) -> Run:
    """A run in its first turn, which has named its session."""
    running = {
        "state": RunState.RUNNING,
        "version": 5,
        "epoch": EPOCH,
        "worker": "worker",
        "process": PROCESS,
        "handle": HANDLE,
        "started_at": CREATED,
    }
    return queued_run(**(running | changes))


def waiting_run(**changes: Any) -> Run:
    """A run that has asked `QUESTION` and waits; past its deadline, if it has one, at `NOW`."""
    run = running_run(**changes)
    pending = Interaction(
        interaction_id="colour",
        kind="text",
        prompt="Which colour?",
        attempt_number=run.attempt_number,
        asked_at=CREATED,
        default="blue",
    )
    decided = run.sticky or not run.options.interactive_require_user_reply
    return run.evolve(
        state=RunState.WAITING_USER,
        worker=run.worker if run.sticky else None,
        process=run.process if run.sticky else None,
        pending_interaction=pending,
        interaction_ids=("colour",),
        wait_deadline_at=CREATED + timedelta(seconds=SESSION_TIMEOUT_SEC) if decided else None,
    )


def final_run(state: RunState, **changes: Any) -> Run:
    error = BROKEN.error if state is RunState.FAILED else None
    return running_run(**changes).evolve(state=state, worker=None, process=None, error=error, finished_at=CREATED)


def ended(run: Run, outcome: TurnOutcome, **more: Any) -> TurnEnded:
    return TurnEnded(epoch=run.epoch, outcome=outcome, at=NOW, **more)


def decision(run: Run, signal: Signal) -> Decision:
    """What `decide` says, where it must be a Decision."""
    answer = decide(run, signal)
    assert isinstance(answer, Decision), answer
    return answer


def event_types(made: Decision) -> list[str]:
    return [str(event.type) for event in made.events]
