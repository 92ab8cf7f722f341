"""A server that executes nothing, and workers of their own, on one PostgreSQL database and one data folder."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from support import postgres
from support.api import calling, get, over, reach, reply, start
from support.data_folder import FINISH, World
from support.postgres import databases
from support.program import Started, askback, until, work_folder
from support.server import Server
from support.workers import Worker

ASKING = {"ask": {"interaction_id": "colour", "prompt": "Which colour?"}}
HELD = [{"touch": "started"}, {"wait_for": "go"}, ASKING]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    with databases.chosen(True):
        yield World(tmp_path)


def turns_started(client: httpx.Client, run_id: str) -> int:
    events = client.get(f"/v1/runs/{run_id}/events").json()["items"]
    return [event["type"] for event in events].count("turn.started")


def test_a_server_without_a_worker_leaves_runs_to_workers(world: World) -> None:
    world.skill([ASKING], [FINISH], name="asking")
    with Server(world, "--no-worker") as server, calling(server.url, server.token) as client:
        run_id = start(client)
        assert client.get("/readyz").json()["ready"] is True
        assert get(client, run_id)["state"] == "queued"
        with Worker(world, "--slots", "1") as worker:
            reach(client, run_id, "waiting_user")
            assert worker.told["engines"] == ["scripted"]
            assert reply(client, run_id, "red").status_code == 202
            assert over(client, run_id)["state"] == "succeeded"
            assert worker.get("/healthz").json()["status"] == "ok"
            assert worker.get("/readyz").json() == {"ready": True, "database": "ok", "files": "ok", "draining": False}
            assert worker.get("/metrics").status_code == 401
            told = worker.get("/metrics", authorization=f"Bearer {server.token}")
            assert "askback_slots 1.0" in told.text
            assert worker.get("/v1/runs").status_code == 404
            assert worker.kill(signal.SIGTERM) == 0


def test_a_reply_says_that_no_worker_has_the_engine(world: World) -> None:
    world.skill([ASKING], [FINISH], name="asking")
    with Server(world, "--no-worker") as server, calling(server.url, server.token) as client:
        runs = [start(client), start(client)]
        with Worker(world, env={"ASKBACK_FLEET__LEASE_SEC": "30"}) as worker:
            for run_id in runs:
                reach(client, run_id, "waiting_user")
            assert "fleet.lease_sec is 30 here, and 20 for the server on" in worker.stderr
            assert worker.kill(signal.SIGTERM) == 0
        until(lambda: client.get("/v1/workers").json()["items"] == [])
        sent = askback(world, "reply", runs[0], "red")
        assert f"run {runs[0]} waits for a server or worker that has scripted" in sent.stderr, sent
        # Without a server, the command looks itself.
        server.stop()
        sent = askback(world, "reply", runs[1], "red")
        assert f"run {runs[1]} waits for a server or worker that has scripted" in sent.stderr, sent


def test_a_worker_says_which_engines_are_missing(world: World) -> None:
    with Started(world, "worker", "--port", "0", "--engines", "scripted,codex", env={"PATH": os.defpath}) as worker:
        told = until(lambda: worker.stderr if "health:" in worker.stderr else None)
        assert "  engines: scripted\n" in told
        assert "  not installed here: codex;" in told
        assert "connecting to the PostgreSQL database" in told


def test_a_drained_worker_ends_its_turn_and_starts_no_other(world: World) -> None:
    world.skill(HELD, [FINISH], name="held")
    with Server(world, "--no-worker") as server, calling(server.url, server.token) as client:
        with Worker(world, "--slots", "1") as worker:
            first, second = start(client, "held"), start(client, "held")
            until(lambda: (work_folder(world, first) / "started").exists())
            worker.process.send_signal(signal.SIGTERM)
            until(lambda: worker.get("/readyz").json()["draining"])
            assert worker.get("/readyz").status_code == 503
            (work_folder(world, first) / "go").touch()
            assert worker.process.wait(120) == 0
        assert get(client, first)["state"] == "waiting_user"
        assert turns_started(client, first) == 1
        assert get(client, second)["state"] == "queued"


@pytest.mark.long
def test_a_worker_puts_back_what_does_not_end_in_time(world: World) -> None:
    world.skill(HELD, [FINISH], name="held")
    with Server(world, "--no-worker") as server, calling(server.url, server.token) as client:
        run_id = start(client, "held")
        with Worker(world, env={"ASKBACK_WORKER__DRAIN_SEC": "0.1"}) as worker:
            until(lambda: (work_folder(world, run_id) / "started").exists())
            assert worker.kill(signal.SIGTERM) == 0
            assert run_id in worker.stderr
        assert get(client, run_id)["state"] == "queued"
        with Worker(world) as worker:
            until(lambda: get(client, run_id)["state"] == "running")
            worker.process.send_signal(signal.SIGTERM)
            until(lambda: worker.get("/readyz").json()["draining"])
            assert worker.kill(signal.SIGTERM) == 0
        assert get(client, run_id)["state"] == "queued"
        with Worker(world):
            until(lambda: get(client, run_id)["state"] == "running")
            (work_folder(world, run_id) / "go").touch()
            reach(client, run_id, "waiting_user")


def test_workers_and_their_servers_need_postgres(tmp_path: Path) -> None:
    with databases.chosen(False):
        world = World(tmp_path)
    for words in (("worker",), ("serve", "--no-worker")):
        told = askback(world, *words)
        assert told.code == 2
        assert "needs PostgreSQL" in told.stderr
        assert "database" in told.stderr
    assert "--engines names no engine" in askback(world, "worker", "--engines", " ,").stderr
    assert not world.data_dir.exists()
