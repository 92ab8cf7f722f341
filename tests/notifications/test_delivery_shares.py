"""Slow receivers that callers have added take no slot from the webhooks of the settings, and leave some to other callers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from askback.app import App, now, opened
from askback.core.runs import Mode, Profile, ProfileKind, Run, RunOptions, RunState, SkillRef, TurnKind, TurnOrder
from askback.core.webhooks import Delivery, DueDelivery, Webhook, WebhookKind
from askback.notifications.channels import DeliveryPolicy
from askback.notifications.outbox import Notifications, Slot, Slots
from askback.runs.submission import Submission
from support.data_folder import FINISH, World, run_async, until
from support.receiver import ALLOWED, Receiver, receiving


@asynccontextmanager
async def sending(world: World, *webhooks: Webhook) -> AsyncIterator[App]:
    """A program that sends to the webhooks of the settings and of runs, and executes no runs."""
    async with opened(world.settings(ALLOWED), serving=True) as app, asyncio.TaskGroup() as group:
        policy = DeliveryPolicy(webhooks=webhooks, allow_private=True, retries_sec=())
        notifications = Notifications(store=app.store, policy=policy, clock=now)
        await notifications.register()
        task = group.create_task(notifications.run())
        yield app
        task.cancel()


async def submitted(app: App, world: World, creator: str, *webhooks: Webhook) -> str:
    """A run that stays queued; its webhooks are notified of that."""
    wanted = Submission(
        skill=str(world.skill([FINISH])), engine="scripted", mode="auto", webhooks=webhooks, created_by=creator
    )
    return (await app.service.submit(wanted)).id


def test_slow_receivers_of_a_caller_delay_nobody_else(tmp_path: Path) -> None:
    async def main() -> None:
        world = World(tmp_path)
        with ExitStack() as receivers, receiving(Receiver()) as own, receiving(Receiver()) as other:
            slow = [receivers.enter_context(receiving(Receiver(), hold=True)) for _ in range(8)]
            async with sending(world, Webhook(url=own.url, name="Operator")) as app:
                hooks = tuple(Webhook(url=each.url) for each in slow)
                for _ in range(3):
                    await submitted(app, world, "slow", *hooks)
                await until(lambda: sum(len(each.came) for each in slow) == 4)
                await submitted(app, world, "quick", Webhook(url=other.url))
                await until(lambda: len(own.came) == 4 and len(other.came) == 1)
                assert sum(len(each.came) for each in slow) == 4
                for each in slow:
                    each.hold.set()
                await until(lambda: sum(len(each.came) for each in slow) == 24)

    run_async(main)


# The limits, whatever is due.


def due(host: str, caller: str | None, *, device: bool) -> DueDelivery:
    at = now()
    run = Run(
        id="run",
        state=RunState.QUEUED,
        skill=SkillRef(id="skill", version=None, digest="digest"),
        engine="scripted",
        mode=Mode.AUTO,
        profile=Profile(kind=ProfileKind.RESUMABLE, reason="", session_timeout_sec=60),
        options=RunOptions(),
        next_turn=TurnOrder(kind=TurnKind.START, attempt_number=1),
        created_at=at,
        updated_at=at,
        created_by=caller,
    )
    url = f"https://{host}.example/{caller}"
    delivery = Delivery(
        number=1,
        webhook_number=1,
        webhook=Webhook(url=url, kind=WebhookKind.PUSH if device else WebhookKind.STANDARD),
        run_id=run.id,
        seq=1,
        old=None,
        new=run.state,
        at=at,
        attempts=1,
        last_status=None,
        last_error=None,
        next_attempt_at=None,
        delivered_at=None,
        of_run=caller is not None and not device,
    )
    return DueDelivery(delivery=delivery, run=run)


CALLERS = ("anna", "ben", "carl")
HOSTS = ("a", "b", "c", "d", "e")
OWNERS = {f"https://{host}.example/{caller}": caller for host in HOSTS for caller in CALLERS}
DUE = st.builds(due, st.sampled_from(HOSTS), st.sampled_from((*CALLERS, None)), device=st.booleans())


def is_passed_over(slots: Slots, each: DueDelivery) -> bool:
    busy, webhook = slots.busy(OWNERS), each.delivery.webhook
    if not each.delivery.of_run and webhook.kind is not WebhookKind.PUSH:
        return webhook.host in busy.hosts
    named = webhook.url in busy.devices or (each.delivery.of_run and each.run.created_by in busy.callers)
    return busy.all_callers or webhook.host in busy.hosts_of_callers or named


@given(
    flood=st.lists(DUE.filter(lambda each: each.run.created_by is not None), max_size=60), own=st.sampled_from(HOSTS)
)
def test_whatever_callers_add_a_webhook_of_the_settings_finds_a_slot(flood: list[DueDelivery], own: str) -> None:
    slots, taken = Slots(), list[tuple[DueDelivery, Slot]]()
    while flood and slots.room:
        free = [each for each in flood if not is_passed_over(slots, each)][: slots.room]
        if not free:
            break
        for each in free:
            flood.remove(each)
            taken.append((each, slots.take(each, OWNERS)))
    assert len(taken) <= 8
    for caller in CALLERS:
        assert sum(each.run.created_by == caller for each, _ in taken) <= 4
    assert slots.room > 0
    assert not is_passed_over(slots, due(own, None, device=False))
    for _, slot in taken:
        slots.free(slot)
    assert slots.busy(OWNERS) == Slots().busy({})
