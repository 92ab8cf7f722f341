"""Ctrl-C, a closed terminal and a TERM: the run is canceled properly, or left so that it can be taken up."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from askback.core.runs import RunState
from askback.process.tree import Tree
from support.data_folder import ASK, FINISH, World
from support.program import ASKBACK, DEADLINE_SEC, Started, Terminal, askback, stored, until, work_folder

STARTED: list[dict[str, Any]] = [{"misbehave": "spawn_daemon", "pid_file": "pid"}, {"touch": "started"}]
BUSY = [*STARTED, {"wait_for": "go"}, {"finish": {"colour": "red"}}]
DEAF = [{"misbehave": "ignore_term"}, *BUSY]


def arguments(world: World, *turns: Any) -> tuple[str, ...]:
    return ("run", world.skill(*turns), "--engine", "scripted", "--mode", "interactive")


def at_work(world: World, run_id: str) -> None:
    until(lambda: (work_folder(world, run_id) / "started").exists())
    assert Tree(mark=run_id).members()


def gone(run_id: str) -> bool:
    return Tree(mark=run_id).members() == set()


@pytest.mark.contract("B-2")
def test_ctrl_c_cancels_a_run_at_work_with_its_whole_tree(tmp_path: Path) -> None:
    world = World(tmp_path)
    with Terminal(world, *arguments(world, BUSY)) as terminal:
        run_id = terminal.run_id()
        at_work(world, run_id)
        terminal.interrupt()
        terminal.expect("canceling the run … (Ctrl-C again kills the engine)")
        terminal.expect("■ tested: canceled")
        assert terminal.ended().code == 130
    assert gone(run_id)
    assert stored(world, run_id).state is RunState.CANCELED


@pytest.mark.parametrize("kind", ["xterm", "dumb"])
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_at_a_question_leaves_the_run_waiting(tmp_path: Path, kind: str, times: int) -> None:
    world = World(tmp_path)
    with Terminal(world, *arguments(world, [ASK], [FINISH]), env={"TERM": kind}) as terminal:
        run_id = terminal.run_id()
        terminal.expect("(Ctrl-D: answer later)")
        terminal.expect("Your answer")
        for _ in range(times):
            terminal.interrupt()
        ran = terminal.ended()
    assert ran.code == 4
    assert "elsewhere" not in ran.stderr
    assert f"run {run_id} waits for an answer; answer with: askback reply {run_id} TEXT" in ran.stderr
    assert stored(world, run_id).state is RunState.WAITING_USER
    answered = askback(world, "reply", run_id, "red", "--json")
    assert (answered.code, answered.json["data"]) == (0, {"colour": "red"})


def test_ctrl_c_in_the_middle_of_a_form_leaves_the_run_waiting(tmp_path: Path) -> None:
    world = World(tmp_path)
    form = {"type": "object", "properties": {"days": {"type": "integer"}, "note": {"type": "string"}}}
    ask = {"ask": {"interaction_id": "trip", "prompt": "Which trip?", "response_schema": form}}
    with Terminal(world, *arguments(world, [ask], [FINISH])) as terminal:
        run_id = terminal.run_id()
        terminal.expect("days")
        terminal.enter("3")
        terminal.expect("note")
        terminal.interrupt()
        ran = terminal.ended()
    assert ran.code == 4
    assert f"answer with: askback reply {run_id}\n" in ran.stderr
    assert stored(world, run_id).state is RunState.WAITING_USER


@pytest.mark.contract("B-2")
def test_ctrl_c_at_a_question_of_a_sticky_run_cancels_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    sticky = ("--option", "interactive_profile=sticky_process")
    with Terminal(world, *arguments(world, [ASK], [FINISH]), *sticky) as terminal:
        run_id = terminal.run_id()
        assert "answer later" not in terminal.expect("Your answer")
        terminal.interrupt()
        ran = terminal.ended()
    assert ran.code == 130
    assert gone(run_id)
    assert stored(world, run_id).state is RunState.CANCELED


def test_ctrl_c_after_an_answer_cancels_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    with Terminal(world, *arguments(world, [ASK], BUSY)) as terminal:
        run_id = terminal.run_id()
        terminal.expect("Your answer")
        terminal.enter("red")
        at_work(world, run_id)
        terminal.interrupt()
        assert terminal.ended().code == 130
    assert stored(world, run_id).state is RunState.CANCELED


# More patient with an engine than any test is.
PATIENT = """
from askback.cli.main import main
from askback.worker.turn import process
process.GRACE_SEC = 3600.0
main()
"""


def test_a_second_ctrl_c_does_not_wait_for_a_deaf_engine(tmp_path: Path) -> None:
    world = World(tmp_path)
    with Terminal(world, *arguments(world, DEAF), program=(sys.executable, "-c", PATIENT)) as terminal:
        run_id = terminal.run_id()
        at_work(world, run_id)
        terminal.interrupt()
        terminal.expect("canceling the run")
        terminal.interrupt()
        assert terminal.ended().code == 130
    assert gone(run_id)
    assert stored(world, run_id).state is RunState.CANCELED


def test_one_ctrl_c_gives_a_deaf_engine_its_time_and_then_kills_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    with Started(world, *arguments(world, DEAF)) as started:
        run_id = started.run_id()
        at_work(world, run_id)
        assert started.kill(signal.SIGINT) == 130
    assert gone(run_id)
    assert stored(world, run_id).state is RunState.CANCELED


def test_an_interrupted_run_is_one_json_document_too(tmp_path: Path) -> None:
    world = World(tmp_path)
    with Started(world, *arguments(world, BUSY), "--json") as started:
        runs = world.data_dir / "runs"
        run_id = until(lambda: [path.name for path in runs.glob("*")])[0]
        at_work(world, run_id)
        started.process.send_signal(signal.SIGINT)
        ran = started.ended()
    assert (ran.code, ran.json["state"], ran.json["id"]) == (130, "canceled", run_id)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_run_whose_program_is_ended_at_work_can_be_taken_up(tmp_path: Path, number: signal.Signals) -> None:
    world = World(tmp_path)
    with Started(world, *arguments(world, BUSY)) as started:
        run_id = started.run_id()
        at_work(world, run_id)
        assert started.kill(number) == 128 + number
        assert f"askback run --continue {run_id}" in started.stderr
    assert gone(run_id)
    assert stored(world, run_id).state is RunState.QUEUED
    (work_folder(world, run_id) / "go").touch()
    ran = askback(world, "run", "--continue", run_id, "--json")
    assert (ran.code, ran.json["data"]) == (0, {"colour": "red"})
    # An orderly end is no crash: it does not count against the run.
    assert stored(world, run_id).restarts == 0


def test_a_program_that_is_ended_says_so_in_json(tmp_path: Path) -> None:
    world = World(tmp_path)
    with Started(world, *arguments(world, BUSY), "--json") as started:
        run_id = until(lambda: [path.name for path in (world.data_dir / "runs").glob("*")])[0]
        at_work(world, run_id)
        started.process.send_signal(signal.SIGTERM)
        ran = started.ended()
    assert (ran.code, ran.json["error"]["code"]) == (143, "INTERRUPTED")
    assert run_id in ran.json["error"]["message"]


def test_a_closed_terminal_leaves_a_run_at_work_to_be_taken_up(tmp_path: Path) -> None:
    world = World(tmp_path)
    with Terminal(world, *arguments(world, BUSY)) as terminal:
        run_id = terminal.run_id()
        at_work(world, run_id)
        assert terminal.hang_up() == 128 + signal.SIGHUP
    assert gone(run_id)
    (work_folder(world, run_id) / "go").touch()
    assert askback(world, "run", "--continue", run_id).code == 0


def test_a_terminal_closed_at_the_prompt_leaves_the_run_waiting(tmp_path: Path) -> None:
    world = World(tmp_path)
    with Terminal(world, *arguments(world, [ASK], [FINISH])) as terminal:
        run_id = terminal.run_id()
        terminal.expect("Your answer")
        assert terminal.hang_up() == 128 + signal.SIGHUP
    assert stored(world, run_id).state is RunState.WAITING_USER
    ran = askback(world, "reply", run_id, "red", "--json")
    assert (ran.code, ran.json["data"]) == (0, {"colour": "red"})


def deaf_to_hang_up() -> tuple[str, ...]:
    """As `nohup` starts it, but on the terminal."""
    return ("/bin/sh", "-c", "trap '' HUP; exec \"$@\"", "sh", *ASKBACK)


def test_a_closed_terminal_ends_the_question_also_where_its_signal_is_ignored(tmp_path: Path) -> None:
    world = World(tmp_path)
    with Terminal(world, *arguments(world, [ASK], [FINISH]), program=deaf_to_hang_up()) as terminal:
        run_id = terminal.run_id()
        terminal.expect("Your answer")
        assert terminal.hang_up() == 4
    assert stored(world, run_id).state is RunState.WAITING_USER


def test_a_run_at_work_outlives_its_terminal_where_the_signal_is_ignored(tmp_path: Path) -> None:
    world = World(tmp_path)
    result = tmp_path / "result"
    with Terminal(world, *arguments(world, BUSY), stdout=result, program=deaf_to_hang_up()) as terminal:
        run_id = terminal.run_id()
        at_work(world, run_id)
        terminal.close()
        (work_folder(world, run_id) / "go").touch()
        assert terminal.process.wait(DEADLINE_SEC) == 0
    assert json.loads(result.read_text()) == {"colour": "red"}
