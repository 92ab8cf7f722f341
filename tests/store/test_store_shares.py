"""The queue among tokens: they take turns, and none gets more slots than its share. On every store there is."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lives import NOON, create, finish, name_handle, new_run, reply, running, start, waiting
from stores import OpenStore

from askback.core.errors import Conflict, RefusalCode
from askback.core.queue import UNLIMITED, Shares
from askback.core.runs import SHARED, Run
from askback.core.signals import SlotAcquired, TurnLost
from askback.store.base import Store, move
from askback.store.turns import Room, Ticket, Turns

LIMIT_SEC = 240.0
ENGINES = ("codex", "scripted")
ONE_EACH = Shares(usual=1)


def room(total: int = 9, shares: Shares | None = None) -> Room:
    engines = {**dict.fromkeys(ENGINES, total), "missing": 0}
    return Room(total=total, engines=engines, shares=shares or Shares())


async def queue(store: Store, token: str | None, *names: str, engine: str = "scripted") -> None:
    for name in names:
        await create(store, new_run(name, created_by=token, engine=engine))


async def claim(store: Store, turns: Turns, ticket: Ticket, shares: Shares = UNLIMITED) -> Run | None:
    try:
        signal = SlotAcquired(worker="w", at=NOON)
        return await move(store, ticket.run.id, signal, seen=ticket.run, shares=shares)
    except Conflict as error:
        (turns.put_back if error.code is RefusalCode.QUOTA_EXCEEDED else turns.done)(ticket)
        return None


async def serve(store: Store, turns: Turns, shares: Shares | None = None) -> str | None:
    """A worker with one slot: the run that it starts, if there is one."""
    for ticket in await turns.take(room(1, shares)):
        if (run := await claim(store, turns, ticket)) is not None:
            turns.done(ticket)
            return run.id
    return None


async def served(store: Store, number: int) -> list[str | None]:
    turns = store.turns({SHARED})
    try:
        return [await serve(store, turns) for _ in range(number)]
    finally:
        await turns.close()


def test_tokens_take_turns_however_many_runs_one_has_queued(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            await queue(store, "greedy", *(f"greedy-{n}" for n in range(4)))
            await queue(store, "other", "other-0", "other-1")
            await queue(store, None, "own-0")
            expected = ["greedy-0", "other-0", "own-0", "greedy-1", "other-1", "greedy-2", "greedy-3"]
            assert sorted(run.id for run in await store.queued([SHARED], without_engines=[], limit=9)) == sorted(
                expected
            )
            assert await served(store, 7) == expected
            assert await served(store, 1) == [None]

    asyncio.run(main())


def test_a_worker_with_many_slots_takes_from_every_token(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            await queue(store, "greedy", *(f"greedy-{n}" for n in range(9)))
            await queue(store, "other", "other-0", "other-1", engine="codex")
            turns = store.turns({SHARED})
            tickets = await turns.take(room(4))
            assert [ticket.run.id for ticket in tickets] == ["greedy-0", "other-0", "greedy-1", "other-1"]
            await turns.close()

    asyncio.run(main())


@pytest.mark.contract("M-3")
def test_replies_of_one_token_go_before_new_runs_of_another(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            asked = [await waiting(store, new_run(f"asked-{n}", created_by="asking")) for n in range(3)]
            broken = await running(store, new_run("broken", created_by="asking"))
            await queue(store, "new", "new-0", "new-1")
            for run in asked:
                await reply(store, run)
            await move(store, broken.id, TurnLost(epoch=broken.epoch, at=NOON))
            assert await served(store, 6) == ["broken", "asked-0", "asked-1", "asked-2", "new-0", "new-1"]

    asyncio.run(main())


def test_replies_do_not_cost_a_token_its_turn_among_new_runs(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            asked = [await waiting(store, new_run(f"asked-{n}", created_by="asking")) for n in range(3)]
            await queue(store, "asking", "new-of-asking")
            await queue(store, "other", *(f"other-{n}" for n in range(9)))
            started: list[str | None] = []
            for run in asked:
                await reply(store, run)
                started += await served(store, 2)
            assert started.index("new-of-asking") < 4

    asyncio.run(main())


def test_a_token_that_always_has_one_run_queued_does_not_starve_another(open_store: OpenStore) -> None:
    """Also while a run that nobody can execute, or that is held back, stays in the queue."""

    async def main() -> None:
        async with open_store() as store:
            await queue(store, "stuck", "stuck", engine="missing")
            await running(store, new_run("holding", created_by="full"))
            await queue(store, "full", "held-back")
            await queue(store, "backlog", *(f"backlog-{n}" for n in range(9)))
            turns = store.turns({SHARED})
            started: list[str] = []
            for number in range(10):
                await queue(store, "steady", f"steady-{number}")
                started.append(await serve(store, turns, Shares(named={"full": 1})) or "")
            assert Counter(name.split("-")[0] for name in started) == {"backlog": 5, "steady": 5}
            await turns.close()

    asyncio.run(main())


# A list of steps: the token of a run that is queued, or None: a slot is free.
NUMBERS = count()
STEPS = st.lists(st.sampled_from(["a", "b", "c", None]), max_size=40)


@given(steps=STEPS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_of_two_backlogged_tokens_none_gets_more_than_one_run_ahead(
    open_store: OpenStore, steps: Sequence[str | None]
) -> None:
    async def main() -> None:
        async with open_store() as store:
            for run in await store.queued([SHARED], without_engines=[], limit=999):
                await start(store, run)
            turns = store.turns({SHARED})
            backlog, lead = Counter[str](), Counter[tuple[str, str]]()
            for token in (*steps, *[None] * len(steps)):
                if token is not None:
                    name = f"{token}-{next(NUMBERS)}"
                    turns.notify({name: await create(store, new_run(name, created_by=token))})
                    backlog[token] += 1
                    continue
                started = await serve(store, turns)
                assert (started is None) == (not +backlog)
                if started is None:
                    continue
                mine = started[0]
                for other in "abc":
                    # The lead counts only while both have runs in the queue.
                    lead[mine, other] = lead[mine, other] + 1 if backlog[other] else 0
                    lead[other, mine] = lead[other, mine] - 1 if backlog[other] else 0
                    assert mine == other or lead[mine, other] <= 2
                backlog[mine] -= 1
            assert not +backlog
            await turns.close()

    asyncio.run(main())


def test_a_held_back_run_is_not_in_the_way_of_others_and_starts_when_one_ends(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            first = await running(store, new_run("first", created_by="greedy"))
            await queue(store, "greedy", "second", "third")
            await queue(store, "other", "other")
            queued = await store.queued([SHARED], without_engines=[], limit=9, shares=ONE_EACH)
            assert ([run.id for run in queued], queued.held_back) == (["other"], True)
            turns = store.turns({SHARED})
            assert [await serve(store, turns, ONE_EACH) for _ in range(2)] == ["other", None]
            await finish(store, first)
            turns.notify({"first": None})
            assert [await serve(store, turns, ONE_EACH) for _ in range(2)] == ["second", None]
            await turns.close()

    asyncio.run(main())


def test_a_sticky_run_that_waits_counts_and_a_resumable_one_does_not(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            await waiting(store, new_run("resumable", created_by="one"))
            await waiting(store, new_run("sticky", created_by="two", sticky=True))
            assert await store.held_by_token() == {"two": {"scripted": 1}}
            await queue(store, "one", "of-one")
            await queue(store, "two", "of-two")
            queued = await store.queued([SHARED], without_engines=[], limit=9, shares=ONE_EACH)
            assert [run.id for run in queued] == ["of-one"]

    asyncio.run(main())


def test_runs_without_a_token_and_tokens_without_a_limit_are_not_held_back(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            await queue(store, None, *(f"own-{n}" for n in range(3)))
            await queue(store, "main", *(f"main-{n}" for n in range(3)))
            shares = Shares(usual=1, named={"main": None})
            queued = await store.queued([SHARED], without_engines=[], limit=9, shares=shares)
            assert (len(queued), queued.held_back) == (6, False)
            turns = store.turns({SHARED})
            assert len([await serve(store, turns, shares) for _ in range(6)]) == 6
            await turns.close()

    asyncio.run(main())


def test_workers_that_claim_at_once_cannot_exceed_the_limit_together(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store, open_store() as other, asyncio.timeout(LIMIT_SEC):
            await queue(store, "greedy", *(f"run-{n}" for n in range(24)))
            stores = [(each, each.turns({SHARED})) for each in (store, other)]
            # Nobody has read the limit: it is the claims that refuse.
            taken = [(*each, ticket) for each in stores for ticket in await each[1].take(room(12))]
            claims = await asyncio.gather(*(claim(*each, Shares(usual=5)) for each in taken))
            assert len([run for run in claims if run is not None]) == 5
            assert await store.held_by_token() == {"greedy": {"scripted": 5}}
            for _, turns in stores:
                await turns.close()
            # Those that were refused are in the queue again.
            assert len(await other.queued([SHARED], without_engines=[], limit=99)) == 19

    asyncio.run(main())


def test_a_token_that_has_its_share_of_an_engine_leaves_the_rest_to_others(open_store: OpenStore) -> None:
    """The engine has two slots and the worker many: runs of other engines, and those of other tokens, go on."""
    shares = Shares(usual=3, named={"main": None}, engines={"scripted": 1}, of_any_engine=frozenset({"main"}))

    async def main() -> None:
        async with open_store() as store:
            await running(store, new_run("sleeping", created_by="greedy"))
            await queue(store, "greedy", *(f"greedy-{n}" for n in range(9)))
            await queue(store, "greedy", "codex-0", "codex-1", "codex-2", engine="codex")
            await queue(store, "other", "other-0", "other-1")
            await queue(store, "main", "main-0", "main-1")
            await queue(store, None, "own-0", "own-1")
            queued = await store.queued([SHARED], without_engines=[], limit=99, shares=shares)
            free = {"codex-0", "codex-1", "other-0", "main-0", "main-1", "own-0", "own-1"}
            assert ({run.id for run in queued}, queued.held_back) == (free, True)
            turns = store.turns({SHARED})
            started = [await serve(store, turns, shares) for _ in range(8)]
            assert {each for each in started if each} == free
            await turns.close()

    asyncio.run(main())


def test_workers_that_claim_at_once_cannot_exceed_the_share_of_an_engine_together(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store, open_store() as other, asyncio.timeout(LIMIT_SEC):
            await queue(store, "greedy", "of-another-engine", engine="codex")
            await queue(store, "greedy", *(f"run-{n}" for n in range(12)))
            stores = [(each, each.turns({SHARED})) for each in (store, other)]
            taken = [(*each, ticket) for each in stores for ticket in await each[1].take(room(7))]
            claims = await asyncio.gather(*(claim(*each, Shares(engines={"scripted": 2})) for each in taken))
            assert len([run for run in claims if run is not None]) == 3
            assert await store.held_by_token() == {"greedy": {"scripted": 2, "codex": 1}}
            for _, turns in stores:
                await turns.close()

    asyncio.run(main())


def test_two_workers_share_the_slots_among_tokens_while_they_race(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store, open_store() as other, asyncio.timeout(LIMIT_SEC):
            for n in range(12):
                await queue(store, "greedy", f"greedy-{n}", f"greedy-{n}-too")
            await queue(store, "other", *(f"other-{n}" for n in range(6)))
            started: list[str] = []

            async def work(own: Store) -> None:
                turns = own.turns({SHARED})
                while len(started) < 12:
                    for ticket in await turns.take(room(1)):
                        with suppress(Conflict):
                            run = await move(own, ticket.run.id, SlotAcquired(worker="w", at=NOON), seen=ticket.run)
                            started.append(run.id)
                            await finish(own, await name_handle(own, run))
                        turns.done(ticket)
                    turns.notify({"": None})
                await turns.close()

            await asyncio.gather(work(store), work(other))
            assert len([name for name in started if name.startswith("other")]) >= 5

    asyncio.run(main())
