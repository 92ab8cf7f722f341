"""Open questions for digests: the oldest of those that can be answered, of runs that servers own."""

from __future__ import annotations

import asyncio

import pytest
from lives import DECIDED, TIMEOUT_SEC, at, create, new_run, reply, running, waiting
from stores import OpenStore

from askback.core.signals import CancelRequested
from askback.core.webhooks import Webhook, WebhookKind
from askback.store.base import move


@pytest.mark.contract("N-4")
def test_only_questions_that_can_be_answered_are_open(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            await create(store, new_run("queued"))
            await running(store, new_run("running"))
            await waiting(store, new_run("elsewhere", owner="program"))
            await reply(store, await waiting(store, new_run("answered")))
            await waiting(store, new_run("later"), when=at(5))
            await waiting(store, new_run("first"))
            await waiting(store, new_run("ending", options=DECIDED), when=at(9))
            sticky = await waiting(store, new_run("canceled", sticky=True))
            await move(store, sticky.id, CancelRequested(at=at(1)))
            found = await store.open_questions({}, at(10), 2)
            assert (found.total, [run.id for run in found.oldest]) == (3, ["first", "later"])
            found = await store.open_questions({}, at(TIMEOUT_SEC + 9), 9)
            assert [run.id for run in found.oldest] == ["first", "later"]

    asyncio.run(main())


@pytest.mark.contract("N-4")
def test_labels_must_all_match(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            await waiting(store, new_run("both", labels={"customer": "1", "plan": "trial"}))
            await waiting(store, new_run("one", labels={"customer": "1"}))
            await waiting(store, new_run("none"))
            for labels, total in (({}, 3), ({"customer": "1"}, 2), ({"customer": "1", "plan": "trial"}, 1)):
                assert (await store.open_questions(labels, at(1), 1)).total == total
            found = await store.open_questions({"customer": "2"}, at(1), 1)
            assert (found.total, found.oldest) == (0, ())

    asyncio.run(main())


def test_the_webhooks_of_the_server_have_numbers(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            one, two = (Webhook(url=f"https://{name}.example/", kind=WebhookKind.SLACK) for name in ("one", "two"))
            await store.register_webhooks([one, two])
            numbers = await store.server_webhooks()
            assert set(numbers) == {(one.url, one.kind), (two.url, two.kind)}
            await store.register_webhooks([two])
            assert await store.server_webhooks() == {(two.url, two.kind): numbers[two.url, two.kind]}

    asyncio.run(main())
