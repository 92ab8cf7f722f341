"""The FastAPI guide works as it is printed, with the client alone and FastAPI in the app's environment."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx
import pytest

from support.data_folder import World
from support.guide import Reader
from support.held_port import HeldPort
from support.installation import CLIENT, Installation, build_wheel
from support.program import DEADLINE_SEC, until
from support.server import Server

pytestmark = pytest.mark.xdist_group("fastapi-guide")
INSTALL = "python3 -m venv ~/trip-app/.venv\n~/trip-app/.venv/bin/pip install ./clients/python fastapi uvicorn\n"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    folder = tmp_path_factory.mktemp("app")
    return Installation(folder / "app", build_wheel(CLIENT, "askback_client", folder), ["fastapi", "uvicorn"])


@pytest.mark.long
def test_a_user_of_the_app_starts_a_run_answers_it_and_sees_its_plan(installed: Installation, tmp_path: Path) -> None:
    world, port = World(tmp_path), HeldPort()
    app = f"http://127.0.0.1:{port.number}"
    reader = Reader("fastapi.md", world, {"http://127.0.0.1:8000": app, "--port 8000": f"--port {port.number}"})
    start = re.sub(r"^make demo .*\n", "", reader.next())
    set_up, serve = start.removeprefix(". .venv/bin/activate\n").splitlines()
    reader.type(set_up)
    allowed, *command = serve.split()
    assert command == ["askback", "serve"]
    with Server(world, env=dict([allowed.split("=")])) as server:
        ours = f"mkdir ~/trip-app; ln -s {installed.bin.parent} ~/trip-app/.venv\n"
        reader.type(reader.next(), {". .venv/bin/activate\n": "", "http://127.0.0.1:8765": server.url, INSTALL: ours})
        reader.write_next()
        with reader.running(reader.next(), app):
            _use(reader, app)
    reader.finish()


def _use(reader: Reader, app: str) -> None:
    asked = reader.type("set -a\n" + reader.next())
    assert json.loads(asked)["question"]["prompt"] == "What pace would you like in Lisbon?"
    trip = reader.env["TRIP"]

    look = reader.next()
    brought = until(lambda: json.loads(reader.type(look)))
    assert brought == [{"trip": trip, "question": "What pace would you like in Lisbon?"}]
    with httpx.Client(base_url=app, headers={"x-user": "bob"}, timeout=DEADLINE_SEC) as bob:
        assert bob.get("/questions").json() == []
        assert [bob.get(f"/trips/{trip}{path}").status_code for path in ("", "/events")] == [404, 404]

    shown = reader.type(reader.next())
    assert shown.count('"to": "succeeded"') == 1
    assert json.loads(shown[shown.rindex('\n{"state"') :])["plan"]["pace"] == "relaxed"
    until(lambda: json.loads(reader.type(look)) == [])
    _refusals(app, trip)
    _resumed_stream(app, trip)


def _refusals(app: str, trip: str) -> None:
    with httpx.Client(base_url=app, headers={"x-user": "ana"}, timeout=DEADLINE_SEC) as ana:
        again = ana.post(f"/trips/{trip}/answer", json={"question": "pace", "answer": "packed"})
        assert (again.status_code, "detail" in again.json()) == (409, True)
        wrong = ana.post("/trips", json={"destination": "Lisbon", "days": 99})
        assert wrong.status_code == 422
        assert "days" in str(wrong.json()["problems"])
        forged = {"webhook-id": "msg_1", "webhook-timestamp": "1", "webhook-signature": "v1,AAAA"}
        assert [ana.post("/askback", headers=each, json={}).status_code for each in ({}, forged)] == [401, 401]


def _resumed_stream(app: str, trip: str) -> None:
    """A browser that lost its connection gets the rest, and nothing twice."""
    with httpx.Client(base_url=app, headers={"x-user": "ana"}, timeout=DEADLINE_SEC) as ana:
        path = f"/trips/{trip}/events"
        ids = [line for line in ana.get(path).text.splitlines() if line.startswith("id: ")]
        rest = ana.get(path, headers={"last-event-id": ids[2].removeprefix("id: ")}).text
        assert [line for line in rest.splitlines() if line.startswith("id: ")] == ids[3:]
