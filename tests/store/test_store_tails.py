"""Following runs: none twice, none missed, one read for all, on every store there is."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from lives import NOON, create, finish, new_run, running, start, succeeded
from stores import OpenStore

from askback.core.errors import NotFound, Unavailable
from askback.core.events import EventType, NewEvent
from askback.following.run_events import PAGE, Tails
from askback.store.base import PAGE_BYTES, EventPage, Store


class Counting:
    """A store that counts how often events were read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def events(self, run_id: str, after: int = 0, limit: int = 1000, most_bytes: int = PAGE_BYTES) -> EventPage:
        found = await self._store.events(run_id, after, limit, most_bytes)
        self.reads += 1
        return found


async def told(tails: Tails, run_id: str, after: int = 0) -> list[int]:
    return [event.seq async for events in tails.follow(run_id, after) for event in events]


def said(count: int) -> list[NewEvent]:
    return [NewEvent(type=EventType.ASSISTANT_MESSAGE, at=NOON, data={"text": str(number)}) for number in range(count)]


async def numbers(tails: Tails, run_id: str, after: int = 0) -> AsyncIterator[int]:
    async with aclosing(tails.follow(run_id, after)) as following:
        async for events in following:
            for event in events:
                yield event.seq


def test_a_run_that_is_over_is_told_whole(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            run = await running(store, new_run())
            await store.append(run.id, run.epoch, said(PAGE * 2 + 7))
            await finish(store, run)
            tails = Tails(store)
            whole = await told(tails, run.id)
            assert whole == list(range(1, len(whole) + 1))
            assert len(whole) > PAGE * 2
            assert await told(tails, run.id, after=len(whole) - 1) == [len(whole)]
            assert await told(tails, run.id, after=len(whole)) == []
            assert await told(tails, run.id, after=10**15) == []
            assert tails._tails == {}

    asyncio.run(main())


def test_followers_that_come_at_any_time_miss_and_double_nothing(open_store: OpenStore) -> None:
    """Many join, leave and come back at random moments while a run talks."""

    async def main() -> None:
        chance = random.Random(7)
        async with open_store() as store, asyncio.timeout(60):
            tails = Tails(store)
            run = await running(store, new_run())

            async def follow() -> list[int]:
                seen: list[int] = []
                while True:
                    await asyncio.sleep(chance.random() / 50)
                    leave_after = chance.choice([1, 5, 50, 10**6])
                    async with aclosing(numbers(tails, run.id, seen[-1] if seen else 0)) as following:
                        async for seq in following:
                            seen.append(seq)
                            if len(seen) % leave_after == 0:
                                break
                            if chance.random() < 0.05:
                                await asyncio.sleep(chance.random() / 200)
                        else:
                            return seen

            followers = [asyncio.ensure_future(follow()) for _ in range(25)]
            for _ in range(60):
                await store.append(run.id, run.epoch, said(chance.choice([1, 2, 7, PAGE + 20])))
                await asyncio.sleep(chance.random() / 200)
            await finish(store, run)
            last = len([seq async for seq in numbers(tails, run.id)])
            for follower in followers:
                assert await follower == list(range(1, last + 1))
            assert tails._tails == {}

    asyncio.run(main())


def test_a_change_is_read_once_for_all_who_follow(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store, asyncio.timeout(60):
            counting = Counting(store)
            tails = Tails(counting)  # type: ignore[arg-type]
            run = await running(store, new_run())
            followings = [numbers(tails, run.id) for _ in range(200)]
            known = len(await store.events(run.id))
            for following in followings:
                for _ in range(known):
                    await anext(following)
            waiting = [asyncio.ensure_future(anext(following)) for following in followings]
            # All have found nothing more in the store, and wait.
            while counting.reads < 2 * len(followings):
                await asyncio.sleep(0.005)
            counting.reads = 0
            await store.append(run.id, run.epoch, said(1))
            assert await asyncio.gather(*waiting) == [known + 1] * 200
            assert counting.reads <= 2
            for following in followings:
                await following.aclose()  # type: ignore[attr-defined]

    asyncio.run(main())


def test_a_position_that_is_not_there_yet_does_not_stop_the_others(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store, asyncio.timeout(60):
            tails = Tails(store)
            run = await running(store, new_run())
            ahead = asyncio.ensure_future(told(tails, run.id, after=10**15))
            behind = asyncio.ensure_future(told(tails, run.id))
            await asyncio.sleep(0.05)
            await store.append(run.id, run.epoch, said(3))
            await finish(store, run)
            whole = await behind
            assert whole == list(range(1, len(whole) + 1))
            assert await ahead == []

    asyncio.run(main())


def test_an_unknown_run_cannot_be_followed(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            tails = Tails(store)
            with pytest.raises(NotFound):
                await told(tails, "nobody")
            assert tails._tails == {}

    asyncio.run(main())


def test_followers_are_told_when_the_store_closes(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            tails = Tails(store)
            run = await start(store, await create(store, new_run()))
            following = asyncio.ensure_future(told(tails, run.id))
            await asyncio.sleep(0.05)
        with pytest.raises(Unavailable):
            async with asyncio.timeout(60):
                await following

    asyncio.run(main())


def test_a_follower_that_stops_in_the_middle_of_a_page_loses_nothing_for_others(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store, asyncio.timeout(60):
            tails = Tails(store)
            run = await succeeded(store, new_run())
            first = numbers(tails, run.id)
            await anext(first)
            whole = await told(tails, run.id)
            assert [1, *[seq async for seq in first]] == whole

    asyncio.run(main())
