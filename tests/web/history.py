"""A past: hundreds of runs over the last days, written to the store as a worker writes them."""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

from askback.app import now
from askback.core import lifecycle
from askback.core.errors import ErrorCode, RunError
from askback.core.interactions import Question
from askback.core.outcomes import AskUser, Final, TurnError, TurnOutcome
from askback.core.runs import (
    Handle,
    Mode,
    Profile,
    ProfileKind,
    Run,
    RunOptions,
    RunRequest,
    RunState,
    SkillRef,
    TurnKind,
    TurnOrder,
    Usage,
)
from askback.core.signals import CancelRequested, HandleNamed, Replied, SlotAcquired, TurnEnded
from askback.store.base import Store, move
from support.data_folder import World

QUESTION = Question(prompt="Which pace would you like?", interaction_id="pace", options=("relaxed", "balanced"))
_SKILLS = ("trip-planner", "trip-planner", "trip-planner", "asking", "asking", "reads", "plain")
_ENGINES = ("claude", "claude", "codex", "gemini", "scripted")
_CITIES = ("Lisbon", "Oslo", "Kyoto", "Quito", "Riga")
_ERRORS = {
    ErrorCode.ENGINE_RATE_LIMITED: "The provider's limit was reached: try again in 20 s",
    ErrorCode.OUTPUT_SCHEMA_INVALID: "output.days[2]: 'title' is required",
    ErrorCode.ENGINE_AUTH_REQUIRED: "The engine is not signed in",
}


def past(world: World, count: int, *, days: int = 30, waiting: int = 0) -> list[str]:
    """Runs that ended over these days, always the same ones, and some that still wait. No server may be at work there."""

    async def main() -> list[str]:
        chance = random.Random(7)
        async with world.client() as app:
            start = now()
            ended = [await _ended(app.store, number, chance, start, days) for number in range(count)]
            return ended + [await _waits(app.store, number, start) for number in range(waiting)]

    # A thread of its own: the browser's event loop counts as running in this one.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, main()).result()


def asked(world: World, question: Question) -> str:
    """A run that waits with this question, as an engine of a third party may ask it. No server may be at work there."""

    async def main() -> str:
        async with world.client() as app:
            run = await _started(app.store, "asked00000000000", now(), random.Random(7))
            return (await _turn(app.store, run, AskUser(question=question), now(), None)).id

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, main()).result()


async def _ended(store: Store, number: int, chance: random.Random, today: datetime, days: int) -> str:
    age = timedelta(seconds=chance.uniform(3600, days * 86400 - 86400) * chance.uniform(0.3, 1))
    at = today - age
    run = await _started(store, f"past{number:012d}", at, chance)
    end = at + timedelta(seconds=chance.uniform(8, 400))
    if chance.random() < 0.4:
        run = await _turn(store, run, AskUser(question=QUESTION), at + timedelta(seconds=5), None)
        if chance.random() < 0.12:
            return (await move(store, run.id, CancelRequested(at=end))).id
        answered = at + timedelta(seconds=chance.lognormvariate(5, 1.6))
        run = await move(store, run.id, Replied(interaction_id="pace", response="relaxed", owner="", at=answered))
        run, end = await _slot(store, run, answered), answered + timedelta(seconds=30)
    used = chance.randint(2_000, 90_000)
    usage = Usage(input_tokens=used, output_tokens=used // 6, cached_tokens=used // 2, total_tokens=used * 7 // 6)
    return (await _turn(store, run, _outcome(chance), end, usage)).id


def _outcome(chance: random.Random) -> TurnOutcome:
    if chance.random() < 0.13:
        code, message = chance.choice(sorted(_ERRORS.items()))
        return TurnError(error=RunError(code=code, message=message))
    return Final(data={"colour": "red"}, done=True)


async def _waits(store: Store, number: int, today: datetime) -> str:
    at = today - timedelta(hours=number * 5, minutes=12)
    run = await _started(store, f"wait{number:012d}", at, random.Random(number))
    return (await _turn(store, run, AskUser(question=QUESTION), at, None)).id


async def _started(store: Store, run_id: str, at: datetime, chance: random.Random) -> Run:
    run = Run(
        id=run_id,
        state=RunState.QUEUED,
        skill=SkillRef(id=chance.choice(_SKILLS), version="1.0.0", digest="digest"),
        engine=chance.choice(_ENGINES),
        mode=Mode.INTERACTIVE,
        profile=Profile(kind=ProfileKind.RESUMABLE, reason="its --help offers --resume", session_timeout_sec=1200),
        options=RunOptions(),
        next_turn=TurnOrder(kind=TurnKind.START, attempt_number=1),
        summary=f"{chance.choice(_CITIES)} · {chance.randint(1, 9)}",
        created_at=at,
        updated_at=at,
    )
    await store.create(lifecycle.create(run, {"skill": run.skill.id}), RunRequest())
    return await _slot(store, run, at)


async def _slot(store: Store, run: Run, at: datetime) -> Run:
    held = await move(store, run.id, SlotAcquired(worker="past", at=at))
    if held.handle is not None:
        return held
    handle = Handle(engine=run.engine, handle_type="session_id", handle_value="none", created_at_turn=1)
    return await move(store, run.id, HandleNamed(epoch=held.epoch, handle=handle, at=at))


async def _turn(store: Store, run: Run, outcome: TurnOutcome, at: datetime, usage: Usage | None) -> Run:
    return await move(store, run.id, TurnEnded(epoch=run.epoch, outcome=outcome, usage=usage, at=at))
