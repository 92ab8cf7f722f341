"""A program that is killed while it writes, and programs that write at the same time, on every store there is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from lives import create, new_run, start
from stores import OpenStore, Program

from askback.core.runs import RunState
from askback.store.base import Store
from askback.store.pages import IdempotencyKey, RunFilter


@pytest.mark.contract("B-1", "W-1", "A-2")
@pytest.mark.parametrize("acknowledged", [1, 40, 150])
def test_a_killed_program_loses_nothing_that_was_acknowledged(
    open_store: OpenStore, start_program: Callable[..., Program], acknowledged: int
) -> None:
    program = start_program("create", "run")
    assert program.stdout is not None
    lines = [program.stdout.readline() for _ in range(acknowledged)]
    program.kill()
    lines += [line for line in program.communicate()[0].splitlines(keepends=True) if line.endswith("\n")]

    async def after() -> None:
        async with open_store() as store:
            for line in lines:
                run_id, version, state = line.split()
                run = await store.get(run_id)
                assert (run.version, run.state) == (int(version), state)
            for run in (await store.list_runs(RunFilter(), limit=10_000)).items:
                await agrees_with_itself(store, run.id)

    asyncio.run(after())


async def agrees_with_itself(store: Store, run_id: str) -> None:
    run = await store.get(run_id)
    events = await store.events(run_id)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.data["to"] for event in events if event.type == "run.state"][-1] == run.state
    pending = [each for each in await store.interactions(run_id) if each.outcome == "pending"]
    assert pending == ([] if run.pending_interaction is None else [run.pending_interaction])
    assert (run.state is RunState.WAITING_USER) == bool(pending)


def test_programs_that_write_at_once_do_not_fail(open_store: OpenStore, start_program: Callable[..., Program]) -> None:
    """Also from the first moment, when each of them finds no store there."""
    programs = [start_program("create", f"program-{n}", "60") for n in range(3)]

    async def main() -> None:
        async with open_store() as store:
            await asyncio.gather(*(mine(store, f"mine-{n}") for n in range(60)))
            told = [await asyncio.to_thread(program.communicate) for program in programs]
            assert [len(output.splitlines()) for output, _ in told] == [60] * 3
            assert [program.returncode for program in programs] == [0] * 3
            assert len((await store.list_runs(RunFilter(), limit=1000)).items) == 240

    asyncio.run(main())


async def mine(store: Store, run_id: str) -> None:
    key = IdempotencyKey(key=run_id, body_digest="digest")
    await start(store, await create(store, new_run(run_id), key=key))
