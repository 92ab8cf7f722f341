"""How listeners learn of changes, in the program that makes them and in others, on every store there is."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable

import pytest
from lives import NOON, ask, create, message, new_run, reply, running, start, waiting
from stores import OpenStore, Program

from askback.core.errors import Unavailable
from askback.core.events import EventType, NewEvent
from askback.core.runs import RunState
from askback.store.base import Store
from askback.store.listeners import Changes, NewEvents
from askback.store.pages import UNKNOWN_RUN, EventPage, IdempotencyKey

MESSAGE = message("hello")


async def soon(changes: Changes) -> dict[str, object]:
    async with asyncio.timeout(60):
        return dict(await changes.wait())


async def next_page(events: NewEvents) -> EventPage:
    async with asyncio.timeout(60):
        return await events.wait()


async def nothing_is_told(changes: Changes | NewEvents, store: Store) -> None:
    """A notice that is on its way arrives before the answer to a later write does."""
    listening = asyncio.ensure_future(changes.wait())
    await create(store, new_run("afterwards"))
    await asyncio.sleep(0)
    assert not listening.done()
    listening.cancel()


def test_a_listener_is_told_the_run_as_it_became(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            changes = store.changes()
            run = await create(store, new_run())
            assert await soon(changes) == {run.id: run}
            first, second = await start(store, run), await create(store, new_run("run-2"))
            assert await soon(changes) == {first.id: first, second.id: second}
            changes.close()

    asyncio.run(main())


def test_a_listener_to_one_run_hears_of_no_other(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            events = store.new_events("run-1")
            await create(store, new_run("run-2"))
            run = await create(store, new_run("run-1"))
            assert {event.run_id for event in await next_page(events)} == {run.id}
            await nothing_is_told(events, store)

    asyncio.run(main())


def test_a_notification_carries_the_events_as_they_are_read(open_store: OpenStore) -> None:
    """Also those that JSON changes: half a character, a tuple, a number as a key."""

    async def main() -> None:
        async with open_store() as store:
            run = await running(store, new_run())
            events = store.new_events(run.id)
            odd = NewEvent(type=EventType.USAGE, at=NOON, data={"half": "\ud800", "pair": (1, 2.5), "null": None})
            await store.append(run.id, run.epoch, [MESSAGE, odd])
            carried = await next_page(events)
            assert not carried.more
            await store.append(run.id, run.epoch, [MESSAGE])
            await ask(store, run)
            later = await next_page(events)
            assert (*carried, *later) == await store.events(run.id, carried[0].seq - 1)

    asyncio.run(main())


def test_events_that_are_large_are_left_to_be_read(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            run = await running(store, new_run())
            events = store.new_events(run.id)
            await store.append(run.id, run.epoch, [message("x" * 1_000_000)])
            await store.append(run.id, run.epoch, [MESSAGE])
            page = await next_page(events)
            assert (len(page), page.more) == (0, True)
            await store.append(run.id, run.epoch, [MESSAGE])
            assert len(await next_page(events)) == 1

    asyncio.run(main())


def test_events_alone_are_no_news_to_who_listens_to_all_runs(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            run = await running(store, new_run())
            changes = store.changes()
            await store.append(run.id, run.epoch, [MESSAGE])
            other = await create(store, new_run("run-2"))
            assert await soon(changes) == {other.id: other}

    asyncio.run(main())


def test_a_run_that_was_told_is_not_forgotten_for_later_events(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            run = await create(store, new_run())
            changes = store.changes()
            started = await start(store, run)
            await store.append(run.id, started.epoch, [MESSAGE])
            assert await soon(changes) == {run.id: started}

    asyncio.run(main())


def test_what_changed_nothing_is_not_told(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            key = IdempotencyKey(key="k", body_digest="d")
            run = await create(store, new_run(), key=key)
            changes = store.new_events(run.id)
            await create(store, new_run(), key=key)
            with pytest.raises(Exception, match="run-1"):
                await create(store, new_run())
            await nothing_is_told(changes, store)

    asyncio.run(main())


def test_a_slow_listener_costs_a_constant(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            slow, one = store.changes(), store.new_events("run-7")
            await asyncio.gather(*(create(store, new_run(f"run-{n}")) for n in range(1500)))
            assert await soon(slow) == {UNKNOWN_RUN: None}
            assert await next_page(one) == await store.events("run-7")
            run = await create(store, new_run("next"))
            assert await soon(slow) == {"next": run}
            run = await start(store, run)
            one = store.new_events(run.id)
            for _ in range(3):
                await store.append(run.id, run.epoch, [message("x" * 60_000)])
            page = await next_page(one)
            assert (len(page), page.more) == (0, True)

    asyncio.run(main())


def test_a_listener_that_was_closed_says_so(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            mine, stores, events = store.changes(), store.changes(), store.new_events("run-1")
            waits = [asyncio.ensure_future(changes.wait()) for changes in (mine, stores, events)]
            await asyncio.sleep(0)
            mine.close()
            mine.close()
            await create(store, new_run("run-2"))
        for wait in waits:
            with pytest.raises(Unavailable, match="closed"):
                await wait

    asyncio.run(main())


def test_another_open_store_hears_which_runs_changed(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store, open_store() as other:
            everything, one = other.changes(), other.new_events("run-2")
            await create(store, new_run("run-1"))
            assert await soon(everything) == {"run-1": None}
            await create(store, new_run("run-2"))
            assert (await next_page(one)).more
            assert (await other.get("run-2")).state is RunState.QUEUED

    asyncio.run(main())


def test_a_program_that_could_not_listen_misses_no_change(
    open_store: OpenStore, start_program: Callable[..., Program]
) -> None:
    """It is stopped while more happens than can be kept for it; then it must know that any run may have changed."""

    async def main() -> None:
        async with open_store() as store:
            program = start_program("hear")
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"
            program.send_signal(signal.SIGSTOP)
            for number in range(60):
                await create(store, new_run(f"run-{number}"))
            program.send_signal(signal.SIGCONT)
            heard: set[str] = set()
            while "run-59" not in heard and UNKNOWN_RUN not in heard:
                heard.update(json.loads(await asyncio.to_thread(program.stdout.readline)))

    asyncio.run(main())


def test_another_program_hears_of_a_change(open_store: OpenStore, start_program: Callable[..., Program]) -> None:
    async def main() -> None:
        async with open_store() as store:
            run = await waiting(store, new_run())
            program = start_program("hear")
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"
            await reply(store, run)
            assert json.loads(await asyncio.to_thread(program.stdout.readline)) == [run.id]
            program.kill()
            program.wait()
            await create(store, new_run("still-works"))

    asyncio.run(main())


def test_this_program_hears_of_a_change_by_another(
    open_store: OpenStore, start_program: Callable[..., Program]
) -> None:
    async def main() -> None:
        async with open_store() as store:
            run = await waiting(store, new_run())
            changes, events = store.changes(), store.new_events(run.id)
            program = start_program("reply", run.id, "red")
            await asyncio.to_thread(program.communicate, "go\n")
            assert await soon(changes) == {run.id: None}
            assert (await next_page(events)).more
            assert (await store.get(run.id)).state is RunState.QUEUED

    asyncio.run(main())
