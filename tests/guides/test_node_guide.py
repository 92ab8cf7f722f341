"""The Node guide works as it is printed, with the TypeScript client installed from its package."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest

from support.data_folder import World
from support.guide import ROOT, Reader
from support.held_port import HeldPort
from support.program import DEADLINE_SEC, until
from support.server import Server

pytestmark = pytest.mark.xdist_group("node-guide")
CLIENT = ROOT / "clients/typescript"
NODE = shutil.which("node")
ROUTE = """
import { GET } from "./route.mjs";
const request = new Request("http://app/", { headers: { "last-event-id": process.env.AFTER } });
const response = await GET(request, { params: Promise.resolve({ id: process.env.TRIP }) });
console.log(response.headers.get("content-type"));
console.log(await response.text());
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The client as it is after `npm ci` in a clone."""
    if NODE is None:
        pytest.skip("there is no Node here: node is not on PATH")
    if not (CLIENT / "node_modules/typescript").exists():
        pytest.skip("the TypeScript compiler is not installed: npm ci --prefix clients/typescript")
    folder = tmp_path / "clone/clients/typescript"
    shutil.copytree(CLIENT, folder, ignore=shutil.ignore_patterns("node_modules", "dist", "build"))
    (folder / "node_modules").symlink_to(CLIENT / "node_modules")
    return folder


@pytest.mark.long
def test_a_user_of_the_app_starts_a_run_answers_it_and_sees_its_plan(clone: Path, tmp_path: Path) -> None:
    world, port = World(tmp_path), HeldPort()
    app = f"http://127.0.0.1:{port.number}"
    reader = Reader("node.md", world, {"http://127.0.0.1:8000": app, "PORT = 8000": f"PORT = {port.number}"})
    reader.env |= {"npm_config_offline": "true", "npm_config_audit": "false", "npm_config_update_notifier": "false"}
    start = re.sub(r"^make demo .*\n", "", reader.next())
    set_up, serve = start.removeprefix(". .venv/bin/activate\n").splitlines()
    reader.type(set_up)
    allowed, *command = serve.split()
    assert command == ["askback", "serve"]
    with Server(world, env=dict([allowed.split("=")])) as server:
        here = {"cd clients/typescript\nnpm ci\n": f"cd {clone}\n"}
        reader.type(reader.next(), {". .venv/bin/activate\n": "", "http://127.0.0.1:8765": server.url, **here})
        installed = json.loads((reader.home / "trip-node/package.json").read_text())["dependencies"]
        assert list(installed) == ["askback-client"]
        reader.write_next()
        with reader.running(reader.next(), app):
            _use(reader, app)
        _route_of_next(reader)
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
    assert shown.count('"to":"succeeded"') == 1
    assert json.loads(shown[shown.rindex('\n{"state"') :])["plan"]["pace"] == "relaxed"
    until(lambda: json.loads(reader.type(look)) == [])
    with httpx.Client(base_url=app, headers={"x-user": "ana"}, timeout=DEADLINE_SEC) as ana:
        again = ana.post(f"/trips/{trip}/answer", json={"question": "pace", "answer": "packed"})
        assert (again.status_code, "detail" in again.json()) == (409, True)
        wrong = ana.post("/trips", json={"destination": "Lisbon", "days": 99})
        assert wrong.status_code == 422
        assert "days" in str(wrong.json()["problems"])
        assert ana.post("/trips", content=b"{").status_code == 400
        forged = {"webhook-id": "msg_1", "webhook-timestamp": "1", "webhook-signature": "v1,AAAA"}
        assert [ana.post("/askback", headers=each, json={}).status_code for each in ({}, forged)] == [401, 401]


def _route_of_next(reader: Reader) -> None:
    """Next.js calls a route handler with standard objects, and so does Node here."""
    page = reader.write_next()
    route = page.rename(reader.home / "trip-node/route.mjs")
    command = [str(NODE), "--input-type=module", "-e", ROUTE]
    env = reader.env | {"AFTER": "2"}
    ran = subprocess.run(
        command, cwd=route.parent, env=env, capture_output=True, text=True, timeout=DEADLINE_SEC, check=False
    )
    assert ran.returncode == 0, ran.stderr
    kind, *lines = ran.stdout.splitlines()
    assert kind == "text/event-stream"
    ids = [int(line.removeprefix("id: ")) for line in lines if line.startswith("id: ")]
    assert ids == list(range(3, ids[-1] + 1))
