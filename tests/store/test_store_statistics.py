"""Statistics: what ended on which day, why, and with how many tokens; what waits; how long answers took."""

from __future__ import annotations

import asyncio
from contextlib import closing
from datetime import date, datetime, timedelta
from pathlib import Path

import apsw
import pytest
from lives import NOON, at, create, new_run, reply, running, succeeded, waiting
from old_formats import downgrade
from stores import OpenStore, opened

from askback.core.errors import ErrorCode, RunError
from askback.core.outcomes import Final, TurnError
from askback.core.runs import Run, RunState, Usage
from askback.core.signals import CancelRequested, TurnEnded
from askback.store.base import Store, move
from askback.store.pages import Finished, RunFilter, RunStats
from askback.store.sqlite.connection import migrations, open_writer

TODAY = NOON.date()
USED = Usage(input_tokens=100, output_tokens=20, cached_tokens=5, total_tokens=120)


async def ended(store: Store, run: Run, when: datetime, usage: Usage | None = USED) -> Run:
    busy = await running(store, run)
    return await move(
        store, run.id, TurnEnded(epoch=busy.epoch, outcome=Final(data=None, done=True), usage=usage, at=when)
    )


async def failed(store: Store, run: Run, code: ErrorCode, when: datetime) -> Run:
    busy = await running(store, run)
    return await move(
        store, run.id, TurnEnded(epoch=busy.epoch, outcome=TurnError(error=RunError(code=code, message="no")), at=when)
    )


def day(number: int) -> datetime:
    """At noon, `number` days before."""
    return NOON - timedelta(days=number)


def test_a_store_without_runs_has_empty_statistics(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            stats = await store.run_stats(TODAY, TODAY)
            nothing = dict.fromkeys((RunState.QUEUED, RunState.RUNNING, RunState.WAITING_USER), 0)
            assert stats == RunStats(
                first=TODAY, last=TODAY, days={}, failures={}, skills={}, engines={}, unfinished=nothing, answer_sec=()
            )

    asyncio.run(main())


def test_runs_count_on_the_day_they_end_by_skill_engine_and_code(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            await ended(store, new_run("a", skill="trip", engine="codex"), day(2))
            await ended(store, new_run("b", skill="trip"), day(0))
            await ended(store, new_run("c"), day(0), usage=None)
            await failed(store, new_run("d", skill="trip"), ErrorCode.ENGINE_CRASHED, day(0))
            await failed(store, new_run("e", skill="trip"), ErrorCode.TURN_TIMEOUT, day(0))
            await failed(store, new_run("f", skill="trip"), ErrorCode.TURN_TIMEOUT, day(0))
            await move(store, (await waiting(store, new_run("g"))).id, CancelRequested(at=day(0)))
            await ended(store, new_run("before"), day(9))
            await create(store, new_run("queued"))
            stats = await store.run_stats(day(6).date(), TODAY)
            assert stats.days == {
                day(2).date(): Finished(succeeded=1, usage=USED),
                TODAY: Finished(succeeded=2, failed=3, canceled=1, usage=USED),
            }
            assert stats.failures == {TODAY: {ErrorCode.ENGINE_CRASHED: 1, ErrorCode.TURN_TIMEOUT: 2}}
            assert stats.skills == {
                "trip": Finished(succeeded=2, failed=3, usage=USED + USED),
                "skill": Finished(succeeded=1, canceled=1),
            }
            assert list(stats.skills) == ["trip", "skill"]
            assert stats.engines["codex"] == Finished(succeeded=1, usage=USED)
            assert stats.unfinished[RunState.QUEUED] == 1
            assert (await store.run_stats(day(9).date(), day(3).date())).days == {
                day(9).date(): Finished(succeeded=1, usage=USED)
            }

    asyncio.run(main())


def test_days_are_utc_days(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            midnight = NOON.replace(hour=0)
            for name, seconds in (("late", -0.000001), ("early", 0)):
                await ended(store, new_run(name), midnight + timedelta(seconds=seconds))
            stats = await store.run_stats(TODAY - timedelta(days=1), TODAY)
            assert {each: finished.runs for each, finished in stats.days.items()} == {
                TODAY - timedelta(days=1): 1,
                TODAY: 1,
            }

    asyncio.run(main())


def test_a_deleted_run_still_counts(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            await succeeded(store, new_run("done"))
            before = await store.run_stats(TODAY, TODAY)
            assert before.days[TODAY].runs == 1
            assert await store.forget(["done"]) == ("done",)
            assert await store.run_stats(TODAY, TODAY) == before

    asyncio.run(main())


def test_only_answers_of_users_and_of_these_days_are_timed(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            await reply(store, await waiting(store, new_run("answered"), when=at(45)))
            await reply(store, await waiting(store, new_run("later"), when=at(30.5)))
            await move(store, (await waiting(store, new_run("gone"))).id, CancelRequested(at=at(1)))
            await waiting(store, new_run("open"))
            assert (await store.run_stats(TODAY, TODAY)).answer_sec == (15.0, 29.5)
            assert (await store.run_stats(TODAY, TODAY, latest=3)).answer_sec == (29.5,)
            tomorrow = TODAY + timedelta(days=1)
            assert (await store.run_stats(tomorrow, tomorrow)).answer_sec == ()

    asyncio.run(main())


def test_absurd_numbers_of_tokens_do_not_keep_a_run_from_ending(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            absurd = Usage(input_tokens=2**62, output_tokens=2**62, total_tokens=2**63 - 1)
            for number in range(3):
                run = await ended(store, new_run(f"run-{number}"), NOON, usage=absurd)
                assert run.state is RunState.SUCCEEDED
            assert (await store.run_stats(TODAY, TODAY)).days[TODAY].usage.input_tokens == 3 * 10**12

    asyncio.run(main())


def test_runs_are_counted_by_state_up_to_a_limit(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            for number in range(4):
                await succeeded(store, new_run(f"done-{number}", skill="trip"))
            await waiting(store, new_run("waits", skill="trip", engine="codex"))
            await create(store, new_run("queued"))
            counts = await store.count_by_state(RunFilter(), 3)
            assert (counts[RunState.SUCCEEDED], counts[RunState.WAITING_USER], counts[RunState.QUEUED]) == (3, 1, 1)
            codex = await store.count_by_state(RunFilter(skill="trip", engine="codex"), 3)
            assert {state: count for state, count in codex.items() if count} == {RunState.WAITING_USER: 1}

    asyncio.run(main())


# The runs of a store that is older than its statistics.


@pytest.mark.parametrize("size", [3, 0])
def test_the_newest_runs_of_an_older_store_are_added_up(tmp_path: Path, size: int) -> None:
    async def fill() -> RunStats:
        async with opened("sqlite", tmp_path) as store:
            for number in range(size):
                await ended(store, new_run(f"run-{number}", skill="trip"), day(number % 2))
                await failed(store, new_run(f"bad-{number}"), ErrorCode.ENGINE_CRASHED, day(1))
            await waiting(store, new_run("waits"))
            return await store.run_stats(date(2026, 1, 1), TODAY)

    before = asyncio.run(fill())
    with closing(apsw.Connection(str(tmp_path / "askback.db"))) as connection:
        connection.execute("; ".join(downgrade(4)))

    async def look() -> RunStats:
        async with opened("sqlite", tmp_path) as store:
            return await store.run_stats(date(2026, 1, 1), TODAY)

    assert asyncio.run(look()) == before
    assert sum(finished.runs for finished in before.days.values()) == 2 * size


def test_a_damaged_document_does_not_keep_an_older_store_from_opening(tmp_path: Path) -> None:
    async def fill() -> None:
        async with opened("sqlite", tmp_path) as store:
            for name in ("good", "bad", "odd"):
                await succeeded(store, new_run(name))

    asyncio.run(fill())
    with closing(apsw.Connection(str(tmp_path / "askback.db"))) as connection:
        connection.execute("; ".join(downgrade(4)))
        connection.execute("UPDATE runs SET doc = 'no JSON' WHERE id = 'bad'")
        odd = """{"finished_at": 7, "usage": {"total_tokens": "many", "input_tokens": 1e300, "output_tokens": -5}}"""
        connection.execute("UPDATE runs SET doc = ? WHERE id = 'odd'", (odd,))
    with closing(open_writer(tmp_path / "askback.db")) as connection:
        assert connection.pragma("user_version") == len(migrations())
        assert connection.execute("SELECT sum(runs), sum(output_tokens) FROM daily_runs").get == (2, 0)
