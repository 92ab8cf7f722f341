"""The example app, as its user starts it: it shows the question to its own user and finishes the run."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from askback.skills.library import DEMO
from support.data_folder import World
from support.program import DEADLINE_SEC, environment, here
from support.server import Server

APP = Path(__file__).resolve().parent.parent.parent / "examples/app/trip_desk.py"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Server]]:
    world = World(tmp_path_factory.mktemp("app"))
    with Server(world, env={"ASKBACK_SKILLS_DIR": str(DEMO.parent)}) as server:
        yield world, server


def app(world: World, *words: str, typed: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(APP), *words],
        input=typed,
        capture_output=True,
        text=True,
        env=environment(world, **env),
        cwd=here(world),
        timeout=DEADLINE_SEC,
        check=False,
    )


def test_it_shows_the_question_to_its_user_and_finishes_the_run(server: tuple[World, Server]) -> None:
    world, there = server
    env = {"ASKBACK_URL": there.url, "ASKBACK_TOKEN": there.token, "TRIP_ENGINE": "scripted"}
    ran = app(world, "Lisbon", "2", typed="relaxed\n", **env)
    assert (ran.returncode, ran.stderr) == (0, "")
    question, _, plan = ran.stdout.partition("> ")
    assert question.startswith("What pace would you like in Lisbon?\n  - relaxed: ")
    assert plan.startswith("\nLisbon, day by day (relaxed)\n  day 1: ")
    assert plan.count("  day ") == 2
    with there.client() as client:
        (run,) = client.list_runs()
    assert (run.state, run.attempt_number) == ("succeeded", 2)


def test_what_the_server_refuses_and_that_it_is_gone_is_told_to_the_user(server: tuple[World, Server]) -> None:
    world, there = server
    unknown = {"ASKBACK_URL": there.url, "ASKBACK_TOKEN": there.token, "TRIP_ENGINE": "codx"}
    ran = app(world, "Lisbon", "2", typed="", **unknown)
    assert (ran.returncode, "engine 'codx' is unknown" in ran.stderr) == (1, True)
    gone = {"ASKBACK_URL": "http://127.0.0.1:1", "ASKBACK_TOKEN": there.token}
    ran = app(world, "Lisbon", "2", typed="", **gone)
    assert ran.returncode == 1
    assert ran.stderr.startswith("the planner cannot be asked: cannot reach the server at http://127.0.0.1:1")


def test_it_is_as_short_as_the_readme_says() -> None:
    source = APP.read_text(encoding="utf-8")
    docstring = ast.parse(source).body[0]
    assert docstring.end_lineno is not None
    assert len(source.splitlines()[docstring.end_lineno :]) <= 40
