"""Passwords that only a schema declares, at random places: no response, event, page, webhook or chat has them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from random import Random
from typing import Any

import httpx
import pytest

from support.api import calling, over, reply, start
from support.data_folder import FINISH, World
from support.program import until
from support.receiver import Receiver, receiving
from support.secret_schemas import made
from support.server import Server
from support.telegram import ANNA, GROUP, Telegram, bot_settings, telegram

CHATS = [{"id": ANNA, "name": "anna"}, {"id": GROUP, "name": "team"}]
HUSH = "hush-9f3c71ad"
"""In every secret, and nowhere else."""
MIXED = {
    "type": "object",
    "properties": {"user": {"type": "string"}, "pin": {"type": "string", "allOf": [{"format": "password"}]}},
}
FOUND_BY_ATTACK: tuple[tuple[dict[str, Any], Any], ...] = (
    (
        {
            "type": "object",
            "properties": {
                "account": {
                    "type": "object",
                    "properties": {"user": {"type": "string"}, "password": {"type": "string", "format": "password"}},
                }
            },
        },
        {"account": {"user": "u", "password": f"{HUSH}-a"}},
    ),
    ({"type": "array", "items": {"type": "string", "format": "password"}}, [f"{HUSH}-b"]),
    ({"anyOf": [{"type": "string", "format": "password"}, {"type": "null"}]}, f"{HUSH}-c"),
)


def questions(seed: int) -> Iterator[tuple[dict[str, Any], Any]]:
    """The fields of an ask, each with an answer."""
    random = Random(seed)
    for schema, answer in FOUND_BY_ATTACK:
        yield {"response_schema": schema}, answer
    for number in range(8):
        schema, answer = made(random, f"{HUSH}-{number}")
        yield {"response_schema": schema, **({"options": ["a", "b"]} if number % 3 == 0 else {})}, answer
    yield {"response_schema": MIXED}, {"user": "visible-user", "pin": f"{HUSH}-mixed"}


def look(client: httpx.Client, server: Server, run_id: str) -> None:
    paths = [f"/v1/runs/{run_id}{rest}" for rest in ("", "/interactions", "/events?limit=1000", "/interaction")]
    for path in (*paths, "/v1/runs", "/v1/inbox", "/v1/interactions", "/v1/audit"):
        assert HUSH not in client.get(path).text, path
    browser = server.session()
    for path in ("/", f"/runs/{run_id}", "/answered"):
        page = httpx.get(server.url + path, headers={**browser, "Accept": "text/html"}, timeout=120)
        assert page.status_code == 200
        assert HUSH not in page.text, path


def pending(client: httpx.Client, run_id: str, interaction_id: str) -> dict[str, Any]:
    def asked() -> dict[str, Any] | None:
        run = client.get(f"/v1/runs/{run_id}").json()
        assert run["state"] not in ("failed", "succeeded", "canceled"), run
        found: dict[str, Any] | None = run.get("pending_interaction")
        return found if found and found["interaction_id"] == interaction_id else None

    return until(asked) or {}


def assert_not_asked_in_chats(bot: Telegram, prompt: str) -> None:
    for chat in (ANNA, GROUP):
        message = until(lambda to=chat: next((each for each in bot.said_to(to) if prompt in each.text), None))
        assert "not answered in a chat" in " ".join([message.text, *message.edits])
        assert not message.buttons


@pytest.mark.sqlite
@pytest.mark.parametrize("seed", [1, 2])
def test_a_password_that_a_schema_declares_is_seen_nowhere(own_world: World, seed: int) -> None:
    asks = list(questions(seed))
    turns: list[list[dict[str, Any]]] = [[]]
    for number, (fields, _) in enumerate(asks):
        turns[-1].append({"ask": {"interaction_id": f"q{number}", "prompt": f"Question {number}?", **fields}})
        turns.append([{"say": "you said {{reply}}"}])
    turns[-1].append(FINISH)
    own_world.skill(*turns, name="declares", output={"type": "object"})
    with telegram() as bot, receiving(Receiver()) as receiver:
        env = {**bot_settings(bot, chats=CHATS), "ASKBACK_NOTIFICATIONS__ALLOW_PRIVATE": "true"}
        with Server(own_world, env=env) as server, calling(server.url, server.token) as client:
            run_id = start(client, "declares", webhooks=[{"url": receiver.url}])
            for number, (_, answer) in enumerate(asks):
                pending(client, run_id, f"q{number}")
                assert_not_asked_in_chats(bot, f"Question {number}?")
                assert reply(client, run_id, answer, f"q{number}").status_code == 202
            ended = over(client, run_id)
            assert ended["state"] == "succeeded", ended
            look(client, server, run_id)
            shown = client.get(f"/v1/runs/{run_id}/interactions").json()["items"]
            assert shown[-1]["response"] == {"user": "visible-user", "pin": None}
            until(lambda: any(b"succeeded" in came.body for came in receiver.came))
            until(lambda: all(each.edits for each in bot.said_to(GROUP) if "Question" in each.text))
            assert server.stop() == 0
            assert HUSH not in server.stderr
    assert HUSH not in "".join(came.body.decode() for came in receiver.came)
    assert HUSH not in json.dumps(bot.calls)
    assert HUSH not in stored(own_world)


def stored(world: World) -> str:
    """All that the database still has of the answers after the end."""
    [path] = world.data_dir.glob("askback.db")
    with sqlite3.connect(path) as connection:
        return "\n".join(doc for (doc,) in connection.execute("SELECT doc FROM interactions"))
