"""The jobs of Procrastinate: made with the change that needs them, dropped if they are outdated, and made again if lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from lives import NOON, create, finish, new_run, reply, running, start, waiting

from askback.core import lifecycle
from askback.core.errors import Conflict
from askback.core.runs import SHARED, Run, RunRequest, RunState
from askback.core.signals import Adopted, CancelRequested, SlotAcquired, TurnLost
from askback.store.base import move
from askback.store.pages import StaleWrite
from askback.store.sql.connection import Connection
from askback.store.sql.writes import ApplyDecision, Change, CreateRun
from askback.store.turns import Room, Ticket, Turns
from support import postgres
from support.postgres import PostgresServer
from support.postgres_proxy import PostgresProxy

if TYPE_CHECKING:
    from askback.store.postgres import PostgresStore

LONG_SEC = 240.0
ROOM = Room(total=9, engines={"scripted": 9})


@pytest.fixture(autouse=True)
def _needs_postgres() -> None:
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)


@asynccontextmanager
async def opened(address: str) -> AsyncIterator[PostgresStore]:
    from askback.store.postgres import PostgresStore

    store = await PostgresStore.open(address, patience_sec=LONG_SEC)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def taking(store: PostgresStore, *owners: str) -> AsyncIterator[Turns]:
    turns = store.turns(owners or {SHARED})
    try:
        yield turns
    finally:
        await turns.close()


@asynccontextmanager
async def tended(store: PostgresStore) -> AsyncIterator[Turns]:
    """As in a worker: what is given back is finished in the background."""
    async with taking(store) as turns:
        task = asyncio.create_task(turns.tend(lambda: None))
        try:
            yield turns
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def jobs(store: PostgresStore, run_id: str) -> list[tuple[str, int, str, int]]:
    """The state, the epoch, the lane and the priority of each."""
    sql = """SELECT status::text, (args ->> 'epoch')::bigint, queue_name, priority FROM procrastinate_jobs
        WHERE args ->> 'run' = :id ORDER BY id"""
    return await store.read(lambda connection: connection.fetch(sql, {"id": run_id}))


async def until_no_jobs(store: PostgresStore, *run_ids: str) -> None:
    for run_id in run_ids:
        while await jobs(store, run_id):
            await asyncio.sleep(0.02)


def play(main: Any) -> None:
    asyncio.run(asyncio.wait_for(main(), LONG_SEC))


# One transaction.


@pytest.mark.contract("M-2")
def test_a_run_that_is_queued_has_exactly_one_job_for_its_epoch(address: str) -> None:
    async def main() -> None:
        async with opened(address) as store:
            run = await create(store, new_run("a"))
            assert await jobs(store, "a") == [("todo", 0, "/scripted", 0)]
            run = await move(store, "a", TurnLost(epoch=(await start(store, run)).epoch, at=NOON))
            assert await jobs(store, "a") == [("todo", 1, "/scripted", 20)]
            await reply(store, await waiting(store, new_run("b", owner="me", engine="codex")), owner="me")
            assert await jobs(store, "b") == [("todo", 1, "me/codex", 10)]

    play(main)


def failing(work: Callable[[Connection], Change]) -> Callable[[Connection], Change]:
    """A write that fails at its very end."""

    def write(connection: Connection) -> Change:
        work(connection)
        raise RuntimeError("on purpose")

    return write


@pytest.mark.contract("M-2")
def test_a_change_that_is_rolled_back_leaves_no_job(address: str) -> None:
    async def main() -> None:
        async with opened(address) as store:
            creation = CreateRun(lifecycle.create(new_run("new"), {}), RunRequest(), None)
            with pytest.raises(RuntimeError, match="on purpose"):
                await store.write(failing(creation.write))
            assert await jobs(store, "new") == []
            run = await running(store, new_run("old"))
            lost = lifecycle.decide(run, TurnLost(epoch=run.epoch, at=NOON))
            assert isinstance(lost, lifecycle.Decision)
            with pytest.raises(RuntimeError, match="on purpose"):
                await store.write(failing(ApplyDecision(run, lost).write))
            with pytest.raises(StaleWrite):
                await store.apply(run.evolve(version=run.version - 1), lost)
            assert await jobs(store, "old") == []
            assert (await store.get("old")) == run

    play(main)


# Outdated jobs.


def test_a_queued_run_that_is_canceled_leaves_no_job_for_workers_to_drop(address: str) -> None:
    async def main() -> None:
        async with opened(address) as store, taking(store) as turns:
            names = [f"run-{n}" for n in range(20)]
            for name in names:
                await create(store, new_run(name))
            for name in names:
                await move(store, name, CancelRequested(at=NOON))
            assert await store.read(lambda it: it.fetch("SELECT id FROM procrastinate_jobs")) == []
            await create(store, new_run("next"))
            assert [ticket.run.id for ticket in await turns.take(ROOM)] == ["next"]

    play(main)


def test_a_cancel_while_a_worker_has_the_job_leaves_the_job_to_the_worker(address: str) -> None:
    async def main() -> None:
        async with opened(address) as store, tended(store) as turns:
            await create(store, new_run("a"))
            (ticket,) = await turns.take(ROOM)
            await move(store, "a", CancelRequested(at=NOON))
            assert [state for state, *_ in await jobs(store, "a")] == ["doing"]
            turns.done(ticket)
            await until_no_jobs(store, "a")

    play(main)


def test_outdated_jobs_are_dropped_when_they_are_fetched(address: str) -> None:
    async def main() -> None:
        async with opened(address) as store, tended(store) as turns:
            for name in ("claimed", "gone", "left"):
                await create(store, new_run(name))
            # As an earlier version leaves them.
            await store.read(lambda it: it.fetch("UPDATE runs SET id = 'other' WHERE id = 'gone' RETURNING 1"))
            await store.read(lambda it: it.fetch("UPDATE runs SET epoch = 1 WHERE id = 'claimed' RETURNING 1"))
            await store.read(lambda it: it.fetch("UPDATE procrastinate_jobs SET args = args - 'party' RETURNING 1"))
            with suppress(Conflict):
                await move(store, "claimed", SlotAcquired(worker="w", at=NOON))
            assert [ticket.run.id for ticket in await turns.take(ROOM)] == ["left"]
            await until_no_jobs(store, "claimed", "gone")

    play(main)


def test_the_claim_of_a_run_removes_its_job(address: str) -> None:
    async def main() -> None:
        async with opened(address) as store, taking(store) as turns:
            run = await create(store, new_run("a"))
            (ticket,) = await turns.take(ROOM)
            assert [state for state, *_ in await jobs(store, "a")] == ["doing"]
            assert await turns.take(ROOM) == []
            run = await start(store, run)
            assert await jobs(store, "a") == []
            turns.claimed(ticket)
            # What the next turn of the run waits for is another job.
            await move(store, "a", TurnLost(epoch=run.epoch, at=NOON))
            assert [each.run.id for each in await turns.take(ROOM)] == ["a"]

    play(main)


@pytest.mark.contract("M-3")
def test_no_more_jobs_are_fetched_than_there_are_slots_for_the_engine(address: str) -> None:
    async def main() -> None:
        async with opened(address) as store, taking(store) as turns:
            for n, engine in enumerate(["codex", "codex", "codex", "gemini", "unknown"]):
                await create(store, new_run(f"{engine}-{n}", engine=engine))
            found = await turns.take(Room(total=4, engines={"codex": 2, "gemini": 0}))
            assert [ticket.run.id for ticket in found] == ["codex-0", "codex-1"]
            assert [state for state, *_ in await jobs(store, "codex-2")] == ["todo"]
            assert await turns.take(Room(total=4, engines={"codex": 0, "gemini": 0})) == []

    play(main)


# Owners and deletion.


def test_a_run_that_is_adopted_has_its_job_in_the_lane_of_its_new_owner(address: str) -> None:
    async def main() -> None:
        async with opened(address) as store, taking(store, "me") as mine, taking(store, "dead") as dead:
            await create(store, new_run("a", owner="dead"))
            await move(store, "a", Adopted(owner="me", left_by="dead", at=NOON))
            assert [lane for _, _, lane, _ in await jobs(store, "a")] == ["me/scripted"]
            assert await dead.take(ROOM) == []
            assert [ticket.run.id for ticket in await mine.take(ROOM)] == ["a"]

    play(main)


def test_a_run_whose_owner_died_with_its_job_is_taken_by_the_next_owner(address: str) -> None:
    async def main() -> None:
        async with opened(address) as store, taking(store, "me") as mine:
            await create(store, new_run("a", owner="dead"))
            dead = store.turns({"dead"})
            (late,) = await dead.take(ROOM)
            await move(store, "a", Adopted(owner="me", left_by="dead", at=NOON))
            (ticket,) = await mine.take(ROOM)
            assert ticket.run.owner == "me"
            # It was not dead, but slow: its job is another one.
            dead.put_back(late)
            await dead.close()
            assert ticket.job != late.job
            await move(store, "a", SlotAcquired(worker="w", at=NOON), seen=ticket.run)
            with pytest.raises(Conflict):
                await move(store, "a", SlotAcquired(worker="dead", at=NOON), seen=late.run)

    play(main)


def test_a_deleted_run_leaves_no_job(address: str) -> None:
    async def main() -> None:
        async with opened(address) as store, tended(store) as turns:
            await create(store, new_run("a"))
            await create(store, new_run("b"))
            tickets = {ticket.run.id: ticket for ticket in await turns.take(Room(total=1, engines={"scripted": 1}))}
            for name in ("a", "b"):
                await move(store, name, CancelRequested(at=NOON))
            assert await store.forget(["a", "b"]) == ("a", "b")
            assert await jobs(store, "a") == await jobs(store, "b") == []
            # Its job is gone, which does no harm.
            turns.done(tickets["a"])
            await create(store, new_run("c"))
            assert [ticket.run.id for ticket in await turns.take(ROOM)] == ["c"]

    play(main)


# Lost jobs.


@pytest.mark.contract("M-2")
def test_queued_runs_whose_jobs_were_lost_get_new_ones(address: str) -> None:
    async def main() -> None:
        async with opened(address) as store, opened(address) as other, taking(store) as turns:
            await create(store, new_run("new"))
            await reply(store, await waiting(store, new_run("answered")))
            await running(store, new_run("running"))
            await store.read(lambda it: it.fetch("DELETE FROM procrastinate_jobs RETURNING id"))
            assert await turns.take(ROOM) == []
            assert sorted(await other.repair_queue()) == ["answered", "new"]
            assert await other.repair_queue() == ()
            assert [ticket.run.id for ticket in await turns.take(ROOM)] == ["answered", "new"]

    play(main)


class Commits:
    """Counts the transactions that a program commits. Implements `store.base.StoreObserver`."""

    def __init__(self) -> None:
        self.number = 0

    def changed(self, before: Run | None, decision: lifecycle.Decision) -> None:
        """Nothing."""

    def committed(self, seconds: float) -> None:
        self.number += 1


def test_a_queue_that_is_in_order_is_not_written_to(address: str) -> None:
    async def main() -> None:
        async with opened(address) as store, taking(store) as turns:
            for name in ("queued", "fetched"):
                await create(store, new_run(name))
            await running(store, new_run("running"))
            assert len(await turns.take(Room(total=1, engines={"scripted": 1}))) == 1
            commits = Commits()
            store.observe(commits)
            assert await store.repair_queue() == ()
            assert commits.number == 0
            await store.read(lambda it: it.fetch("DELETE FROM procrastinate_jobs RETURNING id"))
            assert sorted(await store.repair_queue()) == ["fetched", "queued"]
            assert commits.number == 1

    play(main)


async def pass_time(store: PostgresStore) -> None:
    """What was fetched so far was fetched a minute ago."""
    sql = "UPDATE procrastinate_events SET at = at - interval '1 minute' RETURNING id"
    await store.read(lambda connection: connection.fetch(sql))


def test_a_job_that_was_fetched_and_not_used_is_made_again(address: str) -> None:
    async def main() -> None:
        async with opened(address) as store, taking(store) as turns:
            for name in ("unused", "used", "over"):
                await create(store, new_run(name))
            dead = store.turns({SHARED})
            tickets = {ticket.run.id: ticket for ticket in await dead.take(ROOM)}
            used = await start(store, tickets["used"].run)
            await move(store, (await start(store, tickets["over"].run)).id, CancelRequested(at=NOON))
            run = await store.get("over")
            await move(store, "over", TurnLost(epoch=run.epoch, at=NOON))
            # It may still be claimed.
            assert await store.repair_queue() == ()
            assert await turns.take(ROOM) == []
            await pass_time(store)
            assert await store.repair_queue() == ("unused",)
            assert await jobs(store, "over") == []
            assert await jobs(store, "used") == []
            assert [ticket.run.id for ticket in await turns.take(ROOM)] == ["unused"]
            # A job that was removed is not finished or put back a second time.
            dead.put_back(tickets["unused"])
            dead.done(tickets["over"])
            await dead.close()
            assert [state for state, *_ in await jobs(store, "unused")] == ["doing"]
            assert (await store.get("used")) == used

    play(main)


def test_what_a_worker_put_back_wakes_other_programs(address: str) -> None:
    async def main() -> None:
        async with opened(address) as store, opened(address) as other:
            changes = other.changes()
            await create(store, new_run("a"))
            await changes.wait()
            async with taking(store) as turns:
                (ticket,) = await turns.take(ROOM)
                turns.put_back(ticket)
            changed = await changes.wait()
            async with taking(other) as others:
                assert others.notify(changed)
                assert [ticket.run.id for ticket in await others.take(ROOM)] == ["a"]
            changes.close()

    play(main)


@pytest.mark.parametrize("forward", [False, True], ids=["before it arrives", "after it arrived"])
def test_a_fetch_whose_answer_is_lost_loses_no_run(
    address: str, forward: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from askback.store.postgres import turns as module

    monkeypatch.setattr(module, "_POLL_SEC", 0.05)

    async def main() -> None:
        with PostgresProxy(address) as proxy:
            async with opened(address) as direct, opened(proxy.address) as store, tended(store) as turns:
                assert await turns.take(ROOM) == []
                for number in range(1, 4):
                    name = f"run-{number}"
                    await create(direct, new_run(name))
                    proxy.arm(number, forward=forward)
                    found: list[Ticket] = []
                    while not found:
                        found += await turns.take(ROOM)
                        await asyncio.sleep(0.02)
                    proxy.disarm()
                    assert [ticket.run.id for ticket in found] == [name]
                    await start(direct, found[0].run)
                    turns.done(found[0])
                    await until_no_jobs(direct, name)

    play(main)


def test_a_worker_whose_row_was_removed_registers_again(address: str) -> None:
    async def main() -> None:
        async with opened(address) as store, taking(store) as turns:
            assert await turns.take(ROOM) == []
            await store.read(lambda it: it.fetch("DELETE FROM procrastinate_workers RETURNING id"))
            await create(store, new_run("a"))
            assert [ticket.run.id for ticket in await turns.take(ROOM)] == ["a"]

    play(main)


# A server that fails.


async def live(store: PostgresStore, turns: Turns, over: asyncio.Event) -> None:
    """A worker whose turns end at once."""
    while not over.is_set():
        for ticket in await turns.take(Room(total=2, engines={"scripted": 2})):
            with suppress(Conflict):
                run = await move(store, ticket.run.id, SlotAcquired(worker="w", at=NOON), seen=ticket.run)
                await finish(store, run)
            turns.done(ticket)
        await asyncio.sleep(0.005)


async def ended(store: PostgresStore, name: str) -> Run:
    while (run := await store.get(name)).state is not RunState.SUCCEEDED:
        await asyncio.sleep(0.02)
    return run


@pytest.mark.contract("M-2")
def test_every_turn_is_claimed_once_while_the_server_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    from askback.store.postgres import turns as module

    monkeypatch.setattr(module, "_POLL_SEC", 0.05)

    async def main() -> None:
        server = PostgresServer()
        try:
            address = server.make_database()
            async with opened(address) as store, opened(address) as other:
                over = asyncio.Event()
                async with tended(store) as mine, tended(other) as theirs:
                    workers = [
                        asyncio.create_task(live(each, turns, over)) for each, turns in ((store, mine), (other, theirs))
                    ]
                    names = [f"run-{n}" for n in range(40)]
                    for n, name in enumerate(names):
                        await create(store, new_run(name))
                        if n in (10, 25):
                            await asyncio.to_thread(server.crash)
                            await asyncio.to_thread(server.start)
                    assert {(await ended(store, name)).epoch for name in names} == {1}
                    over.set()
                    await asyncio.gather(*workers)
                    await until_no_jobs(store, *names)
        finally:
            server.close()

    play(main)
