"""Runs that are over can be forgotten, whole; no other run can. On every store."""

from __future__ import annotations

import asyncio

import pytest
from lives import NOON, create, new_run, reply, running, start, succeeded, waiting
from stores import OpenStore
from test_store_deliveries import HOOK, claim, create_with, log

from askback.core.errors import NotFound
from askback.core.runs import RunState
from askback.core.signals import CancelRequested
from askback.store.base import move
from askback.store.pages import IdempotencyKey, RunFilter


def test_a_forgotten_run_leaves_nothing(open_store: OpenStore) -> None:
    key = IdempotencyKey(key="k", body_digest="d")

    async def main() -> None:
        async with open_store() as store:
            run = await create_with(store, new_run("gone"), HOOK, key=key)
            await move(store, run.id, CancelRequested(at=NOON))
            await succeeded(store, new_run("kept"), {"a": 1})
            assert await store.forget(["gone", "no-such-run"]) == ("gone",)
            for read in (store.get, store.request, store.result, store.events, store.interactions, store.deliveries):
                with pytest.raises(NotFound):
                    await read("gone")
            assert await log(store) == []
            assert await claim(store) == []
            assert [each.id for each in (await store.list_runs(RunFilter())).items] == ["kept"]
            assert await store.result("kept") == {"a": 1}
            again = await create(store, new_run("again"), key=IdempotencyKey(key="k", body_digest="other"))
            assert again.id == "again"

    asyncio.run(main())


def test_a_run_with_questions_and_answers_can_be_forgotten(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            run = await reply(store, await waiting(store, new_run()))
            await move(store, run.id, CancelRequested(at=NOON))
            assert await store.forget([run.id]) == (run.id,)
            assert "0 runs" in await store.check()

    asyncio.run(main())


def test_a_run_that_is_not_over_cannot_be_forgotten(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            runs = [
                await create(store, new_run("queued")),
                await start(store, await create(store, new_run("running"))),
                await waiting(store, new_run("waiting")),
            ]
            assert await store.forget([run.id for run in runs]) == ()
            for run in runs:
                assert await store.get(run.id) == run
                assert await store.events(run.id)

    asyncio.run(main())


def test_runs_that_are_over_are_listed_oldest_first(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            for number in range(3):
                await succeeded(store, new_run(f"over-{number}"))
                await running(store, new_run(f"running-{number}"))
            first = await store.over(limit=2)
            assert [run.id for run in first.items] == ["over-0", "over-1"]
            await store.forget([run.id for run in first.items])
            rest = await store.over(first.next_cursor, limit=2)
            assert [run.id for run in rest.items] == ["over-2"]
            assert rest.next_cursor is None
            assert all(run.state is RunState.SUCCEEDED for run in rest.items)

    asyncio.run(main())
