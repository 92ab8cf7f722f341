"""Following runs: none twice, none missed, one read for all, on every store there is."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import pytest
from lives import create, finish, message, new_run, running, start, succeeded
from stores import OpenStore, Program

from askback.core.errors import NotFound, Unavailable
from askback.core.events import Event, NewEvent
from askback.runs.run_events import PAGE, RunEvents
from askback.store.base import Store
from askback.store.pages import PAGE_BYTES, EventPage


class Counting:
    """A store that counts how often events were read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def events(self, run_id: str, after: int = 0, limit: int = 1000, max_bytes: int = PAGE_BYTES) -> EventPage:
        found = await self._store.events(run_id, after, limit, max_bytes)
        self.reads += 1
        return found


async def told(tails: RunEvents, run_id: str, after: int = 0) -> list[int]:
    return [event.seq async for events in tails.follow(run_id, after) for event in events]


def said(count: int) -> list[NewEvent]:
    return [message(str(number)) for number in range(count)]


async def numbers(tails: RunEvents, run_id: str, after: int = 0) -> AsyncGenerator[int]:
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
            tails = RunEvents(store)
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
            tails = RunEvents(store)
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


@pytest.mark.parametrize("seed", range(6))
def test_every_event_is_seen_once_and_in_order_whoever_writes_it(open_store: OpenStore, seed: int) -> None:
    """Two stores write to one run. Followers are quick or slow, and start anywhere; events are small or large."""

    async def main() -> None:
        chance = random.Random(seed)
        async with open_store() as store, open_store() as elsewhere, asyncio.timeout(60):
            followed = RunEvents(store)
            run = await running(store, new_run())
            starts = [chance.choice([0, 1, 2, 20]) for _ in range(8)]
            seen: list[list[Event]] = [[] for _ in starts]

            async def follow(place: int, most_pause_sec: float) -> None:
                await asyncio.sleep(chance.random() / 10)
                async for events in followed.follow(run.id, starts[place]):
                    seen[place] += events
                    if most_pause_sec:
                        await asyncio.sleep(chance.random() * most_pause_sec)

            async def write(to: Store) -> None:
                for _ in range(30):
                    size = chance.choice([1, 1, 10, 10, 2_000, 50_000, 200_000])
                    await to.append(run.id, run.epoch, [message("x" * size)] * chance.choice([1, 1, 2, 9]))
                    await asyncio.sleep(chance.random() / 50)

            followers = [asyncio.ensure_future(follow(place, (0, 0.05)[place % 2])) for place in range(len(starts))]
            await asyncio.gather(write(store), write(elsewhere))
            # All of them wait for news when the run ends.
            last = (await written(store, run.id))[-1]
            while any(events[-1:] != [last] for events in seen):
                await asyncio.sleep(0.005)
            await finish(elsewhere if seed % 2 else store, run)
            await asyncio.gather(*followers)
            stored = await written(store, run.id)
            assert seen == [stored[after:] for after in starts]

    asyncio.run(main())


async def written(store: Store, run_id: str) -> list[Event]:
    events: list[Event] = []
    while page := await store.events(run_id, len(events)):
        events += page
    return events


class HardOfHearing(Counting):
    """A store that never notifies of what another process wrote."""

    def new_events(self, run_id: str) -> Any:
        listener = self._store.new_events(run_id)
        notify = listener.notify

        def hear(page: EventPage) -> None:
            """A page that is to be read from the store is empty. It would hide the events of this process."""
            if page:
                notify(page)

        listener.notify = hear
        return listener


def test_a_gap_before_a_notification_is_read_from_the_store(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store, open_store() as elsewhere, asyncio.timeout(60):
            followed = RunEvents(HardOfHearing(store))
            run = await running(store, new_run())
            known = len(await store.events(run.id))
            async with aclosing(numbers(followed, run.id)) as following:
                assert [await anext(following) for _ in range(known)] == list(range(1, known + 1))
                for number in range(known + 1, known + 7, 3):
                    await store.append(run.id, run.epoch, said(1))
                    assert await anext(following) == number
                    coming = asyncio.ensure_future(anext(following))
                    await elsewhere.append(run.id, run.epoch, said(1))
                    await store.append(run.id, run.epoch, said(1))
                    assert [await coming, await anext(following)] == [number + 1, number + 2]

    asyncio.run(main())


def test_another_process_that_writes_meanwhile_costs_no_event(
    open_store: OpenStore, start_program: Callable[..., Program]
) -> None:
    async def main() -> None:
        async with open_store() as store, asyncio.timeout(60):
            followed = RunEvents(store)
            run = await running(store, new_run())
            followers = [asyncio.ensure_future(told(followed, run.id)) for _ in range(3)]
            program = start_program("append", run.id, str(run.epoch), "30")
            assert program.stdout is not None
            await asyncio.to_thread(program.stdout.readline)
            other = asyncio.ensure_future(asyncio.to_thread(program.communicate, "go\n"))
            while not other.done():
                await store.append(run.id, run.epoch, said(1))
            await finish(store, run)
            for follower in followers:
                seen = await follower
                assert seen == list(range(1, len(seen) + 1))
            assert len(await store.events(run.id, limit=10_000)) == len(seen)

    asyncio.run(main())


def test_what_this_process_writes_is_not_read_back(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store, asyncio.timeout(60):
            counting = Counting(store)
            run = await running(store, new_run())
            known = len(await store.events(run.id))
            async with aclosing(numbers(RunEvents(counting), run.id, known)) as following:
                first = asyncio.ensure_future(anext(following))
                while not counting.reads:
                    await asyncio.sleep(0.005)
                counting.reads = 0
                await store.append(run.id, run.epoch, said(1))
                assert await first == known + 1
                for number in range(2, 200):
                    await store.append(run.id, run.epoch, said(1))
                    assert await anext(following) == known + number
            assert counting.reads == 0

    asyncio.run(main())


def test_few_events_are_kept_for_a_slow_follower(open_store: OpenStore) -> None:
    """What is not kept is read from the store."""

    async def main() -> None:
        async with open_store() as store, asyncio.timeout(60):
            counting = Counting(store)
            followed = RunEvents(counting)
            run = await running(store, new_run())
            async with aclosing(numbers(followed, run.id)) as slow, aclosing(numbers(followed, run.id)) as quick:
                assert (await anext(slow), await anext(quick)) == (1, 1)
                seen = [1]
                for _ in range(50):
                    await store.append(run.id, run.epoch, [message("x" * 20_000)])
                    seen.append(await anext(quick))
                kept = sum(len(page) for page in followed._tails[run.id]._pages)
                assert kept <= 7
                await finish(store, run)
                counting.reads = 0
                assert [1, *[seq async for seq in slow]] == seen + [seq async for seq in quick]
                assert counting.reads > 1

    asyncio.run(main())


def test_a_change_is_read_once_for_all_who_follow(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store, asyncio.timeout(60):
            counting = Counting(store)
            tails = RunEvents(counting)
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
                await following.aclose()

    asyncio.run(main())


def test_a_position_that_is_not_there_yet_does_not_stop_the_others(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store, asyncio.timeout(60):
            tails = RunEvents(store)
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
            tails = RunEvents(store)
            with pytest.raises(NotFound):
                await told(tails, "nobody")
            assert tails._tails == {}

    asyncio.run(main())


def test_followers_are_told_when_the_store_closes(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            tails = RunEvents(store)
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
            tails = RunEvents(store)
            run = await succeeded(store, new_run())
            first = numbers(tails, run.id)
            await anext(first)
            whole = await told(tails, run.id)
            assert [1, *[seq async for seq in first]] == whole

    asyncio.run(main())
