"""An upgrade without stopping: programs of this version and of a later one work side by side on one database."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from askback import __version__
from support import postgres
from support.api import calling, over, refused, reply, waiting
from support.data_folder import ASK, FINISH, World
from support.next_version import FIELD, VERSION, NextVersion
from support.postgres import databases
from support.program import Started, askback, until
from support.server import Server
from support.workers import Worker

LEASE = {"ASKBACK_FLEET__LEASE_SEC": "120"}
"""So that no lease is lost on a slow machine. It is renewed as often as any other."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    with databases.chosen(True):
        made = World(tmp_path)
        # Its tables are changed, and no other test may get them.
        made.database = databases.server.make_database()
        made.skill([ASK], [FINISH], name="asking")
        yield made


def stored(world: World, run_id: str) -> dict[str, Any]:
    [(doc,)] = databases.server.execute(f"SELECT doc FROM askback.runs WHERE id = '{run_id}'", _name(world))
    found: dict[str, Any] = json.loads(doc)
    return found


def _name(world: World) -> str:
    return str(world.database).partition("@/")[2].partition("?")[0]


def upgrade(world: World, version: NextVersion, *words: str) -> dict[str, Any]:
    ran = askback(world, "database", "upgrade", "--json", *words, env=version.env, warm=False)
    assert ran.code == 0, ran.stderr
    told: dict[str, Any] = ran.json
    return told


def is_quiet(*programs: Started) -> bool:
    return not any(word in each.stderr for each in programs for word in ("Traceback", "ERROR", '"error"'))


@pytest.mark.long
@pytest.mark.contract("M-10")
def test_old_and_new_programs_work_side_by_side_until_a_step_is_not_additive(world: World, tmp_path: Path) -> None:
    later = NextVersion(tmp_path / "next")
    with ExitStack() as stack:
        server = stack.enter_context(Server(world, "--no-worker", env=LEASE))
        worker = stack.enter_context(Worker(world, env=LEASE))
        old = stack.enter_context(calling(server.url, server.token))
        first, second = waiting(old), waiting(old)

        # The upgrade leaves the old programs alone: the step that they cannot work with waits for them.
        told = upgrade(world, later)
        assert (told["upgraded_from"], told["format"]) == (later.before, later.before + 1)
        assert (told["waiting_steps"], len(told["blocked_by"])) == ([str(later.before + 2)], 2)
        for url in (server.url, worker.url):
            until(lambda url=url: _readiness(url) == (200, "ok"))  # type: ignore[misc]

        # A run of the new server is executed by the old worker, and answered at the old server.
        new_server = stack.enter_context(Server(world, "--no-worker", env=later.env | LEASE))
        new = stack.enter_context(calling(new_server.url, new_server.token))
        assert new.get("/healthz").json()["version"] == VERSION
        third = waiting(new)
        assert reply(old, third, "red").status_code == 202
        assert over(new, third)["state"] == "succeeded"
        assert stored(world, third)[FIELD] == "of the next version", "the old worker has kept it"

        # Runs of the old server, answered at either one, are finished by the new worker.
        new_worker = stack.enter_context(Worker(world, env=later.env | LEASE))
        assert worker.kill(signal.SIGTERM) == 0
        assert reply(new, first, "red").status_code == 202
        assert reply(old, second, "blue").status_code == 202
        for run_id in (first, second, _answered(old, new)):
            assert over(old, run_id)["state"] == "succeeded"

        # An old program starts on the newer tables, beside the new ones.
        old_worker = stack.enter_context(Worker(world, env=LEASE))
        for run_id in [_answered(here, there) for here, there in ((old, new), (new, old), (old, old), (new, new))]:
            assert over(old, run_id) == over(new, run_id)
            assert over(old, run_id)["state"] == "succeeded"
        _check_what_is_shown(world, old, later)
        assert is_quiet(server, worker, new_server, new_worker, old_worker)

        # A step that is not additive ends the work of the old programs, and of no other.
        told = upgrade(world, later, "--force")
        assert (told["format"], told["waiting_steps"]) == (later.before + 2, [])
        for url in (server.url, old_worker.url):
            until(lambda url=url: _readiness(url) == (503, "STORE_NEWER"))  # type: ignore[misc]
        with httpx.Client(base_url=server.url, headers=old.headers, timeout=120) as caller:
            refused(caller.get("/v1/runs"), 503, "STORE_NEWER")
        last = _answered(new, new)
        assert over(new, last)["state"] == "succeeded"
        assert is_quiet(new_server, new_worker)
        for program in (server, old_worker):
            assert "format that this version cannot use" in program.stderr
            assert program.kill(signal.SIGTERM) == 0, program.stderr
            assert "Traceback" not in program.stderr
        for words in (("runs",), ("worker", "--port", "0"), ("serve", "--port", "0"), ("database", "upgrade")):
            ran = askback(world, *words)
            assert (ran.code, "upgrade Askback" in ran.stderr) == (1, True), ran
        assert len(new.get("/v1/runs").json()["items"]) == 9


def _answered(here: httpx.Client, there: httpx.Client) -> str:
    """A run that is created at one server and answered at the other."""
    run_id = waiting(here)
    assert reply(there, run_id, "red").status_code == 202
    return run_id


def _readiness(url: str) -> tuple[int, str]:
    found = httpx.get(f"{url}/readyz", timeout=120)
    return found.status_code, found.json()["database"]


def _check_what_is_shown(world: World, old: httpx.Client, later: NextVersion) -> None:
    def versions() -> set[str]:
        return {each["version"] for each in old.get("/v1/workers").json()["items"]}

    until(lambda: versions() == {__version__, VERSION})
    now = askback(world, "database", "status", "--json").json
    assert (now["fits"], now["format"], now["known_format"]) == (True, later.before + 1, later.before)
    assert {(each["version"] == VERSION, each["format"]) for each in now["programs"]} == {
        (True, later.before + 2),
        (False, later.before),
    }
    shown = askback(world, "database", "status").stdout
    assert "newer than this Askback" in shown
    assert f"Askback {VERSION}, knows format {later.before + 2}" in shown
    assert "nothing was changed" in askback(world, "database", "upgrade").stderr
