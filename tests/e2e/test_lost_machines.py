"""An API server and workers, each on its own machine. A worker is gone with its disk, jobs are lost, the object store is down:
runs are finished all the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from support.api import PATIENCE_SEC, calling, get, over, reach, refused, reply, start
from support.data_folder import ASK, FINISH
from support.machines import Fleet, Machine
from support.object_store import CREDENTIALS, Bucket, Door
from support.postgres import databases
from support.program import Started, askback, until
from support.server import Server

ENV = {**CREDENTIALS, "ASKBACK_FLEET__LEASE_SEC": "6"}
WRITE = {"write": {"path": "artifacts/plan.txt", "text": "the plan"}}
HELD = [{"touch": "started"}, {"wait_for": "go"}, FINISH]


@pytest.fixture
def api(fleet: Fleet) -> Iterator[httpx.Client]:
    machine = fleet.machine("api")
    machine.skill([ASK], HELD, name="held")
    machine.skill([*HELD[:-1], {"finish": {"colour": "red"}}], name="busy")
    machine.skill([WRITE, *HELD[:-1], ASK], [FINISH], name="writing")
    machine.skill([ASK], [ASK | {"ask": {"interaction_id": "size", "prompt": "Which size?"}}], [FINISH], name="asking")
    with machine.server(env=ENV) as server, calling(server.url, server.token) as client:
        yield client


def session(machine: Machine, run_id: str) -> list[dict[str, Any]]:
    """The engine's one session, as this machine has it."""
    (path,) = (machine.runs / run_id / "home" / ".scripted" / "sessions").glob("*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def completed(machine: Machine, run_id: str) -> list[int]:
    return [entry["turn"] for entry in session(machine, run_id) if entry["type"] == "completed"]


@pytest.mark.contract("M-5")
def test_a_run_that_asked_on_a_machine_that_is_gone_is_finished_on_another(fleet: Fleet, api: httpx.Client) -> None:
    one, two, three = (fleet.machine(name) for name in ("one", "two", "three"))
    with one.worker(env=ENV) as worker:
        run_id = start(api, "asking")
        reach(api, run_id, "waiting_user")
        worker.kill()
    one.lose_disk()
    with two.worker(env=ENV) as worker:
        assert reply(api, run_id, "first-answer").status_code == 202
        until(lambda: get(api, run_id)["state"] == "waiting_user")
        assert worker.stop() == 0
    two.lose_disk()
    with three.worker(env=ENV):
        assert reply(api, run_id, "second-answer", "size").status_code == 202
        assert over(api, run_id)["state"] == "succeeded"
        assert api.get(f"/v1/runs/{run_id}/result").json()["data"] == {"colour": "second-answer"}
    prompts = [entry["text"] for entry in session(three, run_id) if entry["type"] == "prompt"]
    assert [("first-answer" in text, "second-answer" in text) for text in prompts] == [
        (False, False),
        (True, False),
        (False, True),
    ]
    assert completed(three, run_id) == [1, 2, 3]


@pytest.mark.contract("M-4")
@pytest.mark.contract("M-5")
def test_a_turn_whose_machine_is_lost_is_repeated_from_its_beginning(fleet: Fleet, api: httpx.Client) -> None:
    one, two = fleet.machine("one"), fleet.machine("two")
    with one.worker(env=ENV) as worker:
        run_id = start(api, "held")
        reach(api, run_id, "waiting_user")
        reply(api, run_id, "red")
        until(lambda: (one.runs / run_id / "work" / "started").exists())
        worker.kill()
    one.lose_disk()
    with two.worker(env=ENV):
        until(lambda: (two.runs / run_id / "work" / "started").exists())
        (two.runs / run_id / "work" / "go").touch()
        assert over(api, run_id)["state"] == "succeeded"
    assert completed(two, run_id) == [1, 2]
    events = api.get(f"/v1/runs/{run_id}/events?limit=1000").json()["items"]
    assert [event["type"] for event in events].count("turn.started") == 3
    assert [event["data"]["to"] for event in events if event["type"] == "run.state"].count("succeeded") == 1


@pytest.mark.contract("M-2")
def test_a_queued_run_whose_job_is_lost_is_executed(fleet: Fleet, api: httpx.Client) -> None:
    one = fleet.machine("one")
    with one.worker("--slots", "1", env=ENV):
        busy = start(api, "busy")
        until(lambda: (one.runs / busy / "work" / "started").exists())
        queued = start(api, "busy")
        lost = databases.server.execute(
            f"DELETE FROM askback.procrastinate_jobs WHERE args ->> 'run' = '{queued}' RETURNING id",
            fleet.database.partition("@/")[2].partition("?")[0],
        )
        assert len(lost) == 1
        (one.runs / busy / "work" / "go").touch()
        until(lambda: (one.runs / queued / "work" / "started").exists())
        (one.runs / queued / "work" / "go").touch()
        assert [over(api, each)["state"] for each in (busy, queued)] == ["succeeded"] * 2


@pytest.mark.contract("M-9")
def test_the_end_of_a_turn_and_calls_for_files_wait_for_the_object_store(
    fleet: Fleet, api: httpx.Client, bucket: Bucket
) -> None:
    one = fleet.machine("one")
    # Unlike `api`, it does not take a 5xx for a defect.
    plain = httpx.Client(base_url=api.base_url, headers=api.headers, timeout=PATIENCE_SEC)
    with one.worker(env=ENV) as worker, plain:
        run_id = start(api, "writing")
        work = one.runs / run_id / "work"
        until(lambda: (work / "started").exists())
        bucket.turn(Door.REFUSING)
        (work / "go").touch()
        until(lambda: "cannot be stored, trying again" in worker.stderr)
        refused(plain.get(f"/v1/runs/{run_id}/artifacts"), 503, "FILES_UNAVAILABLE")
        refused(plain.post("/v1/uploads", files={"file": ("plan.txt", b"x")}), 503, "FILES_UNAVAILABLE")
        assert get(api, run_id)["state"] == "running"
        bucket.turn(Door.OPEN)
        reach(api, run_id, "waiting_user")
        assert api.get(f"/v1/runs/{run_id}/artifacts/plan.txt").text == "the plan"
        assert reply(api, run_id, "red").status_code == 202
        assert over(api, run_id)["state"] == "succeeded"


def on_sqlite(machine: Machine) -> Server:
    """A server as it was before the machine became one of several."""
    env = {name: value for name, value in machine.env.items() if name != "ASKBACK_FILES"}
    return Server(machine, env=env, program=machine.program)


def is_shared(fleet: Fleet) -> bool:
    name = fleet.database.partition("@/")[2].partition("?")[0]
    ((shared,),) = databases.server.execute("SELECT shared FROM askback.data_folder", name)
    return bool(shared)


@pytest.mark.contract("M-5")
@pytest.mark.contract("M-10")
def test_an_imported_run_that_waits_is_finished_on_another_machine(fleet: Fleet) -> None:
    one, two, three = (fleet.machine(name) for name in ("one", "two", "three"))
    one.skill([ASK], [FINISH], name="asking")
    one.database = None
    with on_sqlite(one) as server, calling(server.url, server.token) as client:
        run_id = start(client, "asking")
        reach(client, run_id, "waiting_user")
        assert server.stop() == 0
    one.database = fleet.database
    imported = askback(one, "database", "import", str(one.data_dir), env={**one.env, **ENV})
    assert imported.code == 0, imported.stderr
    assert "stores the files of unfinished runs first" in imported.stderr
    with Started(two, "worker", "--port", "0", env={**two.env, **ENV}, program=two.program) as early:
        assert early.process.wait(120) == 1, "nobody else may take a run that has its files there alone"
        assert "only in the data folder that was used with it first" in early.stderr
    with one.server(env=ENV) as server:
        until(lambda: is_shared(fleet))
        assert server.stop() == 0
    one.lose_disk()
    with three.server(env=ENV) as server, calling(server.url, server.token) as client, two.worker(env=ENV):
        assert reply(client, run_id, "red").status_code == 202
        assert over(client, run_id)["state"] == "succeeded"
    assert completed(two, run_id) == [1, 2]
