"""Digests of open questions: what each channel gets, when, and when nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from askback.app import App
from askback.core.runs import Run
from askback.notifications.digests import MAX_LISTED, RETRIES_SEC, DigestRecord
from support.data_folder import ASK, FINISH, World, over, submit, until, waiting
from support.digest_log import Log
from support.mail_server import Mailbox, receiving_mail
from support.ntfy import ntfy_server
from support.passing_time import PassingTime
from support.receiver import ALLOWED, Receiver, receiving
from support.slack import slack

PUBLIC = "https://askback.example"
HOUR = 3600
ONLY = "states = []\ndigest = true\n"
"""No other messages than digests."""


def daily(time: PassingTime, in_hours: float = 2, more: str = "") -> str:
    """Settings with one digest a day, so many hours from now on."""
    due: datetime = time.now() + timedelta(hours=in_hours)
    digest = f'[notifications.digest]\nat = ["{due:%H:%M}"]\ntz = "UTC"\n'
    return f'[server]\npublic_url = "{PUBLIC}"\n{ALLOWED}{more}{digest}'


def hook(url: str, kind: str = "ntfy", rest: str = ONLY) -> str:
    return f'[[webhooks]]\nurl = "{url}"\nkind = "{kind}"\n{rest}'


async def asked(app: App, skill: str, **more: Any) -> Run:
    return await waiting(app, (await submit(app, skill, **more)).id)


def bodies(receiver: Receiver) -> list[dict[str, Any]]:
    return [json.loads(came.body) for came in list(receiver.came)]


def sent_digests(world: World) -> Mapping[str, DigestRecord]:
    return world.records.collection("digests", DigestRecord).read()


def attempts(world: World) -> int:
    """Of the digest that was claimed last."""
    return max((record.attempts for record in sent_digests(world).values()), default=-1)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Log:
    return Log(caplog)


def begun(world: World) -> bool:
    """Whether the server knows its channels: digests that are due from now on are theirs."""
    return attempts(world) >= 0


@pytest.mark.contract("N-4")
def test_each_channel_gets_one_message_about_all_open_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: Log
) -> None:
    world, time = World(tmp_path), PassingTime(monkeypatch)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        with ntfy_server() as phone, slack() as team, receiving_mail(Mailbox()) as mailbox:
            mail = f'[notifications.email]\nurl = "smtp://127.0.0.1:{mailbox.port}"\nsender = "askback@example.org"\n'
            hooks = hook(f"{phone.url}/topic") + hook(f"{team.url}/services/T/B/x", "slack")
            config = daily(time, more=mail) + hooks + hook("mailto:anna@example.org", "email")
            async with world.working(config, serving=True) as app:
                await until(lambda: begun(world))
                for _ in range(3):
                    await asked(app, skill)
                time.passes(2 * HOUR)
                await log.sent(3)
                time.passes(24 * HOUR)
                await log.sent(6)
        assert (phone.problems, team.problems) == ([], [])
        assert [each["title"] for each in phone.messages] == ["3 questions are waiting"] * 2
        assert phone.messages[0]["message"].count("tested: Which colour?") == 3
        assert phone.messages[0]["message"].count(f"{PUBLIC}/answers/") == 3
        assert len(team.incoming[0]["blocks"]) == 4
        assert mailbox.came[0].message["Subject"] == "3 questions are waiting"
        assert mailbox.came[0].part("html").count(f"{PUBLIC}/answers/") == 3
        assert "red" not in phone.messages[0]["message"]

    asyncio.run(main())


@pytest.mark.contract("N-4")
def test_the_link_in_a_digest_is_that_of_the_single_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: Log
) -> None:
    world, time = World(tmp_path), PassingTime(monkeypatch)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        with receiving(Receiver()) as phone:
            rest = 'states = ["waiting_user"]\nreminders = false\n'
            async with world.working(daily(time) + hook(phone.url, rest=rest), serving=True) as app:
                await asked(app, skill)
                while not any(each.delivered_at for each in (await app.store.deliveries()).items):
                    await asyncio.sleep(0.01)
                await until(lambda: begun(world))
                time.passes(2 * HOUR)
                await log.sent(1)
        single, digest = bodies(phone)
        assert (single["title"], digest["title"]) == ("tested has a question", "1 question is waiting")
        assert digest["click"] == single["click"]

    asyncio.run(main())


@pytest.mark.contract("N-4")
def test_a_channel_is_told_of_the_questions_that_it_may_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: Log
) -> None:
    world, time = World(tmp_path), PassingTime(monkeypatch)
    skill, other = world.skill([ASK], [FINISH]), world.skill([ASK], [FINISH], name="other")

    async def main() -> None:
        async with AsyncExitStack() as ends:
            some, everything, none, silent = (ends.enter_context(receiving(Receiver())) for _ in range(4))
            hooks = [
                hook(some.url, rest=f'{ONLY}labels = {{customer = "4711"}}\n'),
                hook(everything.url),
                hook(none.url, rest=f'{ONLY}labels = {{customer = "nobody"}}\n'),
                hook(silent.url, rest='states = ["failed"]\n'),
            ]
            # The question of a program that is no server is its own.
            async with world.working() as program:
                await asked(program, skill)
                app = await ends.enter_async_context(world.working(daily(time) + "".join(hooks), serving=True))
                await until(lambda: begun(world))
                await asked(app, skill, labels={"customer": "4711", "plan": "trial"})
                await asked(app, other, labels={"customer": "1"})
                closed = await asked(app, skill)
                await app.service.reply(closed.id, "red")
                await over(app, closed.id)
                time.passes(2 * HOUR)
                await log.sent(2)
                time.passes(24 * HOUR)
                await log.sent(4)
            (first, _), (all_of_them, _) = bodies(some), bodies(everything)
            assert first["title"] == "1 question is waiting"
            assert all_of_them["title"] == "2 questions are waiting"
            assert "other: Which colour?" in all_of_them["message"]
            assert "other" not in first["message"]
            assert (none.came, silent.came) == ([], [])

    asyncio.run(main())


@pytest.mark.contract("N-4")
def test_nothing_is_sent_if_no_question_is_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    world, time = World(tmp_path), PassingTime(monkeypatch)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        with receiving(Receiver()) as phone:
            async with world.working(daily(time) + hook(phone.url), serving=True) as app:
                await until(lambda: begun(world))
                time.passes(2 * HOUR)
                await until(lambda: "no question is open" in log.text)
                await asked(app, skill)
                time.passes(24 * HOUR)
                await until(lambda: len(phone.came) == 1)
        assert [each["title"] for each in bodies(phone)] == ["1 question is waiting"]
        assert "asked 24 hours ago" in bodies(phone)[0]["message"]

    asyncio.run(main())


@pytest.mark.contract("N-4")
def test_the_oldest_are_listed_and_the_others_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: Log
) -> None:
    world, time = World(tmp_path), PassingTime(monkeypatch)
    secret = {"ask": {"interaction_id": "key", "prompt": "Your key?", "secret": True}}
    hidden = world.skill([secret], [FINISH], name="hidden")
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        with slack() as team:
            async with world.working(daily(time) + hook(f"{team.url}/services/T/B/x", "slack"), serving=True) as app:
                await until(lambda: begun(world))
                await asked(app, hidden)
                for _ in range(MAX_LISTED + 1):
                    await asked(app, skill)
                time.passes(2 * HOUR)
                await until(lambda: bool(team.incoming))
        assert team.problems == []
        title, *listed, rest = (block["text"]["text"] for block in team.incoming[0]["blocks"])
        assert title == "*12 questions are waiting*"
        assert len(listed) == MAX_LISTED
        assert "hidden: Your key?" in listed[0]
        assert rest == "and 2 more"

    asyncio.run(main())


# Failures.


@pytest.mark.contract("N-4")
def test_a_failed_digest_is_sent_again_and_then_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: Log
) -> None:
    world, time = World(tmp_path), PassingTime(monkeypatch)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        most = len(RETRIES_SEC) + 1
        with receiving(Receiver(answers=[503] * most)) as phone:
            async with world.working(daily(time) + hook(phone.url), serving=True) as app:
                await until(lambda: begun(world))
                await asked(app, skill)
                time.passes(2 * HOUR)
                for attempt, delay_sec in enumerate(RETRIES_SEC, 1):
                    await until(lambda attempt=attempt: len(phone.came) == attempt and _retry_known(world))
                    time.passes(delay_sec + 1)
                await until(lambda: "given up after 5 attempts: the receiver returned 503" in log.text)
                assert len(phone.came) == most
                time.passes(24 * HOUR)
                await log.sent(1)
                assert len(phone.came) == most + 1
        assert "/hook" not in log.text, "the path may be a secret"

    asyncio.run(main())


def _retry_known(world: World) -> bool:
    (record,) = sent_digests(world).values()
    return record.retry_at is not None


@pytest.mark.contract("N-4")
@pytest.mark.parametrize("kind", ["ntfy", "email"])
def test_a_receiver_that_refuses_for_good_gets_no_second_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: Log, kind: str
) -> None:
    world, time = World(tmp_path), PassingTime(monkeypatch)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        with receiving(Receiver(answers=[410])) as phone, receiving_mail(Mailbox(answers=["550 no such user"])) as box:
            mail = f'[notifications.email]\nurl = "smtp://127.0.0.1:{box.port}"\nsender = "askback@example.org"\n'
            url = phone.url if kind == "ntfy" else "mailto:anna@example.org"
            async with world.working(daily(time, more=mail) + hook(url, kind), serving=True) as app:
                await until(lambda: begun(world))
                await asked(app, skill)
                time.passes(2 * HOUR)
                await until(lambda: "given up after 1 attempt: " in log.text)
        assert len(phone.came) + box.attempts == 1

    asyncio.run(main())


@pytest.mark.contract("N-4")
def test_a_question_that_was_answered_since_is_not_in_the_second_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: Log
) -> None:
    world, time = World(tmp_path), PassingTime(monkeypatch)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        with receiving(Receiver(answers=[503])) as phone:
            async with world.working(daily(time) + hook(phone.url), serving=True) as app:
                await until(lambda: begun(world))
                answered, _ = await asked(app, skill), await asked(app, skill)
                time.passes(2 * HOUR)
                await until(lambda: len(phone.came) == 1 and _retry_known(world))
                await app.service.reply(answered.id, "red")
                await over(app, answered.id)
                time.passes(RETRIES_SEC[0] + 1)
                await until(lambda: len(phone.came) == 2)
        assert [each["title"] for each in bodies(phone)] == ["2 questions are waiting", "1 question is waiting"]

    asyncio.run(main())


# Restarts, and two servers.


@pytest.mark.contract("N-4")
def test_a_digest_that_was_missed_comes_at_the_start_and_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: Log
) -> None:
    world, time = World(tmp_path), PassingTime(monkeypatch)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        with receiving(Receiver()) as phone:
            config = daily(time) + hook(phone.url)
            async with world.working(config, serving=True) as app:
                await until(lambda: begun(world))
                await asked(app, skill)
            time.passes(5 * HOUR)
            async with world.working(config, serving=True):
                await until(lambda: len(phone.came) == 1)
            for _ in range(2):
                async with world.working(config, serving=True):
                    pass
            async with world.working(config, serving=True):
                time.passes(21 * HOUR)
                await until(lambda: len(phone.came) == 2)
            # Later than twelve hours: the next one is near.
            time.passes(37 * HOUR)
            async with world.working(config, serving=True):
                time.passes(11 * HOUR)
                await until(lambda: len(phone.came) == 3)
        assert "asked 3 days ago" in bodies(phone)[2]["message"]

    asyncio.run(main())


@pytest.mark.contract("N-4")
def test_two_servers_on_one_folder_send_one_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    world, time = World(tmp_path), PassingTime(monkeypatch)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        with receiving(Receiver()) as phone:
            config = daily(time) + hook(phone.url)
            async with world.working(config, serving=True) as app, world.working(config, serving=True):
                await until(lambda: begun(world))
                await asked(app, skill)
                for day in (1, 2, 3):
                    time.passes(2 * HOUR if day == 1 else 24 * HOUR)
                    await log.sent(day)
        assert len(phone.came) == 3

    asyncio.run(main())
