"""Who wins when two want the same run, in one program and in two, on every store there is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from lives import DECIDED, NOON, TIMEOUT_SEC, at, create, new_run, start, waiting
from stores import OpenStore, Program

from askback.core.errors import Conflict
from askback.core.interactions import InteractionOutcome
from askback.core.runs import RunState
from askback.core.signals import CancelRequested, DeadlinePassed, Replied, Signal, SlotAcquired
from askback.store.base import Store, move


def replied(text: str) -> Replied:
    return Replied(interaction_id="colour", response=text, owner="", at=at(60))


async def outcomes(store: Store, *signals: Signal) -> list[Any]:
    """What each of them got, all sent at once by senders who have read the same run."""
    seen = await store.get("run-1")
    sent = (move(store, "run-1", signal, seen=seen) for signal in signals)
    return await asyncio.gather(*sent, return_exceptions=True)


@pytest.mark.contract("W-13")
def test_of_two_racing_replies_exactly_one_wins(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            await waiting(store, new_run())
            got = await outcomes(store, *(replied(f"reply-{n}") for n in range(10)))
            lost = [error for error in got if isinstance(error, Conflict)]
            [won] = [run for run in got if run not in lost]
            assert len(lost) == 9
            assert await store.get("run-1") == won
            [interaction] = await store.interactions("run-1")
            assert interaction.response == f"reply-{got.index(won)}"
            closings = [event for event in await store.events("run-1") if event.type == "interaction.closed"]
            assert len(closings) == 1
            assert len(await store.queued([""], without_engines=[], limit=9)) == 1

    asyncio.run(main())


@pytest.mark.contract("W-13")
@pytest.mark.parametrize("reply_first", [True, False])
def test_of_a_reply_and_a_deadline_exactly_one_wins(open_store: OpenStore, reply_first: bool) -> None:
    async def main() -> None:
        async with open_store() as store:
            await waiting(store, new_run(options=DECIDED))
            signals = [replied("red"), DeadlinePassed(interaction_id="colour", at=at(TIMEOUT_SEC))]
            got = await outcomes(store, *(signals if reply_first else reversed(signals)))
            assert isinstance(got[1], Conflict)
            [interaction] = await store.interactions("run-1")
            assert (interaction.outcome, interaction.response) == (
                (InteractionOutcome.ANSWERED, "red") if reply_first else (InteractionOutcome.AUTO_DECIDED, "blue")
            )
            assert await store.get("run-1") == got[0]

    asyncio.run(main())


@pytest.mark.contract("W-13")
def test_of_a_reply_and_a_cancel_one_wins_and_a_late_reply_changes_nothing(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            await waiting(store, new_run())
            got = await outcomes(store, CancelRequested(at=NOON), replied("red"))
            assert isinstance(got[1], Conflict)
            assert (await store.get("run-1")).state is RunState.CANCELED
            [interaction] = await store.interactions("run-1")
            assert (interaction.outcome, interaction.response) == (InteractionOutcome.CANCELED, None)

    asyncio.run(main())


def test_one_turn_is_claimed_by_one_worker(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store, open_store() as other:
            run = await create(store, new_run())
            claims = (
                move(each, run.id, SlotAcquired(worker=f"worker-{n}", at=NOON), seen=run)
                for n in range(10)
                for each in (store, other)
            )
            got = await asyncio.gather(*claims, return_exceptions=True)
            assert sum(not isinstance(outcome, Conflict) for outcome in got) == 1
            assert (await other.get(run.id)).epoch == 1

    asyncio.run(main())


def test_a_write_that_fails_does_not_hurt_those_beside_it(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            runs = [await create(store, new_run(f"run-{n}")) for n in range(10)]
            starts = (start(store, run) for run in runs)
            doubles = (create(store, new_run(f"run-{n}")) for n in range(10))
            got = await asyncio.gather(
                *(each for pair in zip(starts, doubles, strict=True) for each in pair), return_exceptions=True
            )
            assert [isinstance(outcome, Conflict) for outcome in got] == [False, True] * 10
            assert {run.state for run in await store.held()} == {RunState.RUNNING}
            assert len(await store.held()) == 10

    asyncio.run(main())


@pytest.mark.contract("W-13")
def test_of_replies_from_several_programs_exactly_one_wins(
    open_store: OpenStore, start_program: Callable[..., Program]
) -> None:
    async def main() -> list[Program]:
        async with open_store() as store:
            await waiting(store, new_run())
        programs = [start_program("reply", "run-1", f"reply-{n}") for n in range(3)]
        for program in programs:
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"
        for program in programs:
            assert program.stdin is not None
            program.stdin.write("go\n")
            program.stdin.flush()
        return programs

    programs = asyncio.run(main())
    said = [program.communicate()[0].strip() for program in programs]
    assert sorted(said) == ["lost", "lost", "won"]

    async def after() -> None:
        async with open_store() as store:
            [interaction] = await store.interactions("run-1")
            assert interaction.response == f"reply-{said.index('won')}"

    asyncio.run(after())
