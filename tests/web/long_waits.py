"""A run whose question waited for days, without a test that does: its program's clock goes ahead in between."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from support.data_folder import World, over, submit, waiting
from support.passing_time import PassingTime

DAY_SEC = 24 * 60 * 60.0


def waited(world: World, skill: str, days: float, *replies: Any, **submission: Any) -> str:
    """The id of a finished run, the first question of which waited so many days until now. No server may be running."""

    async def main(time: PassingTime) -> str:
        time.passes(-days * DAY_SEC)
        async with world.working() as app:
            run = await submit(app, str(world.folder / "skills" / skill), **submission)
            for place, reply in enumerate(replies):
                asked = (await waiting(app, run.id)).pending_interaction
                assert asked is not None
                if place == 0:
                    time.passes(days * DAY_SEC)
                await app.service.reply(run.id, reply, asked.interaction_id)
            return (await over(app, run.id)).id

    def apart() -> str:
        with pytest.MonkeyPatch.context() as patch:
            return asyncio.run(main(PassingTime(patch)))

    # A thread of its own: the browser's event loop counts as running in this one.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(apart).result()
