"""Many runs that wait, without the time that as many engines would take: written to the store as a worker writes them."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from askback.app import App, now
from askback.core.interactions import Question
from askback.core.outcomes import AskUser
from askback.core.runs import Handle
from askback.core.signals import HandleNamed, SlotAcquired, TurnEnded
from askback.store.base import move
from support.data_folder import World, submit

QUESTION = Question(prompt="Which colour?", interaction_id="colour", options=("red", "blue"))


def crowd(world: World, skill: str, count: int) -> list[str]:
    """The runs, the oldest question first. No server may be at work there: it would carry them out."""

    async def main() -> list[str]:
        async with world.client() as app:
            return [await _waiting(app, str(world.folder / "skills" / skill)) for _ in range(count)]

    # A thread of its own: the browser's event loop counts as running in this one.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, main()).result()


async def _waiting(app: App, skill: str) -> str:
    run = await submit(app, skill)
    held = await move(app.store, run.id, SlotAcquired(worker="crowd", at=now()))
    handle = Handle(engine=run.engine, handle_type="session_id", handle_value="none", created_at_turn=1)
    await move(app.store, run.id, HandleNamed(epoch=held.epoch, handle=handle, at=now()))
    asked = AskUser(question=QUESTION)
    await move(app.store, run.id, TurnEnded(epoch=held.epoch, outcome=asked, at=now()))
    return run.id
