"""`/healthz` tries what it vouches for."""

from __future__ import annotations

import time
from contextlib import closing

import apsw
import httpx
import pytest

from support.api import PATIENCE_SEC
from support.data_folder import World
from support.program import until
from support.server import Server


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
