"""Reminders of open questions in the outbox: planned with the question, gone with it, and never more than were wanted."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import apsw
import pytest
from lives import DECIDED, NOON, QUESTION, TIMEOUT_SEC, at, create, name_handle, new_run, reply, start, waiting
from old_formats import downgrade
from stores import OpenStore, opened

from askback.core import lifecycle
from askback.core.interactions import Question
from askback.core.outcomes import AskUser
from askback.core.runs import Run, RunRequest, RunState
from askback.core.signals import (
    CancelRequested,
    DeadlineNear,
    DeadlinePassed,
    ProcessLost,
    Signal,
    TurnEnded,
)
from askback.core.webhooks import Attempt, Delivery, DeliveryReason, DueDelivery, Reminders, Webhook, WebhookKind
from askback.store.base import Store, move

TWICE = Reminders(after_sec=(60.0, 300.0))
HOOK = Webhook(url="https://one.example/hook", kind=WebhookKind.NTFY, reminders=TWICE)
SILENT = Webhook(url="https://two.example/hook")
ENDS: dict[str, tuple[dict[str, object], Signal | None]] = {
    "answered": ({}, None),
    "canceled": ({}, CancelRequested(at=at(30))),
    "being canceled": ({"sticky": True}, CancelRequested(at=at(30))),
    "decided": ({"options": DECIDED}, DeadlinePassed(interaction_id="colour", at=at(TIMEOUT_SEC))),
    "expired": ({"sticky": True}, DeadlinePassed(interaction_id="colour", at=at(TIMEOUT_SEC))),
    "process lost": ({"sticky": True}, ProcessLost(epoch=1, at=at(30))),
}
"""How a question may end: the run that it belongs to, and what happens to it (None: a reply)."""


async def end(store: Store, run: Run, signal: Signal | None) -> Run:
    return await reply(store, run) if signal is None else await move(store, run.id, signal)


async def log(store: Store, run_id: str | None = None) -> list[Delivery]:
    """Those of questions alone, oldest first."""
    found = (await store.deliveries(run_id, limit=200)).items
    return [each for each in found[::-1] if each.new is RunState.WAITING_USER]


async def planned(store: Store, run_id: str | None = None) -> list[tuple[int, float]]:
    """The reminders that are not sent yet: their places, and when they are due."""
    reminders = [each for each in await log(store, run_id) if each.reason is DeliveryReason.REMINDER]
    due = [(each.place, each.next_attempt_at) for each in reminders if each.next_attempt_at is not None]
    return [(place, (when - NOON).total_seconds()) for place, when in due]


async def claim(store: Store, seconds: float, *reasons: DeliveryReason) -> list[DueDelivery]:
    """What is due, without changes of state."""
    until = at(seconds + 60)
    found = await store.claim_deliveries(at(seconds), until=until, limit=100)
    for due in found:
        if due.delivery.reason is DeliveryReason.STATE:
            await store.record_attempt(due.delivery, Attempt(status=204, delivered_at=at(seconds)))
    return [due for due in found if due.delivery.reason is not DeliveryReason.STATE]


# Planning.


@pytest.mark.contract("N-4")
def test_reminders_are_planned_with_the_question(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            await store.register_webhooks([HOOK, SILENT], NOON)
            run = await waiting(store, new_run())
            assert await planned(store, run.id) == [(1, 60), (2, 300)]
            assert len({each.id for each in await log(store)}) == 4
            assert await claim(store, 59) == []
            (due,) = await claim(store, 60)
            assert due.run == run
            assert due.delivery.webhook == HOOK
            assert (due.delivery.old, due.delivery.new) == (RunState.WAITING_USER, RunState.WAITING_USER)

    asyncio.run(main())


@pytest.mark.contract("N-4")
def test_reminders_belong_to_a_run_if_its_webhook_wants_them(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            decision = lifecycle.create(new_run(), {})
            run = await store.create(decision, RunRequest(), None, [HOOK, SILENT])
            asked = await name_handle(store, await start(store, run))
            await move(store, run.id, TurnEnded(epoch=asked.epoch, outcome=AskUser(question=QUESTION), at=NOON))
            assert await planned(store) == [(1, 60), (2, 300)]

    asyncio.run(main())


def test_a_webhook_that_is_not_notified_of_questions_is_not_reminded_of_them(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            await store.register_webhooks([replace(HOOK, states=(RunState.FAILED,))], NOON)
            await waiting(store, new_run(options=DECIDED))
            await move(store, "run-1", DeadlineNear(interaction_id="colour", at=at(600)))
            assert await log(store) == []

    asyncio.run(main())


def test_no_reminder_is_planned_after_the_deadline(open_store: OpenStore) -> None:
    late = Reminders(after_sec=(60.0, TIMEOUT_SEC, TIMEOUT_SEC + 1))

    async def main() -> None:
        async with open_store() as store:
            await store.register_webhooks([replace(HOOK, reminders=late)], NOON)
            await waiting(store, new_run(options=DECIDED))
            assert await planned(store) == [(1, 60)]

    asyncio.run(main())


@pytest.mark.contract("N-4")
def test_a_fork_that_waits_is_reminded_of_and_one_that_is_answered_is_not(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            await store.register_webhooks([HOOK], NOON)
            source = await waiting(store, new_run("source"))
            assert source.pending_interaction is not None
            decision = lifecycle.fork(new_run("fork"), {}, source.pending_interaction)
            await store.create(decision, RunRequest())
            assert await planned(store, "fork") == [(1, 60), (2, 300)]

    asyncio.run(main())


# The end of the question.


@pytest.mark.contract("N-4")
@pytest.mark.parametrize("how", ENDS)
def test_nothing_is_sent_of_a_question_that_is_closed(open_store: OpenStore, how: str) -> None:
    changes, signal = ENDS[how]

    async def main() -> None:
        async with open_store() as store:
            await store.register_webhooks([HOOK], NOON)
            run = await waiting(store, new_run(**changes))  # type: ignore[arg-type]
            (claimed,) = await claim(store, 60)
            if run.wait_deadline_at is not None:
                await move(store, run.id, DeadlineNear(interaction_id="colour", at=at(120)))
            assert await store.is_due(claimed.delivery)
            await end(store, run, signal)
            assert not await store.is_due(claimed.delivery)
            assert await claim(store, 10**6) == []
            assert await planned(store) == []
            (kept,) = [each for each in await log(store) if each.reason is not DeliveryReason.STATE]
            assert (kept.place, kept.last_error) == (1, "the question is closed")

    asyncio.run(main())


@pytest.mark.contract("N-4")
def test_an_attempt_that_ends_after_the_question_is_in_the_log_and_not_repeated(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            await store.register_webhooks([HOOK], NOON)
            for run_id, attempt in (
                ("failed", Attempt(status=500, error="down", next_attempt_at=at(90))),
                ("sent", Attempt(status=204, delivered_at=at(61))),
            ):
                run = await waiting(store, new_run(run_id))
                (claimed,) = [each for each in await claim(store, 60) if each.run.id == run_id]
                await reply(store, run)
                await store.record_attempt(claimed.delivery, attempt)
            (failed,) = [each for each in await log(store, "failed") if each.place]
            assert (failed.next_attempt_at, failed.delivered_at) == (None, None)
            assert (failed.last_status, failed.last_error) == (500, "the question is closed")
            (sent,) = [each for each in await log(store, "sent") if each.place]
            assert (sent.next_attempt_at, sent.delivered_at, sent.last_error) == (None, at(61), None)
            assert await claim(store, 10**6) == []

    asyncio.run(main())


@pytest.mark.contract("N-4")
def test_the_next_question_has_reminders_of_its_own(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            await store.register_webhooks([HOOK], NOON)
            run = await waiting(store, new_run())
            await claim(store, 60)
            again = await start(store, await reply(store, run))
            question = Question(prompt="How many?", interaction_id="count")
            await move(store, run.id, TurnEnded(epoch=again.epoch, outcome=AskUser(question=question), at=at(1000)))
            assert await planned(store) == [(1, 1060), (2, 1300)]
            (due,) = await claim(store, 1060)
            assert due.run.pending_interaction is not None
            assert due.run.pending_interaction.prompt == "How many?"
            assert len({each.id for each in (await store.deliveries(limit=200)).items}) == len(
                (await store.deliveries(limit=200)).items
            )

    asyncio.run(main())


# Failures.


@pytest.mark.contract("N-4")
def test_a_reminder_that_fails_is_given_up_for_the_next(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            await store.register_webhooks([HOOK], NOON)
            await waiting(store, new_run())
            (first,) = await claim(store, 60)
            await store.record_attempt(first.delivery, Attempt(status=500, error="down", next_attempt_at=at(400)))
            (second,) = await claim(store, 300)
            assert second.delivery.place == 2
            await store.record_attempt(second.delivery, Attempt(status=204, delivered_at=at(301)))
            assert await claim(store, 400) == []
            (kept, _) = [each for each in await log(store) if each.place]
            assert (kept.attempts, kept.next_attempt_at) == (1, None)
            assert kept.last_error == "a later reminder has taken its place"

    asyncio.run(main())


@pytest.mark.contract("N-4")
def test_of_the_reminders_that_were_missed_the_last_is_sent(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            await store.register_webhooks([HOOK], NOON)
            await waiting(store, new_run())
        async with open_store() as store:
            await store.register_webhooks([HOOK], at(5000))
            found = await claim(store, 5000)
            assert [due.delivery.place for due in found] == [2]
            assert await claim(store, 5000) == []

    asyncio.run(main())


@pytest.mark.contract("N-4")
def test_of_two_programs_one_sends_a_reminder(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as one, open_store() as two:
            await one.register_webhooks([HOOK], NOON)
            for number in range(10):
                await waiting(one, new_run(f"run-{number}"))
            found = await asyncio.gather(*(claim(store, 60) for store in (one, two) * 5))
            ids = [due.delivery.id for each in found for due in each]
            assert len(ids) == len(set(ids)) == 10

    asyncio.run(main())


def test_the_attempts_of_a_reminder_show_the_same_run(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            await store.register_webhooks([HOOK], NOON)
            run = await waiting(store, new_run(options=DECIDED))
            (first,) = await claim(store, 60)
            await store.record_attempt(first.delivery, Attempt(status=500, error="down", next_attempt_at=at(200)))
            await move(store, run.id, DeadlineNear(interaction_id="colour", at=at(100)))
            found = await claim(store, 200)
            (again,) = [due for due in found if due.delivery.reason is DeliveryReason.REMINDER]
            assert again.run == first.run

    asyncio.run(main())


# Near deadlines.


@pytest.mark.contract("N-4")
def test_a_near_deadline_is_notified_once_to_who_wants_it(open_store: OpenStore) -> None:
    quiet = Webhook(url="https://three.example/", kind=WebhookKind.NTFY, reminders=replace(TWICE, expiring=False))

    async def main() -> None:
        async with open_store() as store:
            await store.register_webhooks([HOOK, SILENT, quiet], NOON)
            run = await waiting(store, new_run(options=DECIDED))
            for seconds in (601, 602):
                await move(store, run.id, DeadlineNear(interaction_id="colour", at=at(seconds)))
            events = [each for each in await store.events(run.id) if each.type == "interaction.expiring"]
            assert [each.data for each in events] == [
                {"interaction_id": "colour", "deadline_at": "2026-03-01T12:20:00Z"}
            ]
            found = await claim(store, 601)
            (due,) = [each for each in found if each.delivery.reason is DeliveryReason.EXPIRING]
            assert (due.delivery.webhook, due.delivery.seq) == (HOOK, events[0].seq)
            assert due.run.expiring

    asyncio.run(main())


# Changed settings.


@pytest.mark.contract("N-4")
def test_changed_reminders_apply_to_open_questions_from_now_on(open_store: OpenStore) -> None:
    other = Webhook(url="https://new.example/", kind=WebhookKind.NTFY, reminders=TWICE)
    changed = replace(HOOK, reminders=Reminders(after_sec=(50.0, 90.0, 120.0, 600.0)))

    async def main() -> None:
        async with open_store() as store:
            await store.register_webhooks([HOOK], NOON)
            await waiting(store, new_run())
            (due,) = await claim(store, 60)
            await store.record_attempt(due.delivery, Attempt(status=204, delivered_at=at(60)))
            await store.register_webhooks([changed, other], at(100))
            # The first is sent already, the second would be late; a new webhook was not notified of the question.
            assert await planned(store) == [(3, 120), (4, 600)]
            await store.register_webhooks([changed, other], at(1000))
            assert await planned(store) == [(3, 120), (4, 600)], "what was missed is kept if nothing has changed"

    asyncio.run(main())


@pytest.mark.contract("N-4")
@pytest.mark.parametrize("left", [[replace(HOOK, reminders=None)], []], ids=["without reminders", "removed"])
def test_reminders_that_are_turned_off_are_not_sent(open_store: OpenStore, left: list[Webhook]) -> None:
    async def main() -> None:
        async with open_store() as store:
            await store.register_webhooks([HOOK], NOON)
            await waiting(store, new_run())
            (claimed,) = await claim(store, 60)
            await store.register_webhooks(left, at(70))
            assert not await store.is_due(claimed.delivery)
            assert await claim(store, 10**6) == []

    asyncio.run(main())


def test_a_question_that_is_being_canceled_gets_no_new_reminders(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            await store.register_webhooks([HOOK], NOON)
            await waiting(store, new_run(sticky=True))
            await move(store, "run-1", CancelRequested(at=at(10)))
            await store.register_webhooks([replace(HOOK, reminders=Reminders(after_sec=(100.0,)))], at(20))
            assert await planned(store) == []

    asyncio.run(main())


@pytest.mark.contract("N-4")
def test_open_questions_of_an_older_store_get_the_reminders_that_are_ahead(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened("sqlite", tmp_path) as store:
            await store.register_webhooks([replace(HOOK, reminders=None)])
            run = await waiting(store, new_run())
            await create(store, new_run("queued"))
            before = await store.deliveries(limit=200)
        with closing(apsw.Connection(str(tmp_path / "askback.db"))) as connection:
            for statement in downgrade(9):
                connection.execute(statement)
        async with opened("sqlite", tmp_path) as store:
            assert await store.deliveries(limit=200) == before
            await store.register_webhooks([HOOK], at(100))
            assert await planned(store) == [(2, 300)]
            await reply(store, run)
            assert await planned(store) == []

    asyncio.run(main())
