"""A server that is killed between a question and its reminders: they come all the same, once, and end with the question."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from askback.client import Client
from support.data_folder import World
from support.program import until
from support.receiver import ALLOWED, Receiver, receiving
from support.server import Server

ASKS = {"ask": {"interaction_id": "colour", "prompt": "Which colour?", "default": "red"}}
FINISH = {"finish": {"colour": "{{reply|none}}"}}
HOUR = 3600
OVERTAKEN = "a later reminder has taken its place"


def server(world: World, config: str) -> Server:
    world.settings(config)
    return Server(world, "--config", str(world.folder / "askback.toml"))


def ids(receiver: Receiver, type_: str) -> Counter[str]:
    """How often each message of a type has come, by its id."""
    return Counter(came.headers["webhook-id"] for came in list(receiver.came) if json.loads(came.body)["type"] == type_)


def waiting(client: Client, **options: object) -> str:
    run_id = client.create_run("tested", engine="scripted", mode="interactive", options=options).id
    until(lambda: client.get_run(run_id).state == "waiting_user")
    return run_id


def expiring(client: Client, run_id: str) -> int:
    return sum(event.type == "interaction.expiring" for event in client.events(run_id))


@pytest.mark.contract("N-4")
def test_reminders_survive_kills_and_end_with_the_question(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.skill([ASKS], [FINISH])
    with receiving(Receiver()) as receiver:
        # The second is due while the tests watch; the third is not.
        reminders = f"reminders = {{after_sec = [1, 3, {24 * HOUR}]}}"
        config = f'{ALLOWED}[[webhooks]]\nurl = "{receiver.url}"\n{reminders}\n'
        with server(world, config) as first, first.client() as client:
            run_id = waiting(client)
            first.kill()
        with server(world, config) as second:
            until(lambda: any(each.endswith("_2") for each in ids(receiver, "interaction.reminder")))
            second.kill()
        with server(world, config) as third, third.client() as client:
            planned = [each for each in client.deliveries(run_id) if each.id.endswith("_3")]
            assert [(each.reason, each.attempts) for each in planned] == [("reminder", 0)]
            client.reply(run_id, "colour", "blue")
            until(lambda: client.get_run(run_id).state == "succeeded")
            log = [each for each in client.deliveries(run_id) if each.reason != "state"]
        assert all(each.next_attempt_at is None for each in log)
        # A server that starts slowly finds both due: only the later one is sent then.
        unsent = [each for each in log if not each.attempts]
        assert {(each.id.rpartition("_")[2], each.last_error) for each in unsent} <= {("1", OVERTAKEN)}
        sent = ids(receiver, "interaction.reminder")
        assert set(sent) <= {each.id for each in log}
        assert {each.rpartition("_")[2] for each in sent} <= {"1", "2"}
        # The kill may have come between the answer of the receiver and its record.
        assert max(sent.values()) <= 2


@pytest.mark.contract("N-4")
def test_a_near_deadline_is_announced_once_by_all_servers_that_were_there(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.skill([ASKS], [FINISH])
    with receiving(Receiver()) as receiver:
        early = f"[notifications.reminders]\nbefore_deadline_sec = {HOUR - 2}\n"
        config = f'{ALLOWED}{early}[[webhooks]]\nurl = "{receiver.url}"\nreminders = true\n'
        options = {"interactive_require_user_reply": False, "session_timeout_sec": HOUR}
        with server(world, config) as first, first.client() as client:
            run_id = waiting(client, **options)
            first.kill()
        with server(world, config) as second, second.client() as client:
            until(lambda: expiring(client, run_id))
            second.kill()
        with server(world, config) as third, third.client() as client:
            # Whoever watches deadlines has looked at all of them when it announces a later one.
            later = waiting(client, **options)
            until(lambda: expiring(client, later))
            assert expiring(client, run_id) == 1
            until(lambda: any(later in each for each in ids(receiver, "interaction.expiring")))
            assert len(ids(receiver, "interaction.expiring")) <= 2
            client.cancel(run_id)
            client.cancel(later)
