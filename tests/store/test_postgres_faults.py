"""A PostgreSQL server that restarts, fails or cannot be reached, and connections that are cut at every statement."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from lives import NOON, ask, at, create, finish, message, name_handle, new_run, reply, start
from test_store_crashes import agrees_with_itself

from askback.core import lifecycle
from askback.core.errors import Conflict, Unavailable
from askback.core.runs import Run, RunRequest
from askback.core.webhooks import Webhook
from askback.store.base import Store
from askback.store.pages import UNKNOWN_RUN, IdempotencyKey, RunFilter
from support import postgres
from support.postgres import PostgresServer, databases
from support.postgres_proxy import PostgresProxy

LONG_SEC = 240.0
HOOK = Webhook(url="https://hooks.example/one")


@pytest.fixture(autouse=True)
def _needs_postgres() -> None:
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that writes to disk before it acknowledges, for this test alone."""
    server = PostgresServer(durable=True)
    yield server
    server.close()


@asynccontextmanager
async def opened(address: str, patience_sec: float = LONG_SEC) -> AsyncIterator[Store]:
    from askback.store.postgres import PostgresStore

    store = await PostgresStore.open(address, patience_sec=patience_sec)
    try:
        yield store
    finally:
        await store.close()


# A server that was never reached.


def test_the_first_wait_is_told_once_with_its_limit(caplog: pytest.LogCaptureFixture) -> None:
    from askback.store.postgres.link import Server

    server = Server("postgresql://me:geheim@127.0.0.1:1/askback", patience_sec=1)
    with pytest.raises(Unavailable):
        server.retry_lost(server.connect)
    (told,) = [record.getMessage() for record in caplog.records if record.name.startswith("askback.store")]
    assert told.startswith("waiting for the PostgreSQL database 'askback' on 127.0.0.1:1, for 1 seconds at most: ")
    assert "geheim" not in told


def test_a_connection_that_was_never_made_is_not_called_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with opened(f"postgresql:///nothing?host={tmp_path}", patience_sec=0.1):
            pass

    with pytest.raises(Unavailable):
        asyncio.run(main())
    assert not [each for each in caplog.messages if "lost" in each]


# A connection that is cut.


async def created(store: Store, name: str) -> Run:
    return await create(store, new_run(name, labels={"team": "a"}), key=IdempotencyKey(key=name, body_digest="d"))


async def asked(store: Store, run: Run) -> Run:
    return await ask(store, run)


async def spoken(store: Store, run: Run) -> Run:
    await store.append(run.id, run.epoch, [message("one"), message("two")])
    return run


STEPS: dict[str, Callable[[Store, Run], Awaitable[Run]]] = {
    "start": start,
    "name": name_handle,
    "append": spoken,
    "ask": asked,
    "reply": reply,
    "start again": start,
    "finish": finish,
}


async def lived(store: Store, proxy: PostgresProxy, name: str, number: int, *, forward: bool) -> int:
    """A run from its start to its end. Every write of it loses its connection at the same statement, if it has so many.

    Returns how many were cut.
    """
    cut = 0
    proxy.arm(number, forward=forward)
    run = await created(store, name)
    cut += proxy.disarm()
    for step in STEPS.values():
        proxy.arm(number, forward=forward)
        run = await step(store, run)
        cut += proxy.disarm()
    return cut


async def untouched(store: Store) -> tuple[list[str], int, int]:
    run = await created(store, "untouched")
    for step in STEPS.values():
        run = await step(store, run)
    return [event.type for event in await store.events(run.id)], run.version, len(await sent(store, run.id))


async def sent(store: Store, run_id: str) -> list[int]:
    return [delivery.seq for delivery in (await store.deliveries(run_id, limit=200)).items]


async def queued_epochs(run_id: str, address: str) -> list[int]:
    """The epochs under which the run is queued, by its jobs."""
    name = address.partition("@/")[2].partition("?")[0]
    sql = (
        f"SELECT (args ->> 'epoch')::int FROM askback.procrastinate_jobs WHERE args ->> 'run' = '{run_id}' ORDER BY id"
    )
    return [epoch for (epoch,) in await asyncio.to_thread(databases.server.execute, sql, name)]


@pytest.mark.contract("M-2")
@pytest.mark.parametrize("forward", [False, True], ids=["before it arrives", "after it arrived"])
def test_a_write_whose_connection_is_cut_at_any_statement_happens_once(address: str, forward: bool) -> None:
    async def main() -> None:
        with PostgresProxy(address) as proxy:
            async with opened(address) as direct, opened(proxy.address) as store:
                await direct.register_webhooks([HOOK])
                expected = await untouched(direct)
                for number in itertools.count(1):
                    name = f"run-{number}"
                    cut = await lived(store, proxy, name, number, forward=forward)
                    events = [event.type for event in await direct.events(name)]
                    run = await direct.get(name)
                    assert (events, run.version, len(await sent(direct, name))) == expected, number
                    assert await queued_epochs(name, address) == [], number
                    await agrees_with_itself(direct, name)
                    if not cut:
                        break
                assert number > 10
                assert await direct.queued([""], without_engines=[], limit=9) == ()
                stats = await direct.run_stats(NOON.date(), at(60).date())
                assert sum(finished.runs for finished in stats.days.values()) == number + 1

    asyncio.run(asyncio.wait_for(main(), LONG_SEC))


def test_a_read_whose_connection_is_cut_is_repeated(address: str) -> None:
    async def main() -> None:
        with PostgresProxy(address) as proxy:
            async with opened(proxy.address) as store:
                run = await create(store, new_run())
                for forward in (False, True):
                    proxy.arm(1, forward=forward)
                    assert await store.get(run.id) == run
                    assert proxy.disarm()
                    proxy.arm(2, forward=forward)
                    assert len(await store.events(run.id)) == 2
                    assert proxy.disarm()

    asyncio.run(asyncio.wait_for(main(), LONG_SEC))


# A server that fails.


async def make_runs(store: Store, prefix: str, stop: asyncio.Event) -> list[Run]:
    """Runs, one after the other, each with a question; returns those that were acknowledged."""
    made: list[Run] = []
    for number in itertools.count():
        name = f"{prefix}-{number}"
        run = await create(store, new_run(name), key=IdempotencyKey(key=name, body_digest="digest"))
        made.append(await ask(store, await name_handle(store, await start(store, run))))
        if stop.is_set():
            return made
    return made


@pytest.mark.contract("M-9")
@pytest.mark.parametrize("how", ["crash", "kill"])
def test_nothing_acknowledged_is_lost_when_the_server_fails_under_load(own_server: PostgresServer, how: str) -> None:
    async def main() -> None:
        address = own_server.make_database()
        async with opened(address) as store:
            stop = asyncio.Event()
            tasks = [asyncio.create_task(make_runs(store, f"maker-{n}", stop)) for n in range(6)]
            for _ in range(2):
                before = len((await store.list_runs(RunFilter(), limit=10_000)).items)
                while len((await store.list_runs(RunFilter(), limit=10_000)).items) < before + 10:
                    await asyncio.sleep(0.01)
                await asyncio.to_thread(getattr(own_server, how))
                await asyncio.to_thread(own_server.start)
            stop.set()
            made = [run for task in tasks for run in await task]
            assert {run.id for run in (await store.list_runs(RunFilter(), limit=10_000)).items} == {
                run.id for run in made
            }
            for run in made:
                assert await store.get(run.id) == run
                await agrees_with_itself(store, run.id)

    asyncio.run(asyncio.wait_for(main(), 2 * LONG_SEC))


def test_connections_that_the_server_ends_again_and_again_lose_nothing(address: str) -> None:
    async def main() -> None:
        name = address.partition("@/")[2].partition("?")[0]
        end = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}' AND pid <> pg_backend_pid()"
        async with opened(address) as store:
            stop = asyncio.Event()
            tasks = [asyncio.create_task(make_runs(store, f"maker-{n}", stop)) for n in range(4)]
            for _ in range(20):
                await asyncio.to_thread(databases.server.execute, end)
                await store.ping()
            stop.set()
            for run in [run for task in tasks for run in await task]:
                assert await store.get(run.id) == run
                await agrees_with_itself(store, run.id)

    asyncio.run(asyncio.wait_for(main(), LONG_SEC))


def test_a_server_that_is_away_is_reported_and_used_again_when_it_is_back(own_server: PostgresServer) -> None:
    async def main() -> None:
        address = own_server.make_database()
        async with opened(address, patience_sec=0.2) as store:
            run = await create(store, new_run())
            await asyncio.to_thread(own_server.crash)
            with pytest.raises(Unavailable, match="cannot be used"):
                await start(store, run)
            with pytest.raises(Unavailable, match="cannot be used"):
                await store.ping()
            with pytest.raises(Unavailable, match="cannot be used"):
                await store.check()
            await asyncio.to_thread(own_server.start)
            assert (await start(store, run)).epoch == 1
            assert "1 runs" in await store.check()

    asyncio.run(asyncio.wait_for(main(), LONG_SEC))


# Notifications.


def test_after_the_listening_connection_was_lost_any_run_may_have_changed(address: str) -> None:
    async def main() -> None:
        async with opened(address) as store, opened(address) as other:
            changes = store.changes()
            run = await create(other, new_run())
            assert await changes.wait() == {run.id: None}
            databases.server.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
            )
            assert await changes.wait() == {UNKNOWN_RUN: None}
            await start(other, run)
            assert await changes.wait() == {run.id: None}
            changes.close()

    asyncio.run(asyncio.wait_for(main(), LONG_SEC))


def test_other_programs_learn_whether_a_run_moved_or_only_has_new_events(address: str) -> None:
    async def main() -> None:
        async with opened(address) as store, opened(address) as other:
            changes = store.changes()
            run = await start(other, await create(other, new_run()))
            await create(other, new_run("marker"))
            # Notifications come in the order of the commits.
            while "marker" not in await changes.wait():
                pass
            events = store.new_events(run.id)
            await other.append(run.id, run.epoch, [message("hello")])
            assert (await events.wait()).more
            moved = await create(other, new_run("later"))
            assert await changes.wait() == {moved.id: None}
            for each in (changes, events):
                each.close()

    asyncio.run(asyncio.wait_for(main(), LONG_SEC))


@pytest.mark.parametrize("garbage", ["", "garbage", "two words", "one of unknown-kind", "x moved"])
def test_a_notification_of_somebody_else_is_no_obstacle(address: str, garbage: str) -> None:
    """Every user of the database may send one, whatever else is denied."""

    async def main() -> None:
        async with opened(address) as store, opened(address) as other:
            changes = store.changes()
            name = address.partition("@/")[2].partition("?")[0]
            # The connection that listens gets both at once: the second is not to be left for later.
            databases.server.execute(
                f"BEGIN; NOTIFY askback, '{garbage}'; NOTIFY askback, 'program moved run-1'; COMMIT", name
            )
            assert await changes.wait() == {"run-1": None}
            run = await create(other, new_run())
            assert await changes.wait() == {run.id: None}
            changes.close()

    asyncio.run(asyncio.wait_for(main(), LONG_SEC))


# Races of programs.


def test_programs_that_create_at_once_keep_keys_and_quotas(address: str) -> None:
    async def main() -> None:
        async with opened(address) as store, opened(address) as other:
            key = IdempotencyKey(key="same", body_digest="digest")
            both = (store, other)
            made = await asyncio.gather(
                *(create(both[n % 2], new_run(f"run-{n}"), key=key) for n in range(12)), return_exceptions=True
            )
            assert len({run.id for run in made if isinstance(run, Run)}) == 1
            assert all(isinstance(run, Run) for run in made)
            wanted = (lifecycle.create(new_run(f"mine-{n}", created_by="anna"), {}) for n in range(12))
            got = await asyncio.gather(
                *(both[n % 2].create(each, RunRequest(), max_open=3) for n, each in enumerate(wanted)),
                return_exceptions=True,
            )
            assert sum(isinstance(run, Run) for run in got) == 3
            assert sum(isinstance(error, Conflict) for error in got) == 9

    asyncio.run(asyncio.wait_for(main(), LONG_SEC))


def test_changes_are_heard_of_again_after_a_moment_without_threads(
    address: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The connection that listens is lost while no thread can be started to connect again."""
    import psycopg

    real, refused = threading.Thread.start, threading.Event()

    def start(self: threading.Thread) -> None:
        if refused.is_set():
            raise RuntimeError("can't start new thread")
        real(self)

    monkeypatch.setattr(threading.Thread, "start", start)

    async def main() -> None:
        async with opened(address) as store, opened(address) as other, asyncio.timeout(LONG_SEC):
            changes = store.changes()
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor())
            refused.set()
            with psycopg.connect(address) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND query = 'LISTEN askback'"
                )
            while "changes by other programs cannot be heard of" not in caplog.text:
                await asyncio.sleep(0.01)
            refused.clear()
            while UNKNOWN_RUN not in await changes.wait():
                pass
            await create(other, new_run("heard"))
            while "heard" not in await changes.wait():
                pass
            changes.close()

    asyncio.run(main())
