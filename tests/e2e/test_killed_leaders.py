"""Two servers on one PostgreSQL database, of which the leader is killed: the other one does what the leader would have done."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from askback.client import Client
from askback.store.postgres.instances import LEADER
from support import postgres
from support.data_folder import World
from support.postgres import databases
from support.program import until
from support.receiver import ALLOWED, Receiver, receiving
from support.server import Server

ASKS = {"ask": {"interaction_id": "colour", "prompt": "Which colour?", "default": "red"}}
FINISH = {"finish": {"colour": "{{reply|none}}"}}
DEADLINE_SEC, ANNOUNCED_SEC, REMINDED_SEC = 30, 20, 15
"""After the question. The leader is killed long before."""
HAPPENS = ("interaction.asked", "interaction.expiring", "interaction.closed")
SENT = ("interaction.reminder", "interaction.expiring")
DECIDED = {"interactive_require_user_reply": False, "session_timeout_sec": DEADLINE_SEC}
LEADING = """
SELECT programs.pid
FROM pg_locks AS held
    JOIN pg_stat_activity AS holder ON holder.pid = held.pid
    JOIN askback.programs ON holder.application_name = 'askback ' || programs.name
WHERE held.locktype = 'advisory' AND held.granted
    AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND ((held.classid::bigint << 32) | held.objid::bigint) = hashtextextended(%s, 0)
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    with databases.chosen(True):
        world = World(tmp_path)
        world.skill([ASKS], [FINISH])
        yield world


def server(world: World, receiver: Receiver) -> Server:
    world.settings(
        f"{ALLOWED}[notifications.reminders]\nbefore_deadline_sec = {DEADLINE_SEC - ANNOUNCED_SEC}\n"
        f'[[webhooks]]\nurl = "{receiver.url}"\nstates = ["waiting_user"]\nreminders = {{after_sec = [{REMINDED_SEC}]}}\n'
    )
    return Server(world, "--config", str(world.folder / "askback.toml"))


def leads(world: World, one: Server) -> bool:
    assert world.database is not None
    with psycopg.connect(world.database, autocommit=True, connect_timeout=60) as connection:
        return connection.execute(LEADING, [LEADER]).fetchall() == [(one.process.pid,)]


def asked(client: Client) -> str:
    run_id = client.create_run("tested", engine="scripted", mode="interactive", options=DECIDED).id
    until(lambda: client.get_run(run_id).state == "waiting_user")
    return run_id


def happened(client: Client, run_id: str) -> Counter[str]:
    """How often each event of its question has happened."""
    return Counter(event.type for event in client.events(run_id) if event.type.startswith("interaction."))


def sent(receiver: Receiver) -> Counter[tuple[str, str]]:
    """How often each message about a question that is still open has come, by its run and type."""
    messages: list[dict[str, Any]] = [json.loads(each.body) for each in list(receiver.came)]
    return Counter((each["data"]["run"]["id"], each["type"]) for each in messages if each["type"] in SENT)


@pytest.mark.long
@pytest.mark.contract("M-8")
def test_the_duties_of_a_killed_leader_are_done_once_by_the_other_server(world: World) -> None:
    with receiving(Receiver()) as receiver, server(world, receiver) as first:
        until(lambda: leads(world, first))
        with server(world, receiver) as second, second.client() as client:
            before = asked(client)
            assert leads(world, first)
            first.kill()
            after = asked(client)
            until(lambda: leads(world, second))
            for run_id in (before, after):
                until(lambda run_id=run_id: client.get_run(run_id).state == "succeeded")
                assert [each.answered_by for each in client.interactions(run_id)] == ["auto_decide"]
                assert happened(client, run_id) == dict.fromkeys(HAPPENS, 1)
            until(lambda: len(sent(receiver)) == 2 * len(SENT))
            assert sent(receiver) == {(run_id, each): 1 for run_id in (before, after) for each in SENT}
