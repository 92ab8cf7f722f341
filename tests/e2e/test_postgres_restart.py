"""A PostgreSQL server that fails while Askback works on it, and two servers on one database and data folder."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from audit import audit

from support import postgres
from support.api import PATIENCE_SEC, calling, get, over, reach, reply, start
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


class Patient(httpx.Client):
    """A caller that repeats what gets 503, until the database is back."""

    def __init__(self, server: Server) -> None:
        headers = {"authorization": f"Bearer {server.token}"}
        super().__init__(base_url=server.url, headers=headers, timeout=PATIENCE_SEC)

    def request(self, *args: Any, **rest: Any) -> httpx.Response:
        def attempt() -> httpx.Response | None:
            answer = super(Patient, self).request(*args, **rest)
            return None if answer.status_code == 503 else answer

        return until(attempt)


def answered(client: Patient, run_id: str, text: str) -> None:
    response = reply(client, run_id, text)
    # 409: the reply was stored, and the answer was 503.
    assert response.status_code in (202, 409), response.text


@pytest.mark.contract("B-1", "M-9")
def test_turns_survive_a_database_that_restarts_in_the_middle_of_them(
    database_server: PostgresServer, tmp_path: Path
) -> None:
    world = world_on(database_server.make_database(), tmp_path)
    world.skill(HELD, [FINISH], name="held")
    # However long the database takes to start on a busy machine, the leases are not over.
    env = {"ASKBACK_SLOTS": "3", "ASKBACK_FLEET__LEASE_SEC": "600"}
    with Server(world, env=env) as server, Patient(server) as client:
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


def use(server: Server, name: str, stop: threading.Event) -> dict[str, str]:
    """Runs from their start to the reply, one after the other. Returns the reply to each."""
    replied: dict[str, str] = {}
    body = {"skill": "asking", "engine": "scripted", "mode": "interactive"}
    with Patient(server) as client:
        while not stop.is_set():
            text = f"{name}-{len(replied)}"
            answer = client.post("/v1/runs", json=body, headers={"idempotency-key": text})
            assert answer.status_code == 201, answer.text
            run_id = answer.json()["id"]
            reach(client, run_id, "waiting_user")
            answered(client, run_id, text)
            replied[run_id] = text
    return replied


@pytest.mark.contract("M-9")
def test_nothing_acknowledged_is_lost_when_the_database_restarts_under_load(
    database_server: PostgresServer, tmp_path: Path
) -> None:
    world = world_on(database_server.make_database(), tmp_path)
    world.skill([ASKING], [FINISH], name="asking")
    env = {"ASKBACK_SLOTS": "3", "ASKBACK_FLEET__LEASE_SEC": "600"}
    stop = threading.Event()
    with Server(world, env=env) as server, Patient(server) as client, ThreadPoolExecutor(3) as pool:
        users = [pool.submit(use, server, f"user-{number}", stop) for number in range(3)]
        try:
            for fail in (database_server.crash, database_server.kill, database_server.crash):
                before = count(client)
                until(lambda before=before: count(client) > before + 3)  # type: ignore[misc]
                fail()
                database_server.start()
        finally:
            stop.set()
        replied = {run_id: text for user in users for run_id, text in user.result().items()}
        # No run of a repeated request is there twice, and each has the one reply that was acknowledged.
        for run_id, text in replied.items():
            assert over(client, run_id)["state"] == "succeeded"
            assert client.get(f"/v1/runs/{run_id}/result").json()["data"] == {"colour": text}
        assert count(client) == len(replied) > 9


def count(client: Patient) -> int:
    found, cursor = 0, ""
    while True:
        page = client.get("/v1/runs", params={"limit": 100} | ({"cursor": cursor} if cursor else {})).json()
        found, cursor = found + len(page["items"]), page.get("next_cursor")
        if cursor is None:
            return found


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
