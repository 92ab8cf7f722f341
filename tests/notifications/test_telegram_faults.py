"""The Telegram bot in trouble: restarts, kills, several servers, a Bot API that refuses; and what the settings add."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from askback.app.storage import DATABASE
from askback.client import Client
from askback.core.errors import RefusalCode, Unavailable
from askback.core.interactions import Interaction
from askback.notifications.channels.telegram.api import BotApi, Tap, Written
from askback.notifications.channels.telegram.bot import TelegramBot
from askback.store.sql import reads
from askback.store.sqlite.connection import open_reader
from support.data_folder import ASK, FINISH, World
from support.program import askback, until
from support.server import Server
from support.telegram import ANNA, BOB, BOT_NAME, GROUP, TOKEN, Message, Telegram, Wrong, bot_settings, telegram

ONLY_ANNA: list[dict[str, Any]] = [{"id": ANNA, "name": "anna"}]


def asking(world: World) -> None:
    world.skill([ASK], [FINISH], name="tested")


def start(server: Server, **rest: Any) -> str:
    body = {"skill": "tested", "engine": "scripted", "mode": "interactive", **rest}
    headers = {"authorization": f"Bearer {server.token}"}
    made = httpx.post(f"{server.url}/v1/runs", json=body, headers=headers, timeout=60)
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


def shown(bot: Telegram, run_id: str, chat: int = ANNA) -> Message:
    return until(lambda: next((each for each in bot.said_to(chat) if run_id in each.text), None))


def state(client: Client, run_id: str) -> str:
    return str(client.get_run(run_id).state)


def question(world: World, run_id: str) -> Interaction:
    with closing(open_reader(world.data_dir / DATABASE)) as connection:
        [asked] = reads.interactions(connection, run_id)
    return asked


def bot_state(server: Server) -> str | None:
    document = httpx.get(f"{server.url}/healthz", timeout=60).json()
    return None if document["telegram"] is None else str(document["telegram"])


# Restarts and kills.


@pytest.mark.contract("N-3")
def test_a_tap_while_no_server_runs_is_taken_by_the_next(tmp_path: Path) -> None:
    world = World(tmp_path)
    asking(world)
    with telegram() as bot:
        env = bot_settings(bot, chats=ONLY_ANNA)
        with Server(world, env=env) as server:
            run_id = start(server)
            message = shown(bot, run_id)
            # Stored, so that the delivery is not repeated.
            with server.client() as client:
                until(lambda: [each for each in client.deliveries(run_id) if each.delivered_at])
            server.stop()
        bot.tap(ANNA, message, "blue")
        with Server(world, env=env) as server, server.client() as client:
            until(lambda: state(client, run_id) == "succeeded")
            until(lambda: message.edits)
        assert len(bot.said_to(ANNA)) == 1
        assert "Answered by anna (telegram): blue" in message.text


@pytest.mark.contract("N-3")
def test_a_message_is_changed_after_a_restart_if_its_question_was_closed_meanwhile(tmp_path: Path) -> None:
    world = World(tmp_path)
    asking(world)
    with telegram() as bot:
        env = bot_settings(bot, chats=ONLY_ANNA)
        with Server(world, env=env) as server:
            run_id = start(server)
            message = shown(bot, run_id)
            server.stop()
        assert askback(world, "reply", run_id, "red").code in (0, 10)
        assert not message.edits
        with Server(world, env=env):
            until(lambda: message.edits)
        assert "red" in message.text
        assert not message.buttons


@pytest.mark.contract("N-3")
@pytest.mark.parametrize("method", ["answerCallbackQuery", "sendMessage", "editMessageText"])
def test_a_kill_between_loses_nothing_and_answers_once(tmp_path: Path, method: str) -> None:
    """The server is killed when Telegram has done what it was asked, and the server does not know yet."""
    world = World(tmp_path)
    asking(world)
    servers: list[Server] = []

    def kill(called: str) -> None:
        if called == method and servers:
            servers.pop().kill()

    with telegram(Telegram(before_answer=kill)) as bot:
        env = bot_settings(bot, chats=ONLY_ANNA)
        with Server(world, env=env) as server:
            servers.append(server)
            run_id = start(server)
            message = shown(bot, run_id)
            bot.tap(ANNA, message, "red")
            until(lambda: server.process.poll() is not None)
        with Server(world, env=env) as server, server.client() as client:
            until(lambda: state(client, run_id) == "succeeded")
            until(lambda: message.edits)
            until(lambda: not bot.unconfirmed)
    asked = question(world, run_id)
    assert asked.answered_with is not None
    assert (asked.response, asked.answered_with.name) == ("red", "anna")
    assert not message.buttons
    assert len(world.prompts(run_id)) == 2
    assert any(each.get("text") == "Your answer: red" for each in bot.notices.values())


# Several servers, and other programs with the same token.


@pytest.mark.contract("N-3")
def test_one_of_two_servers_takes_updates_and_the_other_takes_over(tmp_path: Path) -> None:
    world = World(tmp_path)
    asking(world)
    with telegram() as bot:
        env = bot_settings(bot, chats=ONLY_ANNA)
        with Server(world, env=env) as first:
            until(lambda: bot_state(first) == "ok")
            with Server(world, env=env) as second, second.client() as client:
                until(lambda: bot_state(second) == "standby")
                run_id = start(second)
                message = shown(bot, run_id)
                first.kill()
                bot.tap(ANNA, message, "red")
                until(lambda: state(client, run_id) == "succeeded")
                until(lambda: bot_state(second) == "ok")
        assert len(bot.said_to(ANNA)) == 1


def test_another_program_with_the_same_token_is_reported(tmp_path: Path) -> None:
    world = World(tmp_path)
    with telegram() as bot, Server(world, env=bot_settings(bot)) as server:
        until(lambda: bot.called("getUpdates"))
        httpx.post(f"{bot.url}/bot{TOKEN}/getUpdates", json={"timeout": 0}, timeout=60)
        until(lambda: "another program uses this bot" in str(bot_state(server)))
        until(lambda: bot_state(server) == "ok")
        assert "Conflict" in server.stderr


# A Bot API that refuses.


def test_a_wrong_token_is_reported_once_and_not_tried_again_at_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    with (
        telegram(Telegram(token="1:another-token-of-the-same-bot")) as bot,
        Server(world, env=bot_settings(bot)) as server,
    ):
        until(lambda: "the token is refused (401)" in str(bot_state(server)))
        for _ in range(50):
            bot_state(server)
        assert len(bot.calls) <= 2
        assert server.stderr.count("the token is refused") == 1
        assert TOKEN not in server.stderr


@pytest.mark.contract("N-3")
def test_too_many_requests_are_repeated_when_telegram_says(tmp_path: Path) -> None:
    world = World(tmp_path)
    asking(world)
    flood = Wrong(429, "Too Many Requests: retry after 1", retry_after=1)
    with telegram(
        Telegram(trouble={"sendMessage": [flood], "answerCallbackQuery": [flood], "editMessageText": [flood]})
    ) as bot:
        with Server(world, env=bot_settings(bot, chats=ONLY_ANNA)) as server, server.client() as client:
            run_id = start(server)
            tap = bot.tap(ANNA, shown(bot, run_id), "red")
            until(lambda: tap in bot.notices)
            until(lambda: state(client, run_id) == "succeeded")
            [delivery] = client.deliveries(run_id)
            assert delivery.attempts == 2
            until(lambda: shown(bot, run_id).edits)
        assert bot.notices[tap]["text"] == "Your answer: red"


def test_the_delivery_log_says_why_a_chat_gets_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    asking(world)
    with (
        telegram(Telegram(started=set())) as bot,
        Server(world, env=bot_settings(bot, chats=ONLY_ANNA)) as server,
        server.client() as client,
    ):
        run_id = start(server)
        [delivery] = until(lambda: [each for each in client.deliveries(run_id) if each.last_status])
        assert "chat not found; the person must send /start to the bot" in str(delivery.last_error)
        assert delivery.next_attempt_at is not None
        assert TOKEN not in str(delivery)


@pytest.mark.contract("N-3")
def test_a_telegram_out_of_reach_is_reported_without_the_token(tmp_path: Path) -> None:
    world = World(tmp_path)
    asking(world)
    with telegram() as bot:
        pass
    env = bot_settings(bot, chats=ONLY_ANNA, ASKBACK_LOG__LEVEL="debug", ASKBACK_LOG__FORMAT="json")
    with Server(world, env=env) as server, server.client() as client:
        until(lambda: "cannot be reached: the connection was refused" in str(bot_state(server)))
        run_id = start(server)
        until(lambda: [each for each in client.deliveries(run_id) if each.last_error])
        assert TOKEN not in str(list(client.deliveries(run_id)))
        # It comes back, at the same address.
        with telegram(Telegram(port=bot.port)) as again:
            bot.tap(ANNA, Message(chat=ANNA, id=1, text="", markup=None), "", data="x")
            shown(again, run_id)
            until(lambda: bot_state(server) == "ok")
        server.stop()
        assert TOKEN not in server.stderr
    document = askback(world, "config", "--json", env=env)
    assert TOKEN not in document.stdout
    assert '"telegram.token", "value": "' in document.stdout


# What the settings add.


@pytest.mark.contract("N-3", "N-4")
def test_a_reminder_is_a_message_with_the_same_buttons(tmp_path: Path) -> None:
    world = World(tmp_path)
    asking(world)
    with telegram() as bot:
        env = bot_settings(bot, chats=ONLY_ANNA, ASKBACK_NOTIFICATIONS__REMINDERS__AFTER_SEC="[1]")
        with Server(world, env=env) as server, server.client() as client:
            run_id = start(server)
            first, second = until(lambda: bot.said_to(ANNA) if len(bot.said_to(ANNA)) == 2 else [])
            assert second.text.startswith("⏰ Still waiting: tested")
            assert second.buttons == first.buttons
            bot.tap(ANNA, second, "red")
            until(lambda: state(client, run_id) == "succeeded")
            until(lambda: first.edits and second.edits)
            assert not first.buttons
            assert not second.buttons


def test_the_end_of_a_run_is_reported_if_wanted_and_in_the_language_of_the_settings(tmp_path: Path) -> None:
    world = World(tmp_path)
    asking(world)
    more = {"ASKBACK_TELEGRAM__STATES": '["succeeded"]', "ASKBACK_TELEGRAM__LANGUAGE": "zh"}
    with telegram() as bot, Server(world, env=bot_settings(bot, chats=ONLY_ANNA, **more)) as server:
        run_id = start(server)
        message = shown(bot, run_id)
        assert "有一个问题" in message.text
        bot.tap(ANNA, message, "red")
        until(lambda: any("已成功完成" in each.text for each in bot.said_to(ANNA)))
        until(lambda: "anna（telegram）已回答：red" in message.text)


@pytest.mark.contract("N-3", "N-2")
def test_a_person_gets_a_link_and_a_group_does_not(tmp_path: Path) -> None:
    world = World(tmp_path)
    asking(world)
    chats = [*ONLY_ANNA, {"id": GROUP, "name": "team"}]
    env = bot_settings(bot := Telegram(), chats=chats, ASKBACK_SERVER__PUBLIC_URL="https://askback.example")
    with telegram(bot):
        env["ASKBACK_TELEGRAM__API_URL"] = bot.url
        with Server(world, env=env) as server:
            run_id = start(server)
            url = shown(bot, run_id).buttons["Open"]["url"]
            assert url.startswith("https://askback.example/answers/")
            assert "Open" not in shown(bot, run_id, GROUP).buttons
            page = httpx.get(
                url.replace("https://askback.example", server.url), headers={"host": "askback.example"}, timeout=60
            )
            assert page.status_code == 200


def test_an_address_that_a_button_may_not_have_is_in_the_text(tmp_path: Path) -> None:
    world = World(tmp_path)
    asking(world)
    with telegram() as bot:
        env = bot_settings(bot, chats=ONLY_ANNA, ASKBACK_SERVER__PUBLIC_URL="http://localhost:8765")
        with Server(world, env=env) as server:
            message = shown(bot, start(server))
            assert list(message.buttons) == ["red", "blue"]
            assert "http://localhost:8765/answers/" in message.text


@pytest.mark.contract("N-3", "N-5")
def test_labels_decide_who_is_asked_and_who_may_answer(tmp_path: Path) -> None:
    world = World(tmp_path)
    asking(world)
    chats = [*ONLY_ANNA, {"id": BOB, "name": "bob", "labels": {"customer": "4711"}}]
    with telegram() as bot, Server(world, env=bot_settings(bot, chats=chats)) as server, server.client() as client:
        other = start(server, labels={"customer": "1"})
        data = shown(bot, other).buttons["red"]["callback_data"]
        his = shown(bot, start(server, labels={"customer": "4711"}), BOB)
        assert [each.id for each in bot.said_to(BOB)] == [his.id]
        _, question, _ = data.split(":")
        # Nothing tells a run of others from one that does not exist.
        for text in (data, f"{data}99", f"{other}:000000000000:0", f"nothing:{question}:0"):
            forged = bot.tap(BOB, his, "", data=text)
            until(lambda tap=forged: tap in bot.notices)
            assert bot.notices[forged]["text"] == "You may not answer this question, or it no longer exists."
        assert state(client, other) == "waiting_user"


def test_a_caller_cannot_name_a_chat(tmp_path: Path) -> None:
    world = World(tmp_path)
    asking(world)
    with telegram() as bot, Server(world, env=bot_settings(bot, chats=[])) as server:
        hook = {"url": f"{bot.url}/#{ANNA}", "kind": "telegram"}
        body = {"skill": "tested", "engine": "scripted", "webhooks": [hook]}
        headers = {"authorization": f"Bearer {server.token}"}
        refused = httpx.post(f"{server.url}/v1/runs", json=body, headers=headers, timeout=60)
        assert refused.status_code == 422
        assert "only in the server's settings" in refused.text


# The doctor.


def test_the_doctor_names_the_bot_and_whom_it_does_not_reach(tmp_path: Path) -> None:
    world = World(tmp_path)
    with telegram(Telegram(started={BOB}, webhook="https://elsewhere.example")) as bot:
        ran = askback(world, "doctor", "--json", env=bot_settings(bot))
        found = [each for each in json.loads(ran.stdout)["findings"] if each["what"] == "telegram"]
        assert [each["ok"] for each in found] == [True, False, None]
        assert f"@{BOT_NAME}" in found[0]["message"]
        assert "webhook" in found[1]["message"]
        assert "anna" in found[2]["message"]
        refused = askback(world, "doctor", "--json", env=bot_settings(bot, ASKBACK_TELEGRAM__TOKEN=f"{TOKEN}x"))
        [finding] = [each for each in json.loads(refused.stdout)["findings"] if each["what"] == "telegram"]
        assert (finding["ok"], finding["message"]) == (False, "the token is refused (401)")
        assert TOKEN not in refused.stdout + refused.stderr
    away = askback(world, "doctor", env=bot_settings(bot))
    assert "cannot be reached: the connection was refused" in away.stdout
    assert TOKEN not in away.stdout + away.stderr


def test_an_answer_is_taken_again_soon_after_one_fault_of_the_database(tmp_path: Path) -> None:
    class Failing:
        """As the bot meets it: the database cannot store the first answer."""

        taken: list[float]

        def __init__(self) -> None:
            self.taken = []

        async def take(self, update: Written | Tap) -> None:
            self.taken.append(time.monotonic())
            if len(self.taken) <= 2:
                raise Unavailable(RefusalCode.STORE_UNUSABLE, "the database is locked")

    class Nothing:
        async def run(self) -> None:
            await asyncio.Event().wait()

    async def main(bot: Telegram) -> list[float]:
        answering = Failing()
        made: Any = {"answering": answering, "channel": None, "closing": Nothing()}
        working = TelegramBot(api=BotApi(token=TOKEN, url=bot.url), lock_path=tmp_path / "lock", **made)
        task = asyncio.create_task(working.run())
        async with asyncio.timeout(50):
            while len(answering.taken) < 3:
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        await working.api.close()
        return answering.taken

    with telegram() as bot:
        bot.write(ANNA, "hello")
        first, second, third = asyncio.run(main(bot))
        assert 0.9 < second - first < third - second
