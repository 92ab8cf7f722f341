"""Several servers on one PostgreSQL database: what must happen once is done by one of them, whichever leads."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from askback.app import App
from askback.core.errors import NotFound
from askback.core.events import EventType
from askback.core.interactions import AnsweredBy
from askback.core.runs import RunState
from askback.core.webhooks import DeliveryReason
from support import postgres
from support.data_folder import World, events_of, over, submit, waiting
from support.digest_log import Log
from support.passing_time import PassingTime
from support.postgres import databases
from support.receiver import ALLOWED, Receiver, receiving

ASKS = {"ask": {"interaction_id": "colour", "prompt": "Which colour?", "default": "red"}}
FINISH = {"finish": {"colour": "{{reply|none}}"}}
HOUR = 3600
DECIDED = {"interactive_require_user_reply": False, "session_timeout_sec": HOUR}


def config(hook: Receiver, phone: Receiver) -> str:
    """A reminder after half an hour, an announcement ten minutes before a deadline, a digest two hours from now."""
    at = datetime.now(UTC) + timedelta(hours=2)
    return (
        f'{ALLOWED}[retention]\ndays = 0.5\n[notifications.digest]\nat = ["{at:%H:%M}"]\ntz = "UTC"\n'
        "[notifications.reminders]\nbefore_deadline_sec = 600\n"
        f'[[webhooks]]\nurl = "{hook.url}"\nreminders = {{after_sec = [{HOUR // 2}]}}\n'
        f'[[webhooks]]\nurl = "{phone.url}"\nkind = "ntfy"\nstates = []\ndigest = true\n'
    )


async def hand_over(world: World, leader: App, other: App) -> None:
    """Cut the session of the leader until another one leads."""
    leads = asyncio.create_task(other.instances.leads())

    def cut() -> None:
        import psycopg

        assert world.database is not None
        with psycopg.connect(world.database, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s",
                [f"askback {leader.instances.name}"],
            )

    while not leads.done():
        await asyncio.to_thread(cut)
        await asyncio.wait({leads}, timeout=0.5)
    await leader.instances.leads_no_more()


async def reminders_sent(app: App) -> int:
    """Those that are known to be: time that passes during an attempt would end it, and it would be repeated."""
    found = (await app.store.deliveries(limit=200)).items
    return sum(each.reason is DeliveryReason.REMINDER and each.delivered_at is not None for each in found)


async def decided_once(app: App, skill: str, time: PassingTime, *, reminders: int) -> str:
    """A question that nobody answers until its deadline. There are so many reminders then, of all questions."""
    run = await waiting(app, (await submit(app, skill, options=DECIDED)).id)
    time.passes(HOUR - 300)

    async def announced() -> int:
        return sum(event.type is EventType.INTERACTION_EXPIRING for event in await events_of(app, run.id))

    # Nobody is reminded of a question that is closed.
    while not await announced() or await reminders_sent(app) < reminders:
        await asyncio.sleep(0.01)
    time.passes(300)
    assert (await over(app, run.id)).state is RunState.SUCCEEDED
    assert await announced() == 1
    (asked,) = await app.store.interactions(run.id)
    assert asked.answered_by is AnsweredBy.AUTO_DECIDE
    return run.id


async def is_removed(app: App, run_id: str) -> None:
    with suppress(NotFound):
        while True:
            await app.store.get(run_id)
            await asyncio.sleep(0.01)


def reminded(hook: Receiver) -> Counter[str]:
    """How often each reminder has come, by its id."""
    messages = [(each.headers["webhook-id"], json.loads(each.body)["type"]) for each in list(hook.came)]
    return Counter(id_ for id_, type_ in messages if type_ == "interaction.reminder")


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Log:
    return Log(caplog)


@pytest.mark.contract("M-8")
def test_each_duty_is_done_once_and_taken_over_by_the_next_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: Log
) -> None:
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    time = PassingTime(monkeypatch)

    async def main(world: World, hook: Receiver, phone: Receiver) -> None:
        skill, settings = world.skill([ASKS], [FINISH]), config(hook, phone)
        async with world.working(settings, serving=True) as one:
            await one.instances.leads()
            async with world.working(settings, serving=True) as two:
                # Reminded of, in digests, and never answered.
                await waiting(two, (await submit(two, skill)).id)
                old = [await decided_once(two, skill, time, reminders=2)]
                await hand_over(world, one, two)
                old += [await decided_once(one, skill, time, reminders=3)]
                await log.sent(1)
                await hand_over(world, two, one)
                time.passes(24 * HOUR)
                await log.sent(2)
                # Retention has its turn once a day.
                for run_id in old:
                    await is_removed(two, run_id)
        assert set(reminded(hook).values()) == {1}
        assert len(reminded(hook)) == 3
        assert len(phone.came) == 2

    with databases.chosen(True), receiving(Receiver()) as hook, receiving(Receiver()) as phone:
        world = World(tmp_path)
        asyncio.run(main(world, hook, phone))
