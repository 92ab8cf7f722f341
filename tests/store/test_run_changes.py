"""Following all runs: each change of state is told once, talk is not, and who has lost the thread is let go."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import pytest
from lives import NOON, create, new_run, note_process, start
from stores import OpenStore

from askback.core.errors import Unavailable
from askback.core.events import EventType, NewEvent
from askback.core.runs import Run
from askback.core.signals import TurnLost
from askback.runs.following import MAX_UNSENT, RunChanges
from askback.store.base import Store, move
from askback.store.listeners import Changes

SAID = [NewEvent(type=EventType.ASSISTANT_MESSAGE, at=NOON, data={"text": "well"})]


class Counting:
    """A store that counts how often it is listened to."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.listeners = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def changes(self) -> Any:
        self.listeners += 1
        return self._store.changes()


def states(runs: Sequence[Run]) -> list[tuple[str, str]]:
    return [(run.id, run.state) for run in runs]


def test_changes_of_state_are_told_to_all_by_one_listener_and_talk_is_not(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            counting = Counting(store)
            hub = RunChanges(counting)
            async with aclosing(hub.follow()) as one, aclosing(hub.follow()) as other:
                assert (await anext(one), await anext(other)) == ((), ())
                run = await create(store, new_run())
                assert states(await anext(one)) == [("run-1", "queued")]
                run = await start(store, run)
                assert states(await anext(one)) == [("run-1", "running")]
                await store.append(run.id, run.epoch, SAID)
                await note_process(store, run)
                await create(store, new_run("second"))
                assert states(await anext(one)) == [("second", "queued")]
                # Who is slow gets the latest of each.
                assert states(await anext(other)) == [("run-1", "running"), ("second", "queued")]
            assert counting.listeners == 1

    asyncio.run(main())


def test_who_falls_far_behind_is_let_go(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            hub = RunChanges(store)
            async with aclosing(hub.follow()) as slow, aclosing(hub.follow()) as quick:
                await anext(slow)
                await anext(quick)
                told = 0
                for start_at in (0, MAX_UNSENT // 2, MAX_UNSENT):
                    batch = range(start_at, start_at + MAX_UNSENT // 2)
                    await asyncio.gather(*(create(store, new_run(f"run-{number}")) for number in batch))
                    while told < batch.stop:
                        told += len(await anext(quick))
                assert [runs async for runs in slow] == []

    asyncio.run(main())


def test_all_are_let_go_when_the_store_is_closed(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            following = RunChanges(store).follow()
            assert await anext(following) == ()
            await store.close()
            assert [runs async for runs in following] == []

    asyncio.run(main())


def test_who_leaves_at_once_leaves_no_listener_behind(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            listeners: list[Changes] = []
            listen = store.changes

            def changes() -> Changes:
                listeners.append(listen())
                return listeners[-1]

            counting = Counting(store)
            counting.changes = changes  # type: ignore[method-assign]
            async with aclosing(RunChanges(counting).follow()) as following:
                await anext(following)
            async with asyncio.timeout(5):
                with pytest.raises(Unavailable):
                    await listeners[0].wait()

    asyncio.run(main())


def test_who_came_between_two_changes_that_are_read_together_is_told(open_store: OpenStore) -> None:
    """The run is again as others were told before, but not as the one who came has seen it."""

    async def main() -> None:
        async with open_store() as store, open_store() as elsewhere:
            hub = RunChanges(store)
            heard = store.new_events("other")
            async with aclosing(hub.follow()) as early, aclosing(hub.follow()) as late:
                await anext(early)
                run = await start(store, await create(store, new_run()))
                while states(await anext(early)) != [("run-1", "running")]:
                    pass
                # A change by another program is waited with: what comes meanwhile is read together.
                await create(elsewhere, new_run("other"))
                await heard.wait()
                run = await move(store, run.id, TurnLost(epoch=run.epoch, at=NOON))
                await anext(late)
                await start(store, run)
                async with asyncio.timeout(10):
                    told: list[tuple[str, str]] = []
                    while ("run-1", "running") not in told:
                        told += states(await anext(late))
            heard.close()

    asyncio.run(main())
