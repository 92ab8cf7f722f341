"""Two servers on one PostgreSQL database, one of which dies, is stopped or is cut off while it executes a turn.

The other must not know of its file lock, as if it were on another machine.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from askback.process.tree import Tree
from support import postgres
from support.api import calling, over, start
from support.data_folder import World
from support.hanging_proxy import HangingProxy
from support.postgres import databases
from support.program import until, work_folder
from support.server import Server

pytestmark = pytest.mark.long

HELD: list[dict[str, Any]] = [{"touch": "started"}, {"wait_for": "go"}, {"finish": {"colour": "red"}}]
ENV = {"ASKBACK_SLOTS": "1", "ASKBACK_FLEET__LEASE_SEC": "12"}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    with databases.chosen(True):
        world = World(tmp_path)
        world.skill(HELD, name="held")
        yield world


def asked(world: World, statement: str, *values: object) -> list[Any]:
    assert world.database is not None
    with psycopg.connect(world.database, autocommit=True, connect_timeout=60) as connection:
        return connection.execute(statement, values).fetchall()  # type: ignore[call-overload]


def held_by(world: World, run_id: str) -> tuple[str | None, int]:
    """The worker and the epoch of a run."""
    ((worker, epoch),) = asked(world, "SELECT worker, epoch FROM askback.runs WHERE id = %s", run_id)
    return worker, epoch


def is_over(world: World, name: str) -> bool:
    return asked(world, "SELECT 1 FROM askback.programs WHERE name = %s AND lease_until > now()", name) == []


def begun(world: World, run_id: str) -> None:
    """Wait until an engine has begun the turn, and let the next one say so again."""
    sign = work_folder(world, run_id) / "started"
    until(sign.exists)
    sign.unlink()


@contextmanager
def held_turn(world: World, address: str | None = None) -> Iterator[tuple[Server, httpx.Client, str, str]]:
    """A server with a turn in progress, another server's client, the run, and the name of the first server."""
    env = ENV if address is None else {**ENV, "ASKBACK_DATABASE": address}
    with Server(world, env=env) as first, calling(first.url, first.token) as here:
        run_id = start(here, "held")
        begun(world, run_id)
        name, _ = held_by(world, run_id)
        assert name is not None
        # Another machine does not see it.
        (world.data_dir / "programs" / f"{name}.lock").unlink()
        with Server(world, env=ENV) as second, calling(second.url, second.token) as there:
            yield first, there, run_id, name


def finished_once(world: World, client: httpx.Client, run_id: str, name: str) -> None:
    """The turn was restarted by another program, and has one end."""
    begun(world, run_id)
    worker, epoch = held_by(world, run_id)
    assert worker != name
    assert epoch > 1
    (work_folder(world, run_id) / "go").touch()
    assert over(client, run_id)["state"] == "succeeded"
    ends_once(client, run_id)


def ends_once(client: httpx.Client, run_id: str) -> None:
    events = client.get(f"/v1/runs/{run_id}/events", params={"limit": 1000}).json()["items"]
    outcomes = [event["data"]["outcome"] for event in events if event["type"] == "turn.ended"]
    assert set(outcomes[:-1]) == {"interrupted"}
    assert outcomes[-1] == "final"
    assert [event["data"]["to"] for event in events if event["type"] == "run.state"].count("succeeded") == 1


@pytest.mark.contract("M-4")
def test_the_turn_of_a_killed_program_is_restarted_by_another_machine(world: World) -> None:
    with held_turn(world) as (first, there, run_id, name):
        first.kill()
        finished_once(world, there, run_id, name)


@pytest.mark.contract("M-4")
def test_a_program_that_was_stopped_past_its_lease_changes_nothing_and_works_again(world: World) -> None:
    with held_turn(world) as (first, there, run_id, name):
        engines = Tree(mark=run_id).members()
        first.process.send_signal(signal.SIGSTOP)
        try:
            until(lambda: is_over(world, name))
            # Its guardian has ended them, although the program could not.
            assert not engines & Tree(mark=run_id).members()
            finished_once(world, there, run_id, name)
        finally:
            first.process.send_signal(signal.SIGCONT)
        of_first = "SELECT 1 FROM askback.programs WHERE name <> %s AND pid = %s AND lease_until > now()"
        until(lambda: asked(world, of_first, name, first.process.pid) != [])
        assert "the lease of this program is lost" in first.stderr
        ends_once(there, run_id)
        with calling(first.url, first.token) as here:
            again = start(here, "held")
            begun(world, again)
            (work_folder(world, again) / "go").touch()
            assert over(here, again)["state"] == "succeeded"


@pytest.mark.contract("M-4")
def test_a_program_that_is_cut_off_ends_its_engines_before_its_lease_is_over(world: World) -> None:
    assert world.database is not None
    with HangingProxy(world.database) as proxy, held_turn(world, proxy.address) as (first, there, run_id, name):
        engines = Tree(mark=run_id).members()
        assert engines
        proxy.hang()

        def ended_in_time() -> bool:
            late = is_over(world, name)
            living = {pid for pid in engines if Path(f"/proc/{pid}").exists() and not _is_zombie(pid)}
            assert not (late and living), "an engine lives longer than the lease of its program"
            return not living

        until(ended_in_time)
        finished_once(world, there, run_id, name)
        proxy.proceed()
        of_first = "SELECT 1 FROM askback.programs WHERE name <> %s AND pid = %s AND lease_until > now()"
        until(lambda: asked(world, of_first, name, first.process.pid) != [])
        ends_once(there, run_id)
        assert os.waitpid(first.process.pid, os.WNOHANG) == (0, 0)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True
