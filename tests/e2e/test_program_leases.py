"""Two servers on one PostgreSQL database, one of which dies, is stopped or is cut off while it executes a turn.

Each has a data folder of its own, as on another machine.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from askback.process.tree import Tree
from support import postgres
from support.api import calling, over, start
from support.data_folder import World
from support.postgres import databases
from support.postgres_proxy import PostgresProxy
from support.processes import lives
from support.program import until, work_folder
from support.server import Server

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A turn in progress on one machine, and a server on another."""

    run_id: str
    first: Server
    name: str
    """Of the program that executes the turn."""
    elsewhere: World
    client: httpx.Client
    """Of the server on the other machine."""


@contextmanager
def held_turn(world: World, address: str | None = None) -> Iterator[Held]:
    env = ENV if address is None else {**ENV, "ASKBACK_DATABASE": address}
    with Server(world, env=env) as first, calling(first.url, first.token) as here:
        run_id = start(here, "held")
        begun(world, run_id)
        name, _ = held_by(world, run_id)
        assert name is not None
        other = other_machine(world)
        with Server(other, env=ENV) as second, calling(second.url, second.token) as there:
            yield Held(run_id=run_id, first=first, name=name, elsewhere=other, client=there)


def other_machine(world: World) -> World:
    """Another machine, which has a copy of the files and knows nothing of the file locks."""
    assert world.database is not None
    folder = world.folder.with_name(f"{world.folder.name}-other")
    postgres.address_file(folder).write_text(world.database)
    with databases.chosen(False):
        other = World(folder)
    left_out = shutil.ignore_patterns("programs", "wake", "server.json", "turn.lock")
    shutil.copytree(world.data_dir, other.data_dir, ignore=left_out)
    other.skill(HELD, name="held")
    return other


def finished_once(held: Held) -> None:
    """The turn was restarted by another program, and has one end."""
    begun(held.elsewhere, held.run_id)
    worker, epoch = held_by(held.elsewhere, held.run_id)
    assert worker != held.name
    assert epoch > 1
    (work_folder(held.elsewhere, held.run_id) / "go").touch()
    assert over(held.client, held.run_id)["state"] == "succeeded"
    ends_once(held.client, held.run_id)


def works_again(world: World, held: Held) -> None:
    """The first program is registered under another name, and executes runs."""
    of_first = "SELECT 1 FROM askback.programs WHERE name <> %s AND pid = %s AND lease_until > now()"
    until(lambda: asked(world, of_first, held.name, held.first.process.pid) != [])
    assert "the lease of this program is lost" in held.first.stderr
    until(lambda: "this program works again" in held.first.stderr)
    ends_once(held.client, held.run_id)


def ends_once(client: httpx.Client, run_id: str) -> None:
    events = client.get(f"/v1/runs/{run_id}/events", params={"limit": 1000}).json()["items"]
    outcomes = [event["data"]["outcome"] for event in events if event["type"] == "turn.ended"]
    assert set(outcomes[:-1]) == {"interrupted"}
    assert outcomes[-1] == "final"
    assert [event["data"]["to"] for event in events if event["type"] == "run.state"].count("succeeded") == 1


@pytest.mark.long
@pytest.mark.contract("M-4")
def test_the_turn_of_a_killed_program_is_restarted_by_another_machine(world: World) -> None:
    with held_turn(world) as held:
        held.first.kill()
        finished_once(held)


@pytest.mark.long
@pytest.mark.contract("M-4")
def test_a_program_that_was_stopped_past_its_lease_changes_nothing_and_works_again(world: World) -> None:
    with held_turn(world) as held:
        engines = Tree(mark=held.run_id).members()
        assert engines
        held.first.process.send_signal(signal.SIGSTOP)
        try:
            until(lambda: is_over(world, held.name))
            # Its guardian has ended them, although the program could not.
            assert not living(engines)
            finished_once(held)
        finally:
            held.first.process.send_signal(signal.SIGCONT)
        works_again(world, held)


@pytest.mark.contract("M-4")
def test_a_program_that_is_cut_off_ends_its_engines_before_its_lease_is_over(world: World) -> None:
    assert world.database is not None
    with PostgresProxy(world.database) as proxy, held_turn(world, proxy.address) as held:
        engines = Tree(mark=held.run_id).members()
        assert engines
        proxy.hang()

        def ended_in_time() -> bool:
            late = is_over(world, held.name)
            left = living(engines)
            assert not (late and left), "an engine lives longer than the lease of its program"
            return not left

        until(ended_in_time)
        finished_once(held)
        proxy.proceed()
        works_again(world, held)


def living(pids: set[int]) -> set[int]:
    return {pid for pid in pids if lives(pid)}
