"""Runs and what happens to them, each by one word, for the tests of the store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from askback.core import lifecycle
from askback.core.events import EventType, NewEvent
from askback.core.interactions import Json, Question
from askback.core.lifecycle import Decision, decide
from askback.core.outcomes import AskUser, Final
from askback.core.runs import (
    SHARED,
    Handle,
    Mode,
    ProcessIdentity,
    Profile,
    ProfileKind,
    Run,
    RunOptions,
    RunRequest,
    RunState,
    SkillRef,
    TurnKind,
    TurnOrder,
)
from askback.core.signals import HandleNamed, ProcessStarted, Replied, Signal, SlotAcquired, TurnEnded
from askback.store.base import Store, move
from askback.store.pages import IdempotencyKey

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TIMEOUT_SEC = 1200.0
QUESTION = Question(prompt="Which colour?", interaction_id="colour", options=("red", "blue"), default="blue")
PROCESS = ProcessIdentity(pid=41, start_ticks=1000, boot_id="boot")
DECIDED = RunOptions(interactive_require_user_reply=False)
"""The options of a run that is decided automatically when its deadline passes."""


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def new_run(run_id: str = "run-1", *, sticky: bool = False, skill: str = "skill", **changes: Any) -> Run:
    kind = ProfileKind.STICKY_PROCESS if sticky else ProfileKind.RESUMABLE
    run = Run(
        id=run_id,
        state=RunState.QUEUED,
        skill=SkillRef(id=skill, version="1.0", digest="digest"),
        engine="scripted",
        mode=Mode.INTERACTIVE,
        profile=Profile(kind=kind, reason="seen", session_timeout_sec=TIMEOUT_SEC),
        options=RunOptions(),
        next_turn=TurnOrder(kind=TurnKind.START, attempt_number=1),
        created_at=NOON,
        updated_at=NOON,
    )
    return run.evolve(**changes)


async def create(store: Store, run: Run, request: RunRequest | None = None, key: IdempotencyKey | None = None) -> Run:
    return await store.create(lifecycle.create(run, {"skill": run.skill.id}), request or RunRequest(), key)


async def start(store: Store, run: Run, worker: str = "worker") -> Run:
    return await move(store, run.id, SlotAcquired(worker=worker, at=NOON))


async def name_handle(store: Store, run: Run) -> Run:
    handle = Handle(engine=run.engine, handle_type="session_id", handle_value="s-1", created_at_turn=1)
    return await move(store, run.id, HandleNamed(epoch=run.epoch, handle=handle, at=NOON))


async def note_process(store: Store, run: Run) -> Run:
    return await move(store, run.id, ProcessStarted(epoch=run.epoch, process=PROCESS, at=NOON))


async def ask(store: Store, run: Run, question: Question = QUESTION, when: datetime = NOON) -> Run:
    return await move(store, run.id, TurnEnded(epoch=run.epoch, outcome=AskUser(question=question), at=when))


async def finish(store: Store, run: Run, data: Json = None) -> Run:
    return await move(store, run.id, TurnEnded(epoch=run.epoch, outcome=Final(data=data, done=True), at=NOON))


async def reply(store: Store, run: Run, response: Json = "red", owner: str = SHARED) -> Run:
    assert run.pending_interaction is not None
    interaction_id = run.pending_interaction.interaction_id
    return await move(store, run.id, Replied(interaction_id=interaction_id, response=response, owner=owner, at=at(60)))


async def running(store: Store, run: Run) -> Run:
    """Create the run and begin its first turn, which names its session."""
    return await name_handle(store, await start(store, await create(store, run)))


async def waiting(store: Store, run: Run, when: datetime = NOON, question: Question = QUESTION) -> Run:
    return await ask(store, await running(store, run), question, when)


async def succeeded(store: Store, run: Run, data: Json = None) -> Run:
    return await finish(store, await running(store, run), data)


def message(text: str) -> NewEvent:
    return NewEvent(type=EventType.ASSISTANT_MESSAGE, at=NOON, data={"text": text})


def decided(run: Run, signal: Signal) -> Decision:
    """What the lifecycle says, where it must be a Decision."""
    answer = decide(run, signal)
    assert isinstance(answer, Decision), answer
    return answer
