"""Two API servers and a worker, each on its own machine: one server is killed, and its clients continue at the other."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from support.api import PATIENCE_SEC, calling, get, over, reply
from support.data_folder import ASK, FINISH
from support.machines import TOKEN, Fleet, Machine
from support.object_store import CREDENTIALS
from support.program import until
from support.server import Server

ENV = {**CREDENTIALS, "ASKBACK_FLEET__LEASE_SEC": "6"}


@pytest.fixture
def servers(fleet: Fleet) -> Iterator[tuple[Server, Server]]:
    one, other = (with_skill(fleet.machine(name)) for name in ("first", "second"))
    with one.server(env=ENV) as first, other.server(env=ENV) as second:
        yield first, second


def with_skill(machine: Machine) -> Machine:
    machine.skill([ASK], [FINISH], name="asking")
    return machine


def request(key: str) -> dict[str, Any]:
    body = {"skill": "asking", "engine": "scripted", "mode": "interactive", "labels": {"key": key}}
    return {"json": body, "headers": {"idempotency-key": key}}


def send(server: Server, key: str) -> socket.socket:
    """Send the request that creates a run, and read nothing."""
    made = httpx.Request("POST", f"{server.url}/v1/runs", **request(key))
    head = {**made.headers, "authorization": f"Bearer {TOKEN}"}
    lines = ["POST /v1/runs HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), "", ""]
    connection = socket.create_connection(("127.0.0.1", server.port), PATIENCE_SEC)
    connection.sendall("\r\n".join(lines).encode() + made.read())
    return connection


def runs_of(client: httpx.Client, key: str) -> list[str]:
    return [run["id"] for run in client.get("/v1/runs", params={"label": f"key:{key}"}).json()["items"]]


def seen(client: httpx.Client, run_id: str, last: int = 0) -> Iterator[dict[str, Any]]:
    """The events after the one that was seen last, until the stream ends or breaks."""
    headers = {"accept": "text/event-stream", "last-event-id": str(last)}
    with client.stream("GET", f"/v1/runs/{run_id}/events", headers=headers) as stream:
        assert stream.status_code == 200
        for line in stream.iter_lines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))


def follow_until_killed(server: Server, client: httpx.Client, run_id: str, events: list[dict[str, Any]]) -> None:
    """Collect the events of a run at a server that is killed when the run asks."""
    for event in seen(client, run_id):
        events.append(event)
        if event["type"] == "interaction.asked":
            server.kill()


@pytest.mark.contract("M-7")
def test_a_request_to_a_killed_server_is_repeated_at_another_without_a_second_run(
    servers: tuple[Server, Server],
) -> None:
    first, second = servers
    with calling(first.url, first.token) as here, calling(second.url, second.token) as there:
        answered = here.post("/v1/runs", **request("answered"))
        assert answered.status_code == 201, answered.text
        with send(first, "stored"):
            until(lambda: runs_of(there, "stored"))
            # Nobody knows how far this one gets.
            with send(first, "open"):
                first.kill()
        before = {key: runs_of(there, key) for key in ("answered", "stored", "open")}
        again = {key: there.post("/v1/runs", **request(key)) for key in before}
        assert {each.status_code for each in again.values()} == {201}
        ids = {key: [str(each.json()["id"])] for key, each in again.items()}
        assert ids == {key: runs_of(there, key) for key in ids}
        assert ids == before | ({} if before["open"] else {"open": ids["open"]})
        assert ids["answered"] == [answered.json()["id"]]


@pytest.mark.contract("M-7")
def test_an_event_stream_of_a_killed_server_continues_at_another(fleet: Fleet, servers: tuple[Server, Server]) -> None:
    first, second = servers
    with (
        fleet.machine("worker").worker(env=ENV),
        calling(first.url, first.token) as here,
        calling(second.url, second.token) as there,
    ):
        run_id = str(here.post("/v1/runs", **request("followed")).json()["id"])
        events: list[dict[str, Any]] = []
        with pytest.raises(httpx.TransportError):
            follow_until_killed(first, here, run_id, events)
        until(lambda: get(there, run_id)["state"] == "waiting_user")
        assert reply(there, run_id, "red").status_code == 202
        assert over(there, run_id)["state"] == "succeeded"
        # What happened while nobody listened is in it.
        events += seen(there, run_id, events[-1]["seq"])
        assert events == there.get(f"/v1/runs/{run_id}/events", params={"limit": 1000}).json()["items"]
        assert [event["seq"] for event in events] == [*range(1, len(events) + 1)]
        assert there.get(f"/v1/runs/{run_id}/result").json()["data"] == {"colour": "red"}
