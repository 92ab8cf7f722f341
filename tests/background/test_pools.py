"""Pools: bounded, abandoned with their callers, and never blocking a stop."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from askback.background.pools import Abandoned, Pool, Pools
from askback.core.errors import RefusalCode, Unavailable


def run(main: Callable[[], object]) -> None:
    asyncio.run(asyncio.wait_for(main(), 120))  # type: ignore[arg-type]


def test_one_job_too_many_is_refused_and_an_admitted_one_is_not() -> None:
    async def main() -> None:
        pool, free = Pool("tested", threads=1, waiting=1), threading.Event()
        jobs = [asyncio.create_task(pool.run(free.wait)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Unavailable) as refused:
            await pool.run(free.wait)
        assert refused.value.code is RefusalCode.SERVER_BUSY
        admitted = asyncio.create_task(pool.run(free.wait, admitted=True))
        await asyncio.sleep(0)
        free.set()
        assert await asyncio.gather(*jobs, admitted) == [True] * 3
        assert await pool.run(lambda: "again") == "again"

    run(main)


def test_work_ends_with_its_caller() -> None:
    async def main() -> None:
        pool, began, ended = Pool("tested", threads=1, waiting=1), threading.Event(), threading.Event()

        def endless(checkpoint: Callable[[], None]) -> None:
            began.set()
            try:
                while True:
                    checkpoint()
            finally:
                ended.set()

        caller = asyncio.create_task(pool.run_abandonable(endless))
        await asyncio.to_thread(began.wait)
        caller.cancel()
        assert await asyncio.to_thread(ended.wait, 60)
        assert await pool.run(lambda: "free") == "free"

    run(main)


def test_what_its_caller_no_longer_wants_is_not_begun() -> None:
    async def main() -> None:
        pool, free, begun = Pool("tested", threads=1, waiting=9), threading.Event(), threading.Event()
        first = asyncio.create_task(pool.run(free.wait))
        await asyncio.sleep(0)
        second = asyncio.create_task(pool.run(begun.set))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        free.set()
        assert await first
        await pool.run(lambda: None)
        assert not begun.is_set()

    run(main)


def test_work_that_is_over_is_not_begun_and_what_has_begun_is_waited_for() -> None:
    async def main() -> None:
        pool, over, began, ended = (
            Pool("tested", threads=1, waiting=9),
            asyncio.Event(),
            threading.Event(),
            threading.Event(),
        )

        def endless(checkpoint: Callable[[], None]) -> None:
            began.set()
            while True:
                try:
                    checkpoint()
                except Abandoned:
                    ended.set()
                    raise

        first = asyncio.create_task(pool.run_unless(over.wait, endless))
        await asyncio.to_thread(began.wait)
        done = asyncio.Event()
        done.set()
        with pytest.raises(Abandoned):
            await pool.run_unless(done.wait, endless)
        assert not ended.is_set()
        over.set()
        with pytest.raises(Abandoned):
            await first
        assert ended.is_set()
        assert await pool.run_unless(asyncio.Event().wait, lambda checkpoint: "done") == "done"

    run(main)


def test_an_error_belongs_to_the_caller_and_the_thread_lives_on() -> None:
    async def main() -> None:
        pool = Pool("tested", threads=1, waiting=1)
        for error in (ValueError("x"), SystemExit(3), KeyError("y")):

            def fail(error: BaseException = error) -> None:
                raise error

            with pytest.raises(type(error)):
                await pool.run(fail)
        assert await pool.run(lambda: 1) == 1

    run(main)


def test_a_thread_that_never_returns_does_not_hold_up_the_end_of_the_program() -> None:
    program = """
import asyncio, threading
from askback.background.pools import Pools
async def main():
    pools = Pools()
    jobs = [asyncio.create_task(pool.run(threading.Event().wait)) for pool in pools for _ in range(20)]
    await asyncio.sleep(0.1)
    pools.close()
asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_no_kind_takes_the_threads_of_another() -> None:
    async def main() -> None:
        pools, free = Pools(), threading.Event()
        held = [asyncio.create_task(pools.zipping.run(free.wait)) for _ in range(30)]
        await asyncio.sleep(0)
        for pool in pools:
            if pool is not pools.zipping:
                assert await pool.run(lambda: "free") == "free"
        free.set()
        await asyncio.gather(*held)

    run(main)
