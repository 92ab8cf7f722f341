"""Pools among callers: they take turns, and none of them has all threads or all places."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askback.background.pools import PARTY, Party, Pool, Shares
from askback.core.errors import RefusalCode, Unavailable

ANNA, BEN = ("anna",), ("ben",)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 120))


async def as_party(party: Party, work: Awaitable[Any]) -> Any:
    PARTY.set(party)
    return await work


def begun(party: Party, work: Awaitable[Any]) -> asyncio.Task[Any]:
    """A task of this party. Yield to the event loop once, and its job is in the pool."""
    return asyncio.create_task(as_party(party, work))


def test_a_caller_with_sixty_jobs_delays_another_by_one() -> None:
    async def main() -> None:
        pool, gate, order = Pool("tested", threads=1, waiting=200), threading.Event(), list[str]()

        def job(name: str) -> None:
            gate.wait()
            order.append(name)

        jobs = [begun(ANNA, pool.run(job, "anna")) for _ in range(60)]
        await asyncio.sleep(0)
        jobs.append(begun(BEN, pool.run(job, "ben")))
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(*jobs)
        assert (order.index("ben"), len(order)) == (1, 61)

    run(main)


@pytest.mark.parametrize("admitted", [True, False], ids=["admitted", "new"])
def test_a_caller_never_has_all_threads(admitted: bool) -> None:
    async def main() -> None:
        pool, gate = Pool("tested", threads=3, waiting=200), threading.Event()
        jobs = [begun(ANNA, pool.run(gate.wait, admitted=admitted)) for _ in range(40)]
        await asyncio.sleep(0)
        for _ in range(3):
            assert await begun(BEN, pool.run(lambda: "free")) == "free"
        gate.set()
        assert await asyncio.gather(*jobs) == [True] * 40

    run(main)


def test_a_caller_never_has_all_places_and_all_links_of_a_token_are_one_caller() -> None:
    async def main() -> None:
        pool, gate = Pool("tested", threads=1, waiting=63), threading.Event()
        callers = [[("anna",)] * 64, [("links of anna", f"link {n}") for n in range(64)]]
        for parties in callers:
            jobs = [begun(each, pool.run(gate.wait)) for each in parties]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            refused = [each.exception() for each in jobs if each.done()]
            assert 0 < len(refused) < 64
            assert all(isinstance(e, Unavailable) and e.code is RefusalCode.SERVER_BUSY for e in refused)
        last = begun(BEN, pool.run(lambda: "free"))
        await asyncio.sleep(0)
        gate.set()
        assert await last == "free"

    run(main)


def test_one_link_has_few_of_the_places_of_all_links() -> None:
    async def main() -> None:
        pool, gate = Pool("tested", threads=1, waiting=63), threading.Event()
        greedy = [begun(("links of anna", "link 1"), pool.run(gate.wait)) for _ in range(64)]
        await asyncio.sleep(0)
        other = begun(("links of anna", "link 2"), pool.run(lambda: "free"))
        await asyncio.sleep(0)
        gate.set()
        assert await other == "free"
        answers = await asyncio.gather(*greedy, return_exceptions=True)
        assert answers.count(True) == 63 // 16

    run(main)


def test_a_caller_that_leaves_its_jobs_behind_does_not_get_more_threads() -> None:
    async def main() -> None:
        pool, gate, began = Pool("tested", threads=2, waiting=9), threading.Event(), threading.Semaphore(0)

        def endless() -> None:
            began.release()
            gate.wait()

        for _ in range(4):
            left = begun(ANNA, pool.run(endless))
            await asyncio.sleep(0)
            if _ == 0:
                await asyncio.to_thread(began.acquire)
            left.cancel()
            await asyncio.gather(left, return_exceptions=True)
        assert await begun(BEN, pool.run(lambda: "free")) == "free"
        assert not began.acquire(blocking=False)
        again = begun(ANNA, pool.run(lambda: "again"))
        await asyncio.sleep(0)
        gate.set()
        assert await again == "again"

    run(main)


def test_whoever_waits_when_a_pool_is_closed_gets_an_answer() -> None:
    async def main() -> None:
        pool, gate = Pool("tested", threads=2, waiting=9), threading.Event()
        jobs = [begun(ANNA, pool.run(gate.wait)) for _ in range(4)]
        await asyncio.sleep(0)
        pool.close()
        gate.set()
        answers = await asyncio.gather(*jobs, return_exceptions=True)
        assert [each for each in answers if each is not True]
        assert all(each is True or isinstance(each, Unavailable) for each in answers)

    run(main)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 40)), max_size=60))
def test_whatever_a_caller_holds_it_held_no_more_than_was_free(wanted: list[tuple[str, int]]) -> None:
    shares, held, free = Shares(256, of_link=8), dict.fromkeys("abcd", 0), 256
    for name, amount in wanted:
        fits = held[name] + amount <= free
        assert shares.take((name,), amount) is fits
        if fits:
            held[name] += amount
            free -= amount
    for name, amount in held.items():
        shares.give_back((name,), amount)
    assert shares.take((), 256)
