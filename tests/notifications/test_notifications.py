"""Webhooks are notified of every change: signed, repeated under the same id until it works, also after a crash."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from askback.app import App, now, opened
from askback.core.errors import Invalid
from askback.core.runs import RunState
from askback.core.webhooks import Delivery, Webhook, WebhookKind
from askback.notifications.channels import DeliveryPolicy
from askback.notifications.outbox import Notifications
from askback.wire import deliveries as delivery_wire
from support.data_folder import ASK, FINISH, World, over, run_async, submit, until, waiting
from support.receiver import ALLOWED, Came, Receiver, receiving

SECRET = "whsec_" + base64.b64encode(b"a secret of twenty-four!").decode()
SOON = (0.05,) * 8
PAGE = Path(__file__).resolve().parents[2] / "docs/guides/notifications.md"


def signed(came: Came, secret: str = SECRET) -> bool:
    """The signature, made here from what the standard says."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    content = b".".join((came.headers["webhook-id"].encode(), came.headers["webhook-timestamp"].encode(), came.body))
    wanted = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
    return f"v1,{wanted}" in came.headers["webhook-signature"].split(" ")


@asynccontextmanager
async def sending(
    world: World, *, retries_sec: Sequence[float] = SOON, clock: Callable[[], datetime] = now, config: str = ALLOWED
) -> AsyncIterator[App]:
    """A program that sends webhooks, with short retries, and executes no runs."""
    async with opened(world.settings(config), serving=True) as app, asyncio.TaskGroup() as group:
        how = DeliveryPolicy(allow_private=app.settings.notifications.allow_private, retries_sec=retries_sec)
        task = group.create_task(Notifications(store=app.store, policy=how, clock=clock).run())
        yield app
        task.cancel()


async def submitted(app: App, world: World, *webhooks: Webhook) -> str:
    """A run that stays queued; its webhooks are notified of that."""
    return (await submit(app, world.skill([FINISH]), webhooks=webhooks)).id


async def settled(app: App, run_id: str, count: int = 1) -> list[Delivery]:
    """Wait until nothing will be sent any more; oldest first."""
    while True:
        page = await app.store.deliveries(run_id)
        if len(page.items) >= count and all(each.next_attempt_at is None for each in page.items):
            return list(page.items)[::-1]
        await asyncio.sleep(0.01)


# What is sent.


def test_every_change_of_a_run_is_sent_signed_and_in_full(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        with receiving(Receiver()) as receiver:
            config = f'{ALLOWED}[[webhooks]]\nurl = "{receiver.url}"\nsecret = "{SECRET}"\n'
            async with world.working(config, serving=True) as app:
                run = await waiting(app, (await submit(app, skill)).id)
                await app.service.reply(run.id, "red")
                await over(app, run.id)
                log = await settled(app, run.id, 6)
        assert all(each.delivered_at is not None and each.last_status == 204 for each in log)
        assert all(signed(came) for came in receiver.came)
        assert not signed(receiver.came[0], "whsec_" + base64.b64encode(b"another secret, the same").decode())
        sent = sorted((json.loads(came.body) for came in receiver.came), key=lambda each: each["data"]["seq"])
        assert [(each["data"]["from"], each["data"]["to"]) for each in sent] == [
            (None, "queued"),
            ("queued", "running"),
            ("running", "waiting_user"),
            ("waiting_user", "queued"),
            ("queued", "running"),
            ("running", "succeeded"),
        ]
        assert {each["type"] for each in sent} == {"run.state"}
        assert [each["data"]["run"]["state"] for each in sent] == [each["data"]["to"] for each in sent]
        assert sent[2]["data"]["run"]["pending_interaction"]["prompt"] == "Which colour?"
        assert len({came.headers["webhook-id"] for came in receiver.came}) == 6

    run_async(main)


def test_a_webhook_of_one_run_hears_of_no_other(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def main() -> None:
        with receiving(Receiver()) as receiver:
            async with sending(world) as app:
                await submitted(app, world)
                run_id = await submitted(app, world, Webhook(url=receiver.url, states=(RunState.QUEUED,)))
                await app.service.cancel(run_id)
                await settled(app, run_id)
        (came,) = receiver.came
        assert json.loads(came.body)["data"]["run"]["id"] == run_id
        assert "webhook-signature" not in came.headers

    run_async(main)


def test_ntfy_is_sent_a_short_text_with_a_title(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        with receiving(Receiver()) as receiver:
            hook = Webhook(url=receiver.url, secret="tk_token", kind=WebhookKind.NTFY, states=(RunState.WAITING_USER,))
            config = ALLOWED + 'link = "https://askback.example/runs/{run}"\n'
            async with world.working(config, serving=True) as app:
                run = await submit(app, skill, webhooks=(hook,))
                await settled(app, run.id)
        (came,) = receiver.came
        assert (came.path, came.headers["content-type"]) == ("/", "application/json")
        assert came.headers["authorization"] == "Bearer tk_token"
        assert json.loads(came.body) == {
            "topic": "hook",
            "title": "tested has a question",
            "message": "Which colour?\n\n• red\n• blue",
            "priority": 4,
            "tags": ["question"],
            "click": f"https://askback.example/runs/{run.id}",
        }

    run_async(main)


def test_slack_is_sent_a_text_that_cannot_be_taken_for_markup(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([{"ask": {"interaction_id": "a", "prompt": "<!channel> & more?"}}], [FINISH])

    async def main() -> None:
        with receiving(Receiver()) as receiver:
            hook = Webhook(url=receiver.url, kind=WebhookKind.SLACK, states=(RunState.WAITING_USER,))
            async with world.working(ALLOWED, serving=True) as app:
                await settled(app, (await submit(app, skill, webhooks=(hook,))).id)
        (came,) = receiver.came
        assert json.loads(came.body) == {"text": "*tested has a question*\n&lt;!channel&gt; &amp; more?"}

    run_async(main)


def test_the_example_of_the_page_verifies_what_is_sent(tmp_path: Path) -> None:
    world = World(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(example, str(PAGE), "exec"), names)

    async def main() -> None:
        with receiving(Receiver()) as receiver:
            async with sending(world) as app:
                await settled(app, await submitted(app, world, Webhook(url=receiver.url, secret=SECRET)))
        (came,) = receiver.came
        verify = names["verify"]
        assert verify(SECRET, came.headers, came.body)["data"]["to"] == "queued"
        forged: list[tuple[dict[str, str], bytes]] = [
            (came.headers, came.body + b" "),
            ({**came.headers, "webhook-id": "msg_other"}, came.body),
            ({**came.headers, "webhook-timestamp": "1"}, came.body),
            ({**came.headers, "webhook-signature": "v1,AAAA v2,BBBB"}, came.body),
        ]
        for headers, body in forged:
            with pytest.raises(ValueError, match="refused"):
                verify(SECRET, headers, body)

    run_async(main)


# When it does not work.


def test_after_a_failure_the_same_message_comes_again(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def main() -> None:
        with receiving(Receiver(answers=[500, 404])) as receiver:
            async with sending(world) as app:
                run_id = await submitted(app, world, Webhook(url=receiver.url, secret=SECRET))
                (entry,) = await settled(app, run_id)
        assert len(receiver.came) == 3
        assert {came.headers["webhook-id"] for came in receiver.came} == {entry.id}
        assert len({came.body for came in receiver.came}) == 1
        assert all(signed(came) for came in receiver.came)
        assert (entry.attempts, entry.last_status, entry.last_error) == (3, 204, None)
        assert entry.delivered_at is not None

    run_async(main)


def test_a_receiver_that_is_down_is_notified_when_it_is_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    receiver = Receiver()
    with receiving(receiver):
        """Takes a port that is free afterwards."""

    async def main() -> None:
        async with sending(world, retries_sec=(0.05,) * 1000) as app:
            run_id = await submitted(app, world, Webhook(url=receiver.url))
            while (entry := (await app.store.deliveries(run_id)).items[0]).last_error is None:
                await asyncio.sleep(0.01)
            assert entry.last_error == "the connection was refused"
            assert entry.last_status is None
            with receiving(receiver):
                (entry,) = await settled(app, run_id)
            assert entry.attempts > 1
            assert [came.headers["webhook-id"] for came in receiver.came] == [entry.id]

    run_async(main)


def test_what_never_works_is_given_up_and_stays_in_the_log(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def main() -> None:
        with receiving(Receiver(answers=[500] * 9)) as receiver:
            async with sending(world, retries_sec=(0.01, 0.01)) as app:
                (entry,) = await settled(app, await submitted(app, world, Webhook(url=receiver.url)))
        assert len(receiver.came) == entry.attempts == 3
        assert (entry.delivered_at, entry.last_status) == (None, 500)
        assert entry.last_error == "the receiver returned 500"

    run_async(main)


def test_a_receiver_that_is_gone_is_not_asked_again(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def main() -> None:
        with receiving(Receiver(answers=[410])) as receiver:
            async with sending(world) as app:
                (entry,) = await settled(app, await submitted(app, world, Webhook(url=receiver.url)))
        assert (len(receiver.came), entry.attempts, entry.delivered_at) == (1, 1, None)

    run_async(main)


@pytest.mark.parametrize(
    ("status", "asked", "pause_sec"),
    [(503, "3600", 3600), (429, "a date", 7200), (503, "9" * 12, 86400), (503, "1", 60)],
)
def test_a_receiver_is_left_alone_for_as_long_as_it_asks(
    tmp_path: Path, status: int, asked: str, pause_sec: float
) -> None:
    world = World(tmp_path)
    header = format_datetime(now() + timedelta(hours=2)) if asked == "a date" else asked

    async def main() -> None:
        with receiving(Receiver(answers=[status], headers={"Retry-After": header})) as receiver:
            async with sending(world, retries_sec=(60.0,)) as app:
                run_id = await submitted(app, world, Webhook(url=receiver.url))
                while (entry := (await app.store.deliveries(run_id)).items[0]).last_status is None:
                    await asyncio.sleep(0.01)
        assert (entry.attempts, entry.last_status) == (1, status)
        assert entry.next_attempt_at is not None
        assert pause_sec - 50 < (entry.next_attempt_at - now()).total_seconds() <= pause_sec

    run_async(main)


def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def main() -> None:
        with receiving(Receiver()) as other, receiving(Receiver(answers=[307, 302])) as receiver:
            receiver.headers["location"] = other.url
            async with sending(world, retries_sec=(0.01,)) as app:
                (entry,) = await settled(app, await submitted(app, world, Webhook(url=receiver.url)))
        assert len(receiver.came) == 2
        assert other.came == []
        assert entry.last_error == "the receiver returned 302: redirects are not followed"

    run_async(main)


def test_a_receiver_that_hangs_does_not_delay_others(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def main() -> None:
        with receiving(Receiver(), hold=True) as slow, receiving(Receiver()) as quick:
            async with sending(world) as app:
                for _ in range(20):
                    await submitted(app, world, Webhook(url=slow.url))
                run_id = await submitted(app, world, Webhook(url=quick.url))
                await until(lambda: len(slow.came) > 1)
                await settled(app, run_id)
                assert len(quick.came) == 1
                waiting_still = [each for each in (await app.store.deliveries()).items if each.run_id != run_id]
                assert len(waiting_still) == 20
                assert all(each.last_error is each.delivered_at is None for each in waiting_still)
                slow.hold.set()

    run_async(main)


# Crashes.

CRASH = """
import asyncio, os, signal, sys
from pathlib import Path
from askback.app import opened
from askback.core.webhooks import Webhook
from askback.runs.submission import Submission
from askback.settings.files import load

async def main(config, data_dir, skill, url, secret, works):
    async with opened(load(Path(config), data_dir=Path(data_dir)), serving=True) as app:
        hook = Webhook(url=url, secret=secret)
        if works == "no":
            await send(app, skill, hook)
            os.kill(os.getpid(), signal.SIGKILL)
        async with app.working():
            await send(app, skill, hook)
            await asyncio.sleep(60)

async def send(app, skill, hook):
    run = await app.service.submit(Submission(skill=skill, engine="scripted", webhooks=(hook,)))
    print(run.id, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


def crashing(world: World, receiver: Receiver, *, works: bool) -> subprocess.Popen[str]:
    world.settings(ALLOWED)
    args = [world.folder / "askback.toml", world.data_dir, world.skill([FINISH]), receiver.url, SECRET]
    command = [sys.executable, "-c", CRASH, *map(str, args), "yes" if works else "no"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_kill_between_the_change_and_its_delivery_loses_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def main() -> None:
        with receiving(Receiver()) as receiver:
            with crashing(world, receiver, works=False) as program:
                printed, _ = await asyncio.to_thread(program.communicate)
            assert program.returncode == -signal.SIGKILL
            assert receiver.came == []
            async with sending(world) as app:
                (entry,) = await settled(app, printed.strip())
        assert [came.headers["webhook-id"] for came in receiver.came] == [entry.id]
        assert signed(receiver.came[0])

    run_async(main)


def test_a_kill_in_the_middle_of_a_delivery_repeats_it_under_the_same_id(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def main() -> None:
        with receiving(Receiver(), hold=True) as receiver:
            with crashing(world, receiver, works=True) as program:
                assert program.stdout is not None
                printed = await asyncio.to_thread(program.stdout.readline)
                await until(lambda: bool(receiver.came))
                os.kill(program.pid, signal.SIGKILL)
            first = receiver.came[0].headers["webhook-id"]
            receiver.hold.set()
            async with sending(world, clock=lambda: now() + timedelta(minutes=5)) as app:
                log = await settled(app, printed.strip())
        assert first in {entry.id for entry in log}
        assert [came.headers["webhook-id"] for came in receiver.came].count(first) == 2
        assert all(entry.delivered_at is not None for entry in log)

    run_async(main)


# Secrets and settings.


def test_neither_log_shows_a_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = World(tmp_path)

    async def main() -> None:
        with receiving(Receiver(answers=[410])) as receiver:
            async with sending(world) as app:
                hook = Webhook(url=f"{receiver.url}?key=canary-in-query", secret=SECRET)
                (entry,) = await settled(app, await submitted(app, world, hook))
        assert receiver.came[0].path == "/hook?key=canary-in-query"
        shown = str(delivery_wire.Delivery.of(entry)) + repr(entry) + caplog.text
        assert "given up" in caplog.text
        assert SECRET not in shown
        assert "canary" not in shown

    caplog.set_level("DEBUG", "askback")
    run_async(main)


@pytest.mark.parametrize("url", ["http://127.0.0.1/hook", "http://[::ffff:10.0.0.1]/", "ftp://example.com/"])
def test_an_unfit_webhook_is_refused_with_the_run(tmp_path: Path, url: str) -> None:
    world = World(tmp_path)

    async def main() -> None:
        async with world.client() as app:
            with pytest.raises(Invalid) as error:
                await submitted(app, world, Webhook(url=url))
            assert error.value.problems[0].startswith("webhooks[0].url: ")

    run_async(main)


def test_a_mistake_in_the_settings_is_named_by_its_key(tmp_path: Path) -> None:
    world = World(tmp_path)
    hooks = [("http://10.0.0.1/", "standard"), ("https://example.com/", "slack"), ("https://example.com/", "slack")]
    config = "".join(f'[[webhooks]]\nurl = "{url}"\nkind = "{kind}"\n' for url, kind in hooks)

    async def main() -> None:
        with pytest.raises(Invalid) as error:
            async with opened(world.settings(config), serving=True):
                pass
        places = [problem.partition(":")[0] for problem in error.value.problems]
        assert places == ["webhooks.0.url", "webhooks.2.url"]

    run_async(main)
