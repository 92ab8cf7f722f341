"""Open questions are notified again, and near deadlines are announced: what is sent, to whom, and when no more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from askback.app import App, now
from askback.cli.terminal.live import lines
from askback.core.events import Event, EventType
from askback.core.runs import Mode, Profile, ProfileKind, Run, RunOptions, RunState, SkillRef, TurnKind, TurnOrder
from askback.core.signals import CancelRequested
from askback.core.webhooks import (
    NOBODY,
    BusyReceivers,
    Delivery,
    DeliveryReason,
    DueDelivery,
    Reminders,
    Webhook,
    WebhookKind,
)
from askback.notifications.channels import DeliveryPolicy
from askback.notifications.notice import reminder_prefix
from askback.notifications.outbox import Notifications
from askback.store.base import move
from askback.store.sqlite import SqliteStore
from support.data_folder import ASK, FINISH, World, events_of, over, submit, waiting
from support.passing_time import PassingTime
from support.receiver import ALLOWED, Came, Receiver, receiving

TWICE = "[notifications.reminders]\nafter_sec = [3600, 7200]\nbefore_deadline_sec = 600\n"
DECIDED = {"interactive_require_user_reply": False, "session_timeout_sec": 7200}


def hook(receiver: Receiver, kind: str, rest: str = "") -> str:
    return f'[[webhooks]]\nurl = "{receiver.url}"\nkind = "{kind}"\nstates = ["waiting_user"]\n{rest}'


def titles(receiver: Receiver) -> list[str]:
    """Of the messages that ntfy would show."""
    return [json.loads(came.body)["title"] for came in receiver.came]


def types(came: Sequence[Came]) -> list[str]:
    return [json.loads(each.body)["type"] for each in came]


async def delivered(app: App, count: int) -> None:
    """Wait until so many are delivered, and known to be: time that passes during an attempt would end it."""
    while sum(each.delivered_at is not None for each in (await app.store.deliveries(limit=200)).items) < count:
        await asyncio.sleep(0.01)


async def planned(app: App, run_id: str) -> list[Delivery]:
    return [each for each in (await app.store.deliveries(run_id)).items if each.next_attempt_at is not None]


# What is sent.


@pytest.mark.contract("N-4")
def test_people_are_reminded_as_often_as_the_settings_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, time = World(tmp_path), PassingTime(monkeypatch)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        with receiving(Receiver()) as ntfy, receiving(Receiver()) as machine:
            config = f"{ALLOWED}{TWICE}{hook(ntfy, 'ntfy')}{hook(machine, 'standard')}"
            async with world.working(config, serving=True) as app:
                run = await waiting(app, (await submit(app, skill)).id)
                for count in (2, 3, 4):
                    await delivered(app, count)
                    time.passes(3600)
                assert await planned(app, run.id) == []
                assert titles(ntfy) == [
                    "tested has a question",
                    "Still waiting: tested has a question",
                    "Still waiting: tested has a question",
                ]
                assert all("Which colour?" in json.loads(came.body)["message"] for came in ntfy.came)
                assert types(machine.came) == ["run.state"]

    asyncio.run(main())


@pytest.mark.contract("N-4")
def test_a_webhook_for_programs_is_reminded_if_it_wants_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, time = World(tmp_path), PassingTime(monkeypatch)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        with receiving(Receiver()) as machine:
            config = f"{ALLOWED}{TWICE}{hook(machine, 'standard', 'reminders = {after_sec = [1800]}')}"
            async with world.working(config, serving=True) as app:
                run = await waiting(app, (await submit(app, skill, options=DECIDED)).id)
                await delivered(app, 1)
                time.passes(1800)
                await delivered(app, 2)
                time.passes(4900)
                await delivered(app, 3)
        assert types(machine.came) == ["run.state", "interaction.reminder", "interaction.expiring"]
        first, second, third = (json.loads(came.body)["data"] for came in machine.came)
        assert first["seq"] == second["seq"] < third["seq"]
        for again in (second, third):
            assert (again["from"], again["to"]) == ("waiting_user", "waiting_user")
            assert again["run"]["pending_interaction"] == first["run"]["pending_interaction"]
            assert again["run"]["id"] == run.id
        assert len({came.headers["webhook-id"] for came in machine.came}) == 3

    asyncio.run(main())


@pytest.mark.contract("N-4")
def test_a_near_deadline_is_announced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, time = World(tmp_path), PassingTime(monkeypatch)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        with receiving(Receiver()) as ntfy:
            config = (
                f"{ALLOWED}[notifications.reminders]\nbefore_deadline_sec = 3600\nafter_sec = []\n{hook(ntfy, 'ntfy')}"
            )
            async with world.working(config, serving=True) as app:
                run = await waiting(app, (await submit(app, skill, options=DECIDED)).id)
                short = {**DECIDED, "session_timeout_sec": 3500}
                hurried = await waiting(app, (await submit(app, skill, options=short)).id)
                await delivered(app, 2)
                time.passes(3601)
                await delivered(app, 3)
                time.passes(3600)
                for each in (run, hurried):
                    await over(app, each.id)
                events = [event for event in await events_of(app, run.id) if event.type == "interaction.expiring"]
                assert [event.data["interaction_id"] for event in events] == ["colour"]
                assert all(event.type != "interaction.expiring" for event in await events_of(app, hurried.id))
        assert titles(ntfy)[2].startswith("Expires in ")
        assert titles(ntfy)[2].endswith(": tested has a question")

    asyncio.run(main())


@pytest.mark.contract("N-4")
@pytest.mark.parametrize("how", ["reply", "cancel"])
def test_nobody_is_reminded_of_a_closed_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    world, time = World(tmp_path), PassingTime(monkeypatch)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        with receiving(Receiver()) as ntfy:
            async with world.working(f"{ALLOWED}{TWICE}{hook(ntfy, 'ntfy')}", serving=True) as app:
                closed, other = [await waiting(app, (await submit(app, skill)).id) for _ in range(2)]
                # A message of a closed question that was not sent yet is dropped.
                await delivered(app, 2)
                assert len(await planned(app, closed.id)) >= 2
                if how == "reply":
                    await app.service.reply(closed.id, "red")
                else:
                    await app.service.cancel(closed.id)
                await over(app, closed.id)
                assert all(each.reason is DeliveryReason.STATE for each in await planned(app, closed.id))
                time.passes(3600)
                await delivered(app, 3)
                sent = [each for each in (await app.store.deliveries()).items if each.place and each.attempts]
                assert {each.run_id for each in sent} == {other.id}

    asyncio.run(main())


def later() -> datetime:
    return now() + timedelta(hours=1)


class Interrupting(SqliteStore):
    """The question of a reminder is closed as soon as the reminder is claimed."""

    async def claim_deliveries(
        self, at: datetime, *, until: datetime, limit: int, busy: BusyReceivers = NOBODY
    ) -> Sequence[DueDelivery]:
        claimed = await super().claim_deliveries(at, until=until, limit=limit, busy=busy)
        for due in claimed:
            if due.delivery.reason is DeliveryReason.REMINDER:
                await self.closing(due.run)
        return claimed

    async def closing(self, run: Run) -> None:
        await move(self, run.id, CancelRequested(at=later()))


@pytest.mark.sqlite
@pytest.mark.contract("N-4")
def test_a_question_that_is_closed_right_before_its_reminder_is_sent_wins(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        with receiving(Receiver()) as ntfy:
            patient = Webhook(url=ntfy.url, kind=WebhookKind.NTFY, reminders=Reminders(after_sec=(3600,)))
            async with world.working(ALLOWED, serving=True) as app:
                run = await waiting(app, (await submit(app, skill, webhooks=(patient,))).id)
            store = await Interrupting.open(world.data_dir / "askback.db")
            try:
                how = DeliveryPolicy(allow_private=True)
                sending = asyncio.create_task(Notifications(store=store, policy=how, clock=later).run())
                while any(each.next_attempt_at for each in (await store.deliveries(run.id)).items):
                    await asyncio.sleep(0.01)
                (reminder,) = [each for each in (await store.deliveries(run.id)).items if each.place]
                sending.cancel()
            finally:
                await store.close()
        assert reminder.last_error == "the question is closed"
        assert all(not title.startswith("Still waiting") for title in titles(ntfy))

    asyncio.run(main())


# The words.


@pytest.mark.parametrize(
    ("left_sec", "words"),
    [
        (600, "Expires in 10 minutes: "),
        (598.5, "Expires in 10 minutes: "),
        (91, "Expires in 2 minutes: "),
        (61, "Expires in 61 seconds: "),
        (1, "Expires in 1 second: "),
        (-5, "Expires in 0 seconds: "),
        (7200, "Expires in 2 hours: "),
        (86_400, "Expires in 24 hours: "),
    ],
)
def test_the_title_says_how_much_time_is_left(left_sec: float, words: str) -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    due = due_at(DeliveryReason.EXPIRING, noon + timedelta(seconds=left_sec))
    assert reminder_prefix(due, noon) == words
    assert reminder_prefix(replace(due, delivery=replace(due.delivery, reason=DeliveryReason.STATE)), noon) == ""


def due_at(reason: DeliveryReason, deadline: datetime) -> DueDelivery:
    run = Run(
        id="run",
        state=RunState.WAITING_USER,
        skill=SkillRef(id="skill", version=None, digest="digest"),
        engine="scripted",
        mode=Mode.INTERACTIVE,
        profile=Profile(kind=ProfileKind.RESUMABLE, reason="seen", session_timeout_sec=1200),
        options=RunOptions(),
        next_turn=TurnOrder(kind=TurnKind.START, attempt_number=1),
        created_at=deadline,
        updated_at=deadline,
        wait_deadline_at=deadline,
    )
    delivery = Delivery(
        number=1,
        webhook_number=1,
        webhook=Webhook(url="https://one.example/"),
        run_id=run.id,
        seq=1,
        old=run.state,
        new=run.state,
        at=deadline,
        attempts=1,
        last_status=None,
        last_error=None,
        next_attempt_at=None,
        delivered_at=None,
        reason=reason,
    )
    return DueDelivery(delivery=delivery, run=run)


@pytest.mark.contract("N-4")
def test_a_terminal_shows_an_announced_deadline_in_one_line() -> None:
    at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    data = {"interaction_id": "colour", "deadline_at": "2026-03-01T12:10:00Z"}
    event = Event(seq=9, run_id="run", type=EventType.INTERACTION_EXPIRING, at=at, data=data)
    (line,) = lines(event)
    local = (at + timedelta(minutes=10)).astimezone()
    assert line == f"  ! the question is still open; it expires at {local:%H:%M:%S}"
