"""`askback webhooks`: which channels are configured, and whether a message reaches them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.data_folder import World
from support.mail_server import Mailbox, receiving_mail
from support.ntfy import ntfy_server
from support.program import askback, here
from support.receiver import Receiver, receiving
from support.slack import slack
from support.telegram import ANNA, BOB, EVE, TOKEN, bot_settings, telegram

SECRET = "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQ="


def configured(world: World, webhooks: list[dict[str, Any]], mailbox: Mailbox) -> str:
    path = here(world) / "own.toml"
    tables = "".join(
        "[[webhooks]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in each.items()) for each in webhooks
    )
    path.write_text(
        f'{tables}[server]\npublic_url = "https://askback.example"\n[notifications]\nallow_private = true\n'
        f'[notifications.email]\nurl = "smtp://127.0.0.1:{mailbox.port}"\nsender = "askback@example.org"\n'
    )
    return str(path)


def test_a_test_message_reaches_every_channel_and_failures_say_why(tmp_path: Path) -> None:
    world = World(tmp_path)
    with (
        ntfy_server() as ntfy,
        slack() as slack_double,
        receiving(Receiver()) as receiver,
        receiving(Receiver(answers=[500] * 9)) as broken,
        receiving_mail(Mailbox()) as mailbox,
    ):
        config = configured(
            world,
            [
                {"url": f"{ntfy.url}/my-topic", "kind": "ntfy", "secret": "tk_canary"},
                {"url": f"{slack_double.url}/services/T0/B0/canary", "kind": "slack", "name": "team"},
                {"url": "mailto:anna@example.org", "kind": "email"},
                {"url": receiver.url, "secret": SECRET},
                {"url": broken.url, "name": "broken"},
            ],
            mailbox,
        )
        told = askback(world, "webhooks", "test", "--json", "--config", config)
        shown = askback(world, "webhooks", "test", "broken", "anna@example.org", "--config", config)
        unknown = askback(world, "webhooks", "test", "nobody", "--config", config)
        listed = askback(world, "webhooks", "--json", "--config", config)
    assert told.code == 1
    assert [(each["name"], each["ok"], each["status"], each["error"]) for each in told.json["results"]] == [
        ("ntfy", True, 200, None),
        ("team", True, 200, None),
        ("anna@example.org", True, 250, None),
        ("standard", True, 204, None),
        ("broken", False, 500, "the receiver returned 500"),
    ]
    assert (ntfy.problems, slack_double.problems) == ([], [])
    assert ntfy.messages[0]["click"] == "https://askback.example"
    assert slack_double.incoming[0]["text"].startswith("*Test message*")
    assert [came.message["Subject"] for came in mailbox.came] == ["Test message"] * 2
    assert json.loads(receiver.came[0].body)["type"] == "webhook.test"
    assert receiver.came[0].headers["webhook-signature"].startswith("v1,")
    assert shown.code == 1
    assert "✔ anna@example.org" in shown.stdout
    assert "✘ broken" in shown.stdout
    assert (unknown.code, "known: ntfy, team, anna@example.org, standard, broken" in unknown.stderr) == (2, True)
    assert [(each["kind"], each["states"]) for each in listed.json][2] == (
        "email",
        ["waiting_user", "succeeded", "failed", "canceled"],
    )
    assert "canary" not in told.stdout + shown.stdout + listed.stdout


def test_a_test_message_reaches_telegram_chats_in_the_language_of_the_bot(tmp_path: Path) -> None:
    world = World(tmp_path)
    chats = [{"id": ANNA, "name": "anna"}, {"id": EVE, "name": "eve"}, {"id": BOB, "name": "bob", "notify": False}]
    with telegram() as double:
        env = bot_settings(double, chats=chats, ASKBACK_TELEGRAM__LANGUAGE="zh")
        listed = askback(world, "webhooks", "--json", env=env)
        told = askback(world, "webhooks", "test", "--json", env=env)
        wrong = askback(world, "webhooks", "test", "anna", env={**env, "ASKBACK_TELEGRAM__TOKEN": f"1:{'x' * 35}"})
    assert [(each["name"], each["kind"]) for each in listed.json] == [("anna", "telegram"), ("eve", "telegram")]
    anna, eve = told.json["results"]
    assert (told.code, anna["ok"], anna["status"], anna["error"]) == (1, True, 200, None)
    (message,) = double.messages
    assert (message.chat, message.text.splitlines()[0]) == (ANNA, "🔔 测试消息")
    assert (eve["ok"], eve["status"]) == (False, 400)
    assert "chat not found; the person must send /start to the bot" in eve["error"]
    assert (wrong.code, "check telegram.token" in wrong.stdout) == (1, True)
    assert TOKEN not in listed.stdout + told.stdout + wrong.stdout


def test_an_e_mail_that_fails_names_the_mail_server(tmp_path: Path) -> None:
    world = World(tmp_path)
    anna = [{"url": "mailto:anna@example.org", "kind": "email"}]
    with receiving_mail(Mailbox(answers=["550 5.1.1 no such user"])) as mailbox:
        refused = askback(world, "webhooks", "test", "--json", "--config", configured(world, anna, mailbox))
    gone = askback(world, "webhooks", "test", "--config", configured(world, anna, mailbox))
    server = f"127.0.0.1:{mailbox.port}"
    (result,) = refused.json["results"]
    assert result["error"] == f"the mail server {server} returned 550 5.1.1 no such user"
    assert f"mail server {server}: the connection was refused" in gone.stdout


def test_without_webhooks_the_command_says_how_to_add_one(tmp_path: Path) -> None:
    world = World(tmp_path)
    tried, listed = askback(world, "webhooks", "test"), askback(world, "webhooks")
    assert (tried.code, listed.code) == (2, 0)
    for told in (tried, listed):
        assert "the settings have no webhooks; add one as [[webhooks]] to askback.toml" in told.stderr
