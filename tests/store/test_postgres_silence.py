"""A PostgreSQL server that is suspended, and connections on which nothing arrives any more, without an end of either."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest
from lives import create, finish, message, name_handle, new_run, start
from test_postgres_faults import asked, created, sent
from test_store_crashes import agrees_with_itself

from askback.core.errors import Unavailable
from askback.core.runs import Run
from askback.store.base import Store
from askback.store.pages import UNKNOWN_RUN, IdempotencyKey, RunFilter
from support import postgres
from support.postgres import PostgresServer
from support.postgres_proxy import PostgresProxy

T = TypeVar("T")

LONG_SEC = 240.0
AT_ONCE = 4
STATEMENTS = 20
"""More than a write has, with those of a new connection."""


@pytest.fixture(autouse=True)
def _needs_postgres() -> None:
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)


@pytest.fixture(scope="module")
def server_of_this_module() -> Iterator[PostgresServer]:
    """Other tests must not find it suspended."""
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture
def own_server(server_of_this_module: PostgresServer) -> Iterator[PostgresServer]:
    yield server_of_this_module
    server_of_this_module.thaw()


@asynccontextmanager
async def opened(address: str, *, patience_sec: float) -> AsyncIterator[Store]:
    """Short limits for a call, and long ones for what only a slow machine would exceed."""
    from askback.store.postgres import PostgresStore
    from askback.store.postgres.connection import Limits

    limits = Limits(patience_sec=patience_sec, answer_sec=2.0, least_sec=2.0, statement_sec=60.0, idle_sec=0.5)
    store = await PostgresStore.open(f"{address}&connect_timeout=2", limits=limits)
    try:
        yield store
    finally:
        await store.close()


async def again(call: Awaitable[T]) -> T | None:
    """The result; None if the store is unavailable."""
    try:
        return await call
    except Unavailable:
        return None


# A connection on which nothing arrives.


async def silenced(address: str, number: int, *, forward: bool) -> bool:
    """Create a run. The connection falls silent at this statement of it. False if there are not so many."""
    with PostgresProxy(address) as proxy:
        async with opened(proxy.address, patience_sec=LONG_SEC) as store:
            proxy.arm(number, forward=forward, hang=True)
            run = await created(store, f"run-{number}")
            silent = proxy.disarm()
            await asked(store, await name_handle(store, await start(store, run)))
            return silent


@pytest.mark.parametrize("forward", [False, True], ids=["before it arrives", "after it arrived"])
def test_a_write_whose_connection_falls_silent_at_any_statement_happens_once(address: str, forward: bool) -> None:
    async def main() -> None:
        few = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> bool:
            async with few:
                return await silenced(address, number, forward=forward)

        silent = await asyncio.gather(*(one(number) for number in range(1, STATEMENTS + 1)))
        assert (silent[0], silent[-1]) == (True, False), silent
        async with opened(address, patience_sec=LONG_SEC) as store:
            run = await created(store, "untouched")
            await asked(store, await name_handle(store, await start(store, run)))
            expected = await facts(store, "untouched")
            for number in range(1, STATEMENTS + 1):
                assert await facts(store, f"run-{number}") == expected, number
                await agrees_with_itself(store, f"run-{number}")

    asyncio.run(asyncio.wait_for(main(), LONG_SEC))


async def facts(store: Store, run_id: str) -> tuple[list[str], int, int]:
    run = await store.get(run_id)
    return [event.type for event in await store.events(run_id)], run.version, len(await sent(store, run_id))


def test_a_read_whose_connection_falls_silent_is_repeated(address: str) -> None:
    async def main() -> None:
        with PostgresProxy(address) as proxy:
            async with opened(proxy.address, patience_sec=LONG_SEC) as store:
                run = await create(store, new_run())
                for forward in (False, True):
                    proxy.arm(1, forward=forward, hang=True)
                    assert await store.get(run.id) == run
                    assert proxy.disarm()

    asyncio.run(asyncio.wait_for(main(), LONG_SEC))


# A server that is suspended.


async def attempt(store: Store, number: int) -> Run | None:
    key = IdempotencyKey(key=f"key-{number}", body_digest="digest")
    return await again(create(store, new_run(f"run-{number}"), key=key))


async def persistently(store: Store, number: int) -> Run:
    """As a client does that gets 503."""
    while (run := await attempt(store, number)) is None:
        await asyncio.sleep(0.05)
    return run


@pytest.mark.contract("M-9")
def test_while_the_server_is_suspended_calls_fail_and_afterwards_nothing_is_doubled(own_server: PostgresServer) -> None:
    async def main() -> None:
        address = own_server.make_database()
        async with opened(address, patience_sec=2.0) as store, opened(address, patience_sec=LONG_SEC) as other:
            before = await persistently(store, 0)
            changes = store.changes()
            own_server.freeze()
            # More than there are threads: those that wait for a thread end as well.
            reads = asyncio.gather(*(again(store.get(before.id)) for _ in range(12)))
            assert [run for run in await asyncio.gather(*(attempt(store, n) for n in range(12))) if run] == []
            assert [run for run in await reads if run] == []
            # Some of these were not acknowledged, but may have been stored; others wait until the server is back.
            waiting = asyncio.create_task(persistently(other, 20))
            own_server.thaw()
            made = await asyncio.gather(*(persistently(store, n) for n in range(12)))
            assert (await waiting).id == "run-20"
            listed = (await store.list_runs(RunFilter(), limit=100)).items
            assert sorted(run.id for run in listed) == sorted([*(run.id for run in made), "run-20"])
            for run in listed:
                await agrees_with_itself(store, run.id)
            # The connection that listened was replaced, so that nothing is missed.
            while UNKNOWN_RUN not in await changes.wait():
                pass
            changes.close()
            # And work goes on.
            run = await name_handle(store, await start(store, made[0]))
            await store.append(run.id, run.epoch, [message("one")])
            await finish(store, run)

    asyncio.run(asyncio.wait_for(main(), LONG_SEC))


def test_a_store_is_closed_while_the_server_is_suspended(own_server: PostgresServer) -> None:
    async def main() -> None:
        address = own_server.make_database()
        async with opened(address, patience_sec=LONG_SEC) as store:
            run = await persistently(store, 0)
            own_server.freeze()
            pending = [asyncio.create_task(again(store.get(run.id))), asyncio.create_task(attempt(store, 1))]
            await asyncio.sleep(0)
        assert await asyncio.gather(*pending) == [None, None]

    asyncio.run(asyncio.wait_for(main(), LONG_SEC))


def test_a_store_is_not_opened_while_the_server_is_suspended(own_server: PostgresServer) -> None:
    async def main() -> None:
        address = own_server.make_database()
        own_server.freeze()
        with pytest.raises(Unavailable, match="cannot be used"):
            async with opened(address, patience_sec=1.0):
                pass
        own_server.thaw()
        async with opened(address, patience_sec=LONG_SEC) as store:
            assert "0 runs" in await store.check()

    asyncio.run(asyncio.wait_for(main(), LONG_SEC))


# A server that is alive, and slow.


def test_a_statement_that_takes_too_long_is_ended_by_the_server(address: str) -> None:
    from askback.store.postgres import PostgresStore
    from askback.store.postgres.connection import Limits

    async def main() -> None:
        store = await PostgresStore.open(address, limits=Limits(statement_sec=0.2))
        with pytest.raises(Unavailable, match="takes too long: canceling statement due to statement timeout"):
            await store.read(lambda connection: connection.fetch("SELECT pg_sleep(600)"))
        await store.close()

    asyncio.run(asyncio.wait_for(main(), LONG_SEC))
