"""`/healthz` tries what it vouches for."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

import apsw
import httpx
import pytest

from support.api import PATIENCE_SEC, calling
from support.data_folder import World
from support.program import until
from support.server import Server


def test_a_server_that_executes_runs_is_ready_and_is_the_only_worker(own_world: World) -> None:
    with Server(own_world, env={"ASKBACK_SLOTS": "3"}) as server, calling(server.url, server.token) as client:
        ready = {"ready": True, "database": "ok", "files": "ok", "machine": "ok", "draining": False}
        assert httpx.get(f"{server.url}/readyz").json() == ready

        def listed() -> list[dict[str, Any]]:
            return [each for each in client.get("/v1/workers").json()["items"] if each["engines"]]

        (worker,) = until(listed)
        assert (worker["kind"], worker["pid"], worker["state"]) == ("server", server.process.pid, "alive")
        assert worker["slots"] == {"total": 3, "taken": 0}
        assert [engine["name"] for engine in worker["engines"]] == ["scripted"]


@pytest.mark.sqlite
def test_a_database_that_takes_no_writes_is_not_healthy(own_world: World) -> None:
    """Reading it works all the while."""
    with Server(own_world) as server, httpx.Client(base_url=server.url, timeout=PATIENCE_SEC) as client:
        assert client.get("/healthz").json()["status"] == "ok"
        with closing(apsw.Connection(str(own_world.data_dir / "askback.db"))) as other:
            other.execute("BEGIN IMMEDIATE")
            until(lambda: status(client) == (503, "failing"))
            other.execute("ROLLBACK")
        until(lambda: status(client) == (200, "ok"))


def status(client: httpx.Client) -> tuple[int, str]:
    time.sleep(0.1)
    answer = client.get("/healthz")
    return answer.status_code, str(answer.json()["status"])
