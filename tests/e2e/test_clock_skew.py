"""A worker whose clock is an hour fast: leases, deadlines and times are those of the database.

The clock of one program is set by libfaketime. The monotonic clocks are those of the machine, as on a machine whose time of
day is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from support import postgres
from support.api import calling, get, over, reach, start
from support.data_folder import World
from support.postgres import databases
from support.program import until
from support.server import Server
from support.workers import Worker

ASKING = {"ask": {"interaction_id": "colour", "prompt": "Which colour?", "default": "red"}}
DECIDED = {"finish": {"colour": "decided"}}
HOUR = timedelta(hours=1)
MOST = timedelta(minutes=20)
"""However slow the machine is."""
LEASE = {"ASKBACK_FLEET__LEASE_SEC": "20"}


def library() -> Path | None:
    return next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    with databases.chosen(True):
        made = World(tmp_path)
        made.skill([ASKING], [DECIDED], name="asking")
        yield made


@pytest.fixture
def fast_clock() -> dict[str, str]:
    """The variables of a program whose clock is an hour fast."""
    if (found := library()) is None:
        pytest.skip("libfaketime is not installed (Debian: faketime)")
    return {"LD_PRELOAD": str(found), "FAKETIME": "+1h", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


def near(text: str) -> bool:
    """Whether this time is about now, by the clock of the machine."""
    return abs(datetime.fromisoformat(text) - datetime.now(UTC)) < MOST


def workers(client: httpx.Client) -> list[str]:
    found = client.get("/v1/workers").json()["items"]
    return [each["name"] for each in found if (each["kind"], each["state"]) == ("worker", "alive")]


def lease(world: World, name: str) -> datetime:
    """When the lease of this program is over. Each renewal sets it, and a program that has lost its lease has another name."""
    assert world.database is not None
    database = world.database.partition("@/")[2].partition("?")[0]
    ((until_then,),) = databases.server.execute(
        f"SELECT lease_until FROM askback.programs WHERE name = '{name}'", database
    )
    found: datetime = until_then
    return found


@pytest.mark.contract("M-4")
def test_the_clock_of_a_worker_ends_no_lease_and_no_wait(world: World, fast_clock: dict[str, str]) -> None:
    def options(seconds: int) -> dict[str, Any]:
        return {"options": {"interactive_require_user_reply": False, "session_timeout_sec": seconds}}

    with (
        Server(world, "--no-worker", env=LEASE) as server,
        Worker(world, env=LEASE | fast_clock, warm=False) as worker,
        calling(server.url, server.token) as client,
    ):
        ahead = parsedate_to_datetime(worker.get("/healthz").headers["date"]) - datetime.now(UTC)
        assert abs(ahead - HOUR) < MOST, "the clock of the worker is not fast"
        (name,) = until(lambda: workers(client))
        # Its deadline is past by the clock of the worker, and half an hour away by that of the database.
        slow = start(client, "asking", **options(1800))
        waits = reach(client, slow, "waiting_user")
        assert near(waits["pending_interaction"]["asked_at"])
        soon = start(client, "asking", **options(1))
        assert over(client, soon)["state"] == "succeeded"
        assert get(client, slow)["state"] == "waiting_user"
        first = lease(world, name)
        until(lambda: lease(world, name) > first)
        assert near(lease(world, name).isoformat())
