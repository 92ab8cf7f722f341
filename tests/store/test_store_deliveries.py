"""The outbox of notifications: written with the state, taken on by one at a time, and its own log; on every store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from lives import NOON, ask, at, create, finish, new_run, running, start, succeeded
from stores import OpenStore, Program

from askback.core import lifecycle
from askback.core.errors import Invalid, NotFound
from askback.core.runs import Run, RunRequest, RunState
from askback.core.webhooks import Attempt, BusyReceivers, Delivery, DueDelivery, Webhook, WebhookKind
from askback.store.base import Store
from askback.store.pages import IdempotencyKey, StaleWrite

HOOK = Webhook(url="https://one.example/hook", secret="whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQ=")
OTHER = Webhook(url="https://two.example/hook", kind=WebhookKind.NTFY)


async def create_with(store: Store, run: Run, *webhooks: Webhook, key: IdempotencyKey | None = None) -> Run:
    return await store.create(lifecycle.create(run, {"skill": run.skill.id}), RunRequest(), key, webhooks)


async def log(store: Store, run_id: str | None = None) -> list[Delivery]:
    """Oldest first."""
    return list((await store.deliveries(run_id)).items)[::-1]


async def claim(store: Store, seconds: float = 0, until: float = 60, limit: int = 100) -> list[DueDelivery]:
    return list(await store.claim_deliveries(at(seconds), until=at(until), limit=limit))


def states(deliveries: list[Delivery]) -> list[tuple[str | None, str]]:
    return [(each.old, each.new) for each in deliveries]


# Writing.


def test_every_change_of_state_is_in_the_outbox_once_for_each_webhook(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            run = await create_with(store, new_run(), HOOK, OTHER)
            await finish(store, await start(store, run))
            found = await log(store, run.id)
            told = [(None, "queued"), ("queued", "running"), ("running", "succeeded")]
            for hook in (HOOK, OTHER):
                mine = [each for each in found if each.webhook == hook]
                assert states(mine) == told
                events = {event.seq: event.data for event in await store.events(run.id) if event.type == "run.state"}
                assert [(events[each.seq]["from"], events[each.seq]["to"]) for each in mine] == told
            assert len({each.id for each in found}) == 6

    asyncio.run(main())


def test_a_run_without_webhooks_costs_the_outbox_nothing(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            await succeeded(store, new_run())
            assert await log(store) == []
            assert await store.next_delivery() is None

    asyncio.run(main())


def test_only_the_states_that_a_webhook_wants_are_told(open_store: OpenStore) -> None:
    wanted = Webhook(url="https://one.example/", states=(RunState.SUCCEEDED, RunState.FAILED))

    async def main() -> None:
        async with open_store() as store:
            run = await create_with(store, new_run(), wanted)
            await finish(store, await start(store, run))
            assert states(await log(store)) == [("running", "succeeded")]

    asyncio.run(main())


def test_a_write_that_loses_tells_nobody(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            run = await create_with(store, new_run(), HOOK)
            await start(store, run)
            before = await log(store)
            with pytest.raises(StaleWrite):
                await store.apply(run, lifecycle.Decision(run=run.evolve(state=RunState.RUNNING)))
            assert await log(store) == before

    asyncio.run(main())


def test_the_same_request_again_is_told_once(open_store: OpenStore) -> None:
    key = IdempotencyKey(key="k", body_digest="d")

    async def main() -> None:
        async with open_store() as store:
            await create_with(store, new_run("first"), HOOK, key=key)
            await create_with(store, new_run("second"), HOOK, key=key)
            assert [each.run_id for each in await log(store)] == ["first"]

    asyncio.run(main())


def test_what_is_due_shows_the_run_as_it_was_then(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            run = await create_with(store, new_run(), HOOK)
            await finish(store, await start(store, run))
            assert [each.run.state for each in await claim(store)] == ["queued", "running", "succeeded"]

    asyncio.run(main())


# The server's own.


def test_webhooks_of_the_server_are_told_of_the_runs_that_servers_keep(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            await store.register_webhooks([HOOK])
            await create(store, new_run("shared"))
            await create(store, new_run("someones", owner="someone"))
            assert [(each.run_id, each.webhook) for each in await log(store)] == [("shared", HOOK)]

    asyncio.run(main())


def test_another_program_writes_for_the_webhooks_of_the_server(
    open_store: OpenStore, start_program: Callable[..., Program]
) -> None:
    async def main() -> None:
        async with open_store() as store:
            await store.register_webhooks([HOOK])
            program = start_program("create", "theirs", "1")
            assert await asyncio.to_thread(program.wait, 30) == 0
            assert states(await log(store, "theirs-0")) == [(None, "queued"), ("queued", "running")]

    asyncio.run(main())


def test_registering_again_keeps_what_is_due_and_takes_the_new_secret(open_store: OpenStore) -> None:
    changed = Webhook(url=HOOK.url, secret="whsec_bmV3LXNlY3JldC1uZXctc2VjcmV0")

    async def main() -> None:
        async with open_store() as store:
            await store.register_webhooks([HOOK])
            await create(store, new_run())
            (before,) = await log(store)
            await store.register_webhooks([OTHER, changed])
            (due,) = await claim(store)
            assert due.delivery.id == before.id
            assert due.delivery.webhook == changed

    asyncio.run(main())


def test_a_webhook_that_is_no_longer_registered_is_told_no_more(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            await store.register_webhooks([HOOK])
            run = await create(store, new_run())
            await store.register_webhooks([])
            await start(store, run)
            assert await claim(store) == []
            (only,) = await log(store)
            assert only.next_attempt_at is None
            assert "no longer in the settings" in (only.last_error or "")

    asyncio.run(main())


# Taking on.


def test_of_two_programs_one_gets_a_delivery(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as one, open_store() as two:
            for number in range(20):
                await create_with(one, new_run(f"run-{number}"), HOOK)
            claims = await asyncio.gather(*(claim(store, limit=3) for store in (one, two) * 10))
            assert max(len(each) for each in claims) == 3
            taken = [due.delivery.id for each in claims for due in each]
            assert len(taken) == len(set(taken)) == 20

    asyncio.run(main())


def test_a_claim_that_was_left_is_due_again_when_it_ends(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            await create_with(store, new_run(), HOOK)
            (first,) = await claim(store, until=60)
            assert await claim(store, 59) == []
            assert await store.next_delivery() == at(60)
            (second,) = await claim(store, 60, until=120)
            assert second.delivery.id == first.delivery.id
            assert (first.delivery.attempts, second.delivery.attempts) == (1, 2)
            await store.record_attempt(first.delivery, Attempt(status=200, delivered_at=at(61)))
            (entry,) = await log(store)
            assert entry.delivered_at is None, "the first has lost it"

    asyncio.run(main())


def test_busy_receivers_are_passed_over(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            await create_with(store, new_run(), HOOK, OTHER)
            first, second = await log(store)
            busy = BusyReceivers(hosts_of_callers=frozenset({first.webhook.host}))
            assert await store.next_delivery(busy=busy) == NOON
            (due,) = await store.claim_deliveries(NOON, until=at(60), limit=9, busy=busy)
            assert due.delivery.webhook_number == second.webhook_number
            assert await store.next_delivery(busy=busy) == at(60)
            assert await store.next_delivery() == NOON

    asyncio.run(main())


@pytest.mark.parametrize(
    ("attempt", "due_at"),
    [
        (Attempt(status=500, error="e", next_attempt_at=at(5)), at(5)),
        (Attempt(status=204, delivered_at=at(1)), None),
        (Attempt(error="given up"), None),
    ],
    ids=["again", "delivered", "given up"],
)
def test_how_an_attempt_went_is_in_the_log(open_store: OpenStore, attempt: Attempt, due_at: object) -> None:
    async def main() -> None:
        async with open_store() as store:
            await create_with(store, new_run(), HOOK)
            (due,) = await claim(store)
            await store.record_attempt(due.delivery, attempt)
            (entry,) = await log(store)
            assert (entry.last_status, entry.last_error) == (attempt.status, attempt.error)
            assert (entry.next_attempt_at, entry.delivered_at) == (attempt.next_attempt_at, attempt.delivered_at)
            assert entry.attempts == 1
            assert await store.next_delivery() == due_at
            assert len(await claim(store, 1000)) == (due_at is not None)

    asyncio.run(main())


def test_the_outbox_outlives_the_program(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            run = await create_with(store, new_run(), HOOK)
            await ask(store, await running(store, new_run("other")))
        async with open_store() as store:
            (due,) = await claim(store)
            assert (due.delivery.run_id, due.delivery.webhook) == (run.id, HOOK)

    asyncio.run(main())


# The log.


def test_the_log_is_paged_newest_first(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            for number in range(5):
                await create_with(store, new_run(f"run-{number}"), HOOK)
            first = await store.deliveries(limit=3)
            rest = await store.deliveries(cursor=first.next_cursor, limit=3)
            assert [each.run_id for each in first.items + rest.items] == [f"run-{n}" for n in range(4, -1, -1)]
            assert rest.next_cursor is None
            with pytest.raises(Invalid, match="cursor"):
                await store.deliveries(cursor="x")
            with pytest.raises(NotFound):
                await store.deliveries("no-such-run")

    asyncio.run(main())
