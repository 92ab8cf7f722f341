"""Runs in a store: how they are made, moved and read, on every store there is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from lives import (
    NOON,
    PROCESS,
    QUESTION,
    ask,
    at,
    create,
    decided,
    finish,
    name_handle,
    new_run,
    note_process,
    reply,
    running,
    start,
    succeeded,
    waiting,
)
from stores import OpenStore

from askback.core.errors import (
    Conflict,
    ErrorCode,
    Invalid,
    NotFound,
    RefusalCode,
    RunError,
    RunWarning,
    WarningCode,
)
from askback.core.events import EventType, NewEvent
from askback.core.interactions import InteractionOutcome
from askback.core.lifecycle import Decision
from askback.core.outcomes import AskUser, TurnError
from askback.core.runs import Run, RunRequest, RunState, Usage
from askback.core.signals import CancelRequested, SlotAcquired, TurnEnded
from askback.store.base import Store, move
from askback.store.pages import IdempotencyKey, StaleWrite

MESSAGE = NewEvent(type=EventType.ASSISTANT_MESSAGE, at=NOON, data={"text": "hello"})


# Making.


def test_a_new_run_is_read_back_as_it_was_made(open_store: OpenStore) -> None:
    request = RunRequest(input={"pages": [1, {"a": None}]}, parameter={"deep": True})

    async def main() -> None:
        async with open_store() as store:
            run = await create(store, new_run(), request)
            assert run == new_run()
            assert await store.get(run.id) == run
            assert await store.request(run.id) == request
            assert [event.type for event in await store.events(run.id)] == ["run.created", "run.state"]

    asyncio.run(main())


def test_a_run_with_every_field_set_is_read_back_as_it_was_stored(open_store: OpenStore) -> None:
    error = RunError(code=ErrorCode.ENGINE_CRASHED, message="m", cause=ErrorCode.TURN_TIMEOUT, detail="d")
    warning = RunWarning(code=WarningCode.AUTO_RUN_ASKED, message="w")

    async def main() -> None:
        async with open_store() as store:
            run = await running(store, new_run(max_attempt=4, owner="me"))
            run = await note_process(store, run)
            run = await move(store, run.id, CancelRequested(at=at(1)))
            whole = run.evolve(version=run.version + 1, warnings=(warning,), error=error, usage=Usage(input_tokens=3))
            stored = await store.apply(run, Decision(run=whole))
            assert stored == whole
            assert await store.get(run.id) == whole
            assert whole.process == PROCESS
            assert whole.handle is not None

    asyncio.run(main())


def test_an_id_is_taken_once(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            await running(store, new_run())
            with pytest.raises(Conflict, match="run-1"):
                await create(store, new_run())
            assert (await store.get("run-1")).state is RunState.RUNNING

    asyncio.run(main())


def test_the_same_key_and_body_give_the_same_run_as_it_is_now(open_store: OpenStore) -> None:
    key = IdempotencyKey(key="k", body_digest="d")

    async def main() -> None:
        async with open_store() as store:
            first = await create(store, new_run("first"), key=key)
            moved = await start(store, first)
            assert await create(store, new_run("second"), key=key) == moved
            with pytest.raises(NotFound):
                await store.get("second")
            assert len(await store.events("first")) == 4

    asyncio.run(main())


def test_a_key_with_another_body_is_refused(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            await create(store, new_run("first"), key=IdempotencyKey(key="k", body_digest="d"))
            with pytest.raises(Invalid) as refused:
                await create(store, new_run("second"), key=IdempotencyKey(key="k", body_digest="other"))
            assert refused.value.code is RefusalCode.IDEMPOTENCY_KEY_REUSED
            with pytest.raises(NotFound):
                await store.get("second")

    asyncio.run(main())


def test_of_many_creations_with_one_key_one_makes_a_run(open_store: OpenStore) -> None:
    key = IdempotencyKey(key="k", body_digest="d")

    async def main() -> None:
        async with open_store() as store:
            made = await asyncio.gather(*(create(store, new_run(f"run-{n}"), key=key) for n in range(20)))
            assert len({run.id for run in made}) == 1
            assert len(await store.queued([""], without_engines=[], limit=50)) == 1

    asyncio.run(main())


# Moving.


def test_a_move_is_read_back_as_it_was_decided(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            run = await create(store, new_run())
            decision = decided(run, SlotAcquired(worker="w", at=at(5)))
            assert await store.apply(run, decision) == decision.run
            assert await store.get(run.id) == decision.run

    asyncio.run(main())


def test_stale_writer_loses(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            run = await create(store, new_run())
            first, second = (decided(run, SlotAcquired(worker=worker, at=NOON)) for worker in ("first", "second"))
            await store.apply(run, first)
            with pytest.raises(StaleWrite):
                await store.apply(run, second)
            assert await store.get(run.id) == first.run
            assert len(await store.events(run.id)) == 4

    asyncio.run(main())


def test_a_run_that_is_not_there_cannot_be_moved(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            with pytest.raises(StaleWrite):
                await store.apply(new_run(), decided(new_run(), SlotAcquired(worker="w", at=NOON)))
            with pytest.raises(NotFound):
                await move(store, "run-1", CancelRequested(at=NOON))

    asyncio.run(main())


@pytest.mark.contract("W-1")
def test_a_run_that_waits_has_its_question_from_the_same_moment(open_store: OpenStore) -> None:
    """A question that cannot be stored (its id is taken) takes the whole move with it."""

    async def main() -> None:
        async with open_store() as store:
            run = await waiting(store, new_run())
            [asked] = await store.interactions(run.id)
            assert (asked, asked.outcome) == (run.pending_interaction, InteractionOutcome.PENDING)

            again = await name_handle(store, await start(store, await reply(store, run)))
            events = await store.events(run.id)
            decision = decided(again, TurnEnded(epoch=again.epoch, outcome=AskUser(question=QUESTION), at=NOON))
            with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
                await store.apply(again, replace(decision, asked=asked))
            assert await store.get(run.id) == again
            assert await store.events(run.id) == events
            assert len(await store.interactions(run.id)) == 1
            assert (await store.pending()).items == ()

    asyncio.run(main())


def test_only_a_run_that_succeeded_has_a_result(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            run = await running(store, new_run())
            assert await store.result(run.id) is None
            await finish(store, run, {"pages": [1, 2]})
            assert await store.result(run.id) == {"pages": [1, 2]}
            failed = await running(store, new_run("failed"))
            error = TurnError(error=RunError(code=ErrorCode.ENGINE_CRASHED, message="m"))
            await move(store, failed.id, TurnEnded(epoch=failed.epoch, outcome=error, at=NOON))
            assert await store.result(failed.id) is None

    asyncio.run(main())


# Adding events.


@pytest.mark.contract("A-2")
def test_events_of_moves_and_of_turns_have_one_numbering_without_gaps(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            run = await running(store, new_run())
            await asyncio.gather(*(store.append(run.id, run.epoch, [MESSAGE] * n) for n in range(5)))
            await ask(store, run)
            events = await store.events(run.id)
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            assert len(events) == 4 + 10 + 3
            assert events[-1].data == {"from": "running", "to": "waiting_user"}
            assert await store.events(run.id, after=5) == events[5:]
            assert await store.events(run.id, after=5, limit=2) == events[5:7]
            assert await store.events(run.id, after=2**70) == ()

    asyncio.run(main())


@pytest.mark.parametrize("epoch", [0, 2])
def test_a_worker_of_another_epoch_adds_nothing(open_store: OpenStore, epoch: int) -> None:
    async def main() -> None:
        async with open_store() as store:
            run = await running(store, new_run())
            before = await store.events(run.id)
            with pytest.raises(StaleWrite):
                await store.append(run.id, epoch, [MESSAGE])
            assert await store.events(run.id) == before

    asyncio.run(main())


@pytest.mark.parametrize("make", [create, waiting, succeeded])
def test_a_run_that_is_not_running_takes_no_events(
    open_store: OpenStore, make: Callable[[Store, Run], Awaitable[Run]]
) -> None:
    async def main() -> None:
        async with open_store() as store:
            run = await make(store, new_run())
            with pytest.raises(StaleWrite):
                await store.append(run.id, run.epoch, [MESSAGE])

    asyncio.run(main())


# Reading what is not there.


@pytest.mark.parametrize("name", ["get", "request", "result", "events", "interactions"])
@pytest.mark.parametrize("run_id", ["no-such-run", "", "a\x00b", "\ud800", "'; DROP TABLE runs; --"])
def test_a_run_that_is_not_there_is_not_found(open_store: OpenStore, name: str, run_id: str) -> None:
    async def main() -> None:
        async with open_store() as store:
            await create(store, new_run())
            with pytest.raises(NotFound) as refused:
                await getattr(store, name)(run_id)
            assert refused.value.code is RefusalCode.RUN_NOT_FOUND

    asyncio.run(main())


def test_a_closed_store_says_so(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            run = await create(store, new_run())
        for attempt in (store.get(run.id), start(store, run), create(store, new_run("other"))):
            with pytest.raises(Exception, match="closed"):
                await attempt
        await store.close()

    asyncio.run(main())


def test_closing_finishes_what_was_asked_for(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            writes = [asyncio.ensure_future(create(store, new_run(f"run-{n}"))) for n in range(50)]
            await asyncio.sleep(0)
        assert len(await asyncio.gather(*writes)) == 50
        async with open_store() as store:
            assert len(await store.queued([""], without_engines=[], limit=100)) == 50

    asyncio.run(main())


def test_the_store_tells_its_health_in_one_line(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            for number in range(3):
                await create(store, new_run(f"run-{number}"))
            line = await store.check()
            assert "3 runs" in line
            assert "\n" not in line

    asyncio.run(main())
