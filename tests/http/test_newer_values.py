"""Codes and events that a newer version has stored: an older server shows them as they are."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from support.data_folder import FINISH, World
from support.postgres import databases
from support.program import askback
from support.server import Server


@pytest.mark.contract("M-10")
def test_codes_and_events_of_a_newer_version_are_shown(tmp_path: Path) -> None:
    with databases.chosen(False):
        world = World(tmp_path)
    skill = world.skill([FINISH], output=None)
    run_id = askback(world, "run", skill, "--engine", "scripted", "--json").json["id"]
    make_newer(world)
    shown = askback(world, "show", run_id)
    assert (shown.code, "LATER_ERROR" in shown.stdout, "LATER_WARNING" in shown.stdout) == (0, True, True), shown
    assert "LATER_ERROR: m" in askback(world, "watch", run_id).stderr
    with Server(world) as server:
        headers = {"authorization": f"Bearer {server.token}"}
        with httpx.Client(base_url=server.url, headers=headers, timeout=60) as client:
            run = client.get(f"/v1/runs/{run_id}").json()
            assert (run["error"]["code"], run["warnings"][0]["code"]) == ("LATER_ERROR", "LATER_WARNING")
            events = client.get(f"/v1/runs/{run_id}/events").json()["items"]
            assert events[-1]["type"] == "run.later"
            assert client.get("/v1/runs", params={"state": "failed"}).json()["items"][0]["id"] == run_id
        with httpx.Client(base_url=server.url, headers=server.session(), timeout=60) as browser:
            for page in (f"/runs/{run_id}", "/runs"):
                told = browser.get(page)
                assert (told.status_code, "LATER_ERROR" in told.text or page == "/runs") == (200, True), page


def make_newer(world: World) -> None:
    with closing(sqlite3.connect(world.data_dir / "askback.db")) as connection, connection:
        [(doc,)] = connection.execute("SELECT doc FROM runs")
        newer = json.loads(doc) | {
            "state": "failed",
            "error": {"code": "LATER_ERROR", "message": "m", "cause": "LATER_CAUSE"},
            "warnings": [{"code": "LATER_WARNING", "message": "m"}],
            "canceled_by": {"name": "n", "via": "later"},
        }
        connection.execute("UPDATE runs SET state = 'failed', ended = 'failed', doc = ?", [json.dumps(newer)])
        connection.execute("UPDATE events SET type = 'run.later' WHERE seq = (SELECT max(seq) FROM events)")
