"""The links in notifications: one for each recipient and question, whatever is repeated, and only for who may answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from askback.access.tokens import Tokens
from askback.app import App, delivery_policy, now, opened
from askback.app.notifications import make_answer_links
from askback.app.server import web_server
from askback.core.access import AccessScope
from askback.core.actors import Channel
from askback.core.errors import Invalid
from askback.core.runs import Run, RunState
from askback.core.webhooks import Delivery, Webhook, WebhookKind
from askback.notifications.outbox import Notifications
from askback.runs.links import AFTERWARDS, MAX_PER_RUN, AnswerLinks, Link, Recipient, StoredLink
from support.data_folder import ASK, FINISH, World, over, run_async, submit, until, waiting
from support.receiver import ALLOWED, Receiver, receiving

PUBLIC = "https://askback.example"
CONFIG = f'[server]\npublic_url = "{PUBLIC}"\n{ALLOWED}'
ANNA = Recipient(name="anna", key="webhook 1")
STICKY = {"interactive_profile": "sticky_process", "session_timeout_sec": 600}


async def asked(world: World, *webhooks: Webhook, **more: Any) -> Run:
    """A run that waits, with the notifications of its question in the outbox: its program sends none."""
    async with world.working(CONFIG) as app:
        return await waiting(app, (await submit(app, world.skill([ASK], [FINISH]), webhooks=webhooks, **more)).id)


@asynccontextmanager
async def sending(
    world: World, *, retries_sec: Sequence[float] = (0.02,) * 20, config: str = CONFIG
) -> AsyncIterator[App]:
    """A server that sends what is in the outbox, with short retries, and executes no runs."""
    async with opened(world.settings(config), serving=True) as app, asyncio.TaskGroup() as group:
        policy = delivery_policy(app.settings)
        soon = replace(policy, allow_private=True, retries_sec=retries_sec)
        notifications = Notifications(store=app.store, policy=soon, clock=now, answer_links=links_of(app))
        task = group.create_task(notifications.run())
        yield app
        task.cancel()


def links_of(app: App) -> AnswerLinks | None:
    return make_answer_links(app.settings, app.store, app.records, app.workspaces, now)


def stored(app: App, run: Run) -> list[StoredLink]:
    links = links_of(app)
    assert links is not None
    return links.links.all(run.id, "colour")


async def settled(app: App, run_id: str) -> Delivery:
    while True:
        (entry,) = (await app.store.deliveries(run_id)).items
        if entry.next_attempt_at is None:
            return entry
        await asyncio.sleep(0.01)


def hook(receiver: Receiver) -> Webhook:
    return Webhook(url=receiver.url, states=(RunState.WAITING_USER,))


def url_in(receiver: Receiver, place: int = -1) -> str | None:
    found: str | None = json.loads(receiver.came[place].body)["data"].get("answer_url")
    return found


@pytest.mark.contract("N-3")
def test_a_message_has_summary_context_and_the_deadline_in_the_time_zone_of_the_settings(tmp_path: Path) -> None:
    world = World(tmp_path)
    question = {"ask": {**ASK["ask"], "context": "The wall is 4 m high."}}

    async def main() -> None:
        with receiving(Receiver()) as receiver:
            channel = Webhook(
                url=f"{receiver.url.rstrip('/')}/topic", kind=WebhookKind.NTFY, states=(RunState.WAITING_USER,)
            )
            skill, given = world.skill([question], [FINISH]), {"room": "kitchen"}
            async with world.working(CONFIG) as app:
                run = await submit(app, skill, webhooks=(channel,), input=given, options=STICKY)
                await waiting(app, run.id)
                async with sending(world, config=f'{CONFIG}tz = "Asia/Tokyo"\n') as server:
                    await settled(server, run.id)
        message = json.loads(receiver.came[0].body)
        assert message["title"] == "tested (kitchen) has a question"
        assert "\n\nThe wall is 4 m high.\n\n" in message["message"]
        assert message["message"].endswith(" JST (Asia/Tokyo)")

    run_async(main)


# One link for each recipient and question.


@pytest.mark.contract("N-2")
def test_every_attempt_carries_the_same_link(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def main() -> None:
        with receiving(Receiver(answers=[500] * 4)) as receiver:
            run = await asked(world, hook(receiver))
            async with sending(world) as app:
                assert (await settled(app, run.id)).attempts == 5
                (kept,) = stored(app, run)
        assert len({came.body for came in receiver.came}) == 1
        assert str(url_in(receiver)).startswith(f"{PUBLIC}/answers/")
        assert (kept.recipient, kept.token) == ("standard", None)

    run_async(main)


@pytest.mark.contract("N-2")
def test_a_revoked_link_does_not_come_back_with_the_next_attempt(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def main() -> None:
        with receiving(Receiver(answers=[500] * 9999)) as receiver:
            run = await asked(world, hook(receiver))
            async with sending(world, retries_sec=(0.02,) * 9999) as app:
                await until(lambda: len(receiver.came) > 0)
                links = links_of(app)
                assert links is not None
                await until(lambda: stored(app, run) != [])
                first = str(url_in(receiver, 0)).rpartition("/")[2]
                assert links.links.read(first) is not None
                links.links.revoke(run.id, [each.id for each in stored(app, run)])
                seen = len(receiver.came)
                await until(lambda: len(receiver.came) > seen + 2)
                assert links.links.read(first) is None
                assert stored(app, run) == []
        assert url_in(receiver) is None

    run_async(main)


def test_a_link_ends_a_week_after_the_deadline_of_its_question(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def main() -> None:
        async with world.working(CONFIG, serving=True) as app:
            links = links_of(app)
            assert links is not None
            run = await waiting(app, (await submit(app, world.skill([ASK], [FINISH]), options=STICKY)).id)
            url = await links.answer_link(run, ANNA)
            (kept,) = stored(app, run)
            assert run.wait_deadline_at is not None
            # Until then it tells how the question ended.
            assert timedelta(0) <= kept.expires_at - AFTERWARDS - run.wait_deadline_at < timedelta(seconds=1)
            assert url == await links.answer_link(run, ANNA)
            assert url != await links.answer_link(run, Recipient(name="anna", key="webhook 2"))
            held = links.links.read(str(url).rpartition("/")[2])
            assert held is not None
            assert (held.run_id, held.interaction_id, held.holder) == (run.id, "colour", "anna")
            await app.service.cancel(run.id)

    run_async(main)


def test_there_is_no_link_to_a_closed_question(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def main() -> None:
        with receiving(Receiver()) as receiver:
            run = await asked(world, hook(receiver))
            async with opened(world.settings(CONFIG)) as app:
                await app.service.cancel(run.id)
            async with sending(world) as app:
                await settled(app, run.id)
                assert stored(app, run) == []
        assert url_in(receiver) is None

    run_async(main)


def test_a_message_is_sent_without_a_link_if_the_question_has_too_many(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def main() -> None:
        with receiving(Receiver()) as receiver:
            run = await asked(world, hook(receiver))
            async with sending(world, config=CONFIG) as app:
                await settled(app, run.id)
                links = links_of(app)
                assert links is not None
                expires = now() + timedelta(hours=1)
                link = Link(run_id=run.id, interaction_id="colour", expires_at=expires)
                for number in range(MAX_PER_RUN - 1):
                    assert links.links.make_for(link, Recipient(name="other", key=f"other {number}")) is not None
                assert await links.answer_link(run, Recipient(name="late", key="late")) is None
                assert len(stored(app, run)) == MAX_PER_RUN

    run_async(main)


def test_without_a_public_url_nothing_is_linked(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def main() -> None:
        with receiving(Receiver()) as receiver:
            run = await asked(world, hook(receiver))
            async with sending(world, config=ALLOWED) as app:
                await settled(app, run.id)
        assert "answer_url" not in json.loads(receiver.came[0].body)["data"]

    run_async(main)


# Webhooks of callers.


@pytest.mark.contract("N-2")
@pytest.mark.parametrize(
    ("scopes", "creator", "linked"),
    [
        (("submit",), "ci", False),
        (("submit", "read"), "ci", False),
        (("submit", "answer"), "ci", True),
        (("admin",), "ci", True),
        (("submit",), "main", True),
        (("answer",), "somebody else", False),
    ],
)
def test_a_webhook_of_a_caller_gets_a_link_only_if_the_caller_may_answer(
    tmp_path: Path, scopes: tuple[str, ...], creator: str, linked: bool
) -> None:
    world = World(tmp_path)
    tokens = Tokens(world.records, now)

    async def main() -> None:
        world.data_dir.mkdir(parents=True, exist_ok=True)
        tokens.make("ci", tuple(map(AccessScope, scopes)), None)
        with receiving(Receiver()) as receiver:
            run = await asked(world, hook(receiver), created_by=creator)
            async with sending(world) as app:
                await settled(app, run.id)
                assert [(each.recipient, each.token) for each in stored(app, run)] == [("standard", creator)] * linked
                if linked and creator == "ci":
                    tokens.revoke("ci")
                    await app.records.current(exactly=True)
                    assert stored(app, run) == []
        assert (url_in(receiver) is not None) is linked

    run_async(main)


def test_a_later_token_of_the_same_name_gives_an_earlier_run_no_link(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def main() -> None:
        with receiving(Receiver()) as receiver:
            run = await asked(world, hook(receiver), created_by="ci")
            Tokens(world.records, now).make("ci", (AccessScope.ANSWER,), None)
            async with sending(world) as app:
                await settled(app, run.id)
        assert url_in(receiver) is None

    run_async(main)


def test_a_webhook_of_the_settings_gets_a_link_whoever_created_the_run(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def main() -> None:
        with receiving(Receiver()) as receiver:
            config = f'{CONFIG}[[webhooks]]\nurl = "{receiver.url}"\nname = "Anna"\nstates = ["waiting_user"]\n'
            async with world.working(config, serving=True) as app:
                run = await submit(app, world.skill([ASK], [FINISH]), created_by="a token without scopes")
                await settled_after(app, run.id)
                (kept,) = stored(app, run)
        assert (kept.recipient, kept.token) == ("Anna", None)
        assert url_in(receiver) is not None

    run_async(main)


def test_an_answer_by_a_link_names_the_recipient_of_the_message(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def main() -> None:
        with receiving(Receiver()) as receiver:
            config = f'{CONFIG}[[webhooks]]\nurl = "{receiver.url}"\nname = "Anna"\nstates = ["waiting_user"]\n'
            async with world.working(config, serving=True) as app:
                run = await submit(app, world.skill([ASK], [FINISH]))
                await settled_after(app, run.id)
                transport = httpx.ASGITransport(app=web_server(app, 8765).application)
                async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8765") as person:
                    path = str(url_in(receiver)).removeprefix(PUBLIC).replace("/answers/", "/v1/answers/")
                    response = await person.post(path, json={"response": "blue"})
                assert response.status_code == 202, response.text
                await over(app, run.id)
                (closed,) = await app.store.interactions(run.id)
        assert closed.answered_with is not None
        assert (closed.answered_with.name, closed.answered_with.via) == ("Anna", Channel.LINK)

    run_async(main)


async def settled_after(app: App, run_id: str) -> Delivery:
    while not (await app.store.deliveries(run_id)).items:
        await asyncio.sleep(0.01)
    return await settled(app, run_id)


def test_a_caller_cannot_let_the_server_write_e_mails(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def main() -> None:
        async with world.working(CONFIG, serving=True) as app:
            mail = Webhook(url="mailto:victim@example.org", kind=WebhookKind.EMAIL)
            with pytest.raises(Invalid) as refused:
                await submit(app, world.skill([FINISH]), webhooks=(mail,))
            assert tuple(refused.value.problems) == (
                "webhooks[0].kind: e-mails are only sent to addresses in the server's settings",
            )

    run_async(main)
