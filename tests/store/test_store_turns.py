"""The queue as workers use it: in which order they get runs, and that each run is claimed once. On every store there is."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress

import pytest
from lives import NOON, create, new_run, reply, running, start, waiting
from stores import OpenStore

from askback.core.errors import Conflict
from askback.core.runs import SHARED, RunState
from askback.core.signals import CancelRequested, SlotAcquired, TurnLost
from askback.store.base import Store, move
from askback.store.turns import Room, Turns

LIMIT_SEC = 120.0


async def taken(turns: Turns, room: int = 9, **engines: int) -> list[str]:
    return [ticket.run.id for ticket in await turns.take(Room(total=room, engines=engines or {"scripted": room}))]


@pytest.mark.contract("M-3")
def test_restarts_go_before_replies_and_replies_before_new_runs(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            asked = [await waiting(store, new_run(f"asked-{n}")) for n in range(2)]
            broken = [await running(store, new_run(f"broken-{n}")) for n in range(2)]
            for n in range(2):
                await create(store, new_run(f"new-{n}"))
            for run in asked:
                await reply(store, run)
            for run in broken:
                await move(store, run.id, TurnLost(epoch=run.epoch, at=NOON, counted=False))
            expected = ["broken-0", "broken-1", "asked-0", "asked-1", "new-0", "new-1"]
            queued = await store.queued([SHARED], without_engines=[], limit=9)
            assert [run.id for run in queued] == expected
            longest = await store.longest_queued([SHARED])
            assert longest is not None
            assert longest.id == "new-0"
            turns = store.turns({SHARED})
            assert await taken(turns, 4) == expected[:4]
            await turns.close()

    asyncio.run(main())


def test_a_reply_that_is_lost_again_is_a_restart(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            first = await start(store, await reply(store, await waiting(store, new_run("first"))))
            await reply(store, await waiting(store, new_run("second")))
            await move(store, first.id, TurnLost(epoch=first.epoch, at=NOON))
            turns = store.turns({SHARED})
            assert await taken(turns) == ["first", "second"]
            await turns.close()

    asyncio.run(main())


def test_nobody_has_been_queued_longest_in_an_empty_queue(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            run = await create(store, new_run(owner="somebody"))
            assert await store.longest_queued([SHARED]) is None
            assert await store.longest_queued([SHARED, "somebody"]) == run

    asyncio.run(main())


@pytest.mark.contract("M-3")
def test_runs_of_a_full_engine_and_of_other_owners_are_not_taken(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            for engine in ("codex", "gemini", "codex"):
                await create(store, new_run(f"{engine}-{len(await store.owned_by(SHARED))}", engine=engine))
            await create(store, new_run("theirs", owner="somebody", engine="gemini"))
            turns = store.turns({SHARED})
            assert await taken(turns, codex=0, gemini=3) == ["gemini-1"]
            await turns.close()

    asyncio.run(main())


async def work(store: Store, turns: Turns, claims: list[str]) -> None:
    """What a worker does, without the turns themselves."""
    changes = store.changes()
    while True:
        tickets = await turns.take(Room(total=3, engines={"scripted": 3}))
        for ticket in tickets:
            with suppress(Conflict):
                run = await move(store, ticket.run.id, SlotAcquired(worker="w", at=NOON), seen=ticket.run)
                claims.append(run.id)
            turns.done(ticket)
        if not tickets:
            turns.notify(await changes.wait())


@pytest.mark.contract("M-3")
def test_two_workers_on_one_queue_claim_every_run_once(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store, open_store() as other, asyncio.timeout(LIMIT_SEC):
            claims: list[str] = []
            queues = [(each, each.turns({SHARED})) for each in (store, other)]
            workers = [asyncio.create_task(work(*queue, claims)) for queue in queues]
            names = [f"run-{n}" for n in range(30)]
            await asyncio.gather(*(create(store, new_run(name)) for name in names))
            while len(set(claims)) < len(names):
                await asyncio.sleep(0.01)
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            assert Counter(claims) == Counter(names)
            assert await store.queued([SHARED], without_engines=[], limit=99) == ()
            assert {(await store.get(name)).epoch for name in names} == {1}
            assert {(await store.get(name)).state for name in names} == {RunState.RUNNING}
            for _, turns in queues:
                await turns.close()

    asyncio.run(main())


def test_a_run_that_was_put_back_is_taken_by_another_worker(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store, open_store() as other, asyncio.timeout(LIMIT_SEC):
            run = await create(store, new_run())
            turns, others = store.turns({SHARED}), other.turns({SHARED})
            (ticket,) = await turns.take(Room(total=1, engines={"scripted": 1}))
            turns.put_back(ticket)
            await turns.close()
            assert await taken(others) == [run.id]
            await others.close()

    asyncio.run(main())


def test_a_queue_that_is_in_order_is_left_alone(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            await create(store, new_run("queued"))
            await reply(store, await waiting(store, new_run("answered")))
            await running(store, new_run("running"))
            await move(store, (await create(store, new_run("canceled"))).id, CancelRequested(at=NOON))
            assert list(await store.repair_queue()) == []
            turns = store.turns({SHARED})
            assert await taken(turns) == ["answered", "queued"]
            await turns.close()

    asyncio.run(main())
