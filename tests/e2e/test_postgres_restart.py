"""A PostgreSQL server that fails while Askback works on it, and two servers on one database and data folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from audit import audit

from support import postgres
from support.api import calling, get, over, reach, reply, start
from support.data_folder import FINISH, World
from support.postgres import PostgresServer, databases
from support.program import until, work_folder
from support.server import Server

ASKING = {"ask": {"interaction_id": "colour", "prompt": "Which colour?"}}
HELD = [{"touch": "started"}, {"wait_for": "go"}, ASKING]


@pytest.fixture(autouse=True)
def _needs_postgres() -> None:
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)


@pytest.fixture
def database_server() -> Iterator[PostgresServer]:
    server = PostgresServer(durable=True)
    yield server
    server.close()


def world_on(address: str, folder: Path) -> World:
    postgres.address_file(folder).write_text(address)
    with databases.chosen(False):
        return World(folder)


def answered(client: httpx.Client, run_id: str, text: str) -> None:
    """Reply until it is accepted, as a caller does who gets 503 while the database is away."""

    def attempt() -> bool:
        response = reply(client, run_id, text)
        assert response.status_code in (202, 503), response.text
        return response.status_code == 202

    until(attempt)


@pytest.mark.contract("B-1")
def test_turns_survive_a_database_that_restarts_in_the_middle_of_them(
    database_server: PostgresServer, tmp_path: Path
) -> None:
    world = world_on(database_server.make_database(), tmp_path)
    world.skill(HELD, [FINISH], name="held")
    # However long the database takes to start on a busy machine, the leases are not over.
    env = {"ASKBACK_SLOTS": "3", "ASKBACK_FLEET__LEASE_SEC": "600"}
    with Server(world, env=env) as server, calling(server.url, server.token) as client:
        runs = [start(client, "held") for _ in range(3)]
        for run_id in runs:
            until(lambda run_id=run_id: (work_folder(world, run_id) / "started").exists())
        database_server.crash()
        for run_id in runs:
            (work_folder(world, run_id) / "go").touch()
        database_server.start()
        for number, run_id in enumerate(runs):
            reach(client, run_id, "waiting_user")
            events = client.get(f"/v1/runs/{run_id}/events").json()["items"]
            assert [event["type"] for event in events].count("turn.started") == 1
            answered(client, run_id, f"reply-{number}")
        database_server.kill()
        database_server.start()
        for number, run_id in enumerate(runs):
            assert over(client, run_id)["state"] == "succeeded"
            assert client.get(f"/v1/runs/{run_id}/result").json()["data"] == {"colour": f"reply-{number}"}
        assert client.get("/healthz").json()["status"] == "ok"
        assert server.stop() == 0
    for number, run_id in enumerate(runs):
        audit(world, run_id, [f"reply-{number}"], {"colour": f"reply-{number}"}, {"colour": f"reply-{number}"})


def test_two_servers_share_a_database_and_a_data_folder(tmp_path: Path) -> None:
    with databases.chosen(True):
        world = World(tmp_path)
        world.skill([ASKING], [FINISH], name="asking")
        with (
            Server(world, env={"ASKBACK_SLOTS": "2"}) as one,
            Server(world, env={"ASKBACK_SLOTS": "2"}) as two,
            calling(one.url, one.token) as here,
            calling(two.url, two.token) as there,
        ):
            runs = [start((here, there)[n % 2], "asking") for n in range(4)]
            for number, run_id in enumerate(runs):
                asked, answers = (here, there) if number % 2 else (there, here)
                reach(asked, run_id, "waiting_user")
                assert reply(answers, run_id, "red").status_code == 202
                assert over(asked, run_id)["state"] == "succeeded"
                assert get(answers, run_id)["attempt_number"] == 2
            one.kill()
            reach(there, late := start(there, "asking"), "waiting_user")
            assert reply(there, late, "blue").status_code == 202
            assert over(there, late)["state"] == "succeeded"
