"""A run that keeps its process, from the command line: asked on a terminal, answered from elsewhere, and left."""

from __future__ import annotations

from pathlib import Path

import pytest

from askback.core.errors import ErrorCode
from askback.core.runs import RunState
from askback.process.tree import Tree
from support.data_folder import ASK, FINISH, World
from support.program import Started, Terminal, askback, stored, until

SECOND = {"ask": {"interaction_id": "size", "prompt": "Which size?"}}


def arguments(world: World) -> tuple[str, ...]:
    skill = world.skill([ASK], [SECOND], [FINISH])
    sticky = ("--option", "interactive_profile=sticky_process")
    return ("run", skill, "--engine", "scripted", "--mode", "interactive", *sticky)


def pids(world: World, run_id: str) -> set[int]:
    (session,) = world.sessions(run_id)
    return {entry["pid"] for entry in session if entry["type"] == "prompt"}


@pytest.mark.contract("W-6")
def test_two_questions_on_a_terminal_are_answered_into_one_process(tmp_path: Path) -> None:
    world = World(tmp_path)
    with Terminal(world, *arguments(world)) as terminal:
        run_id = terminal.run_id()
        terminal.expect("Which colour?")
        terminal.expect("Your answer")
        terminal.enter("1")
        terminal.expect("Which size?")
        terminal.expect("Your answer")
        terminal.enter("small")
        assert terminal.ended().code == 0
    assert len(pids(world, run_id)) == 1


def test_without_a_terminal_the_process_is_held_for_an_answer_from_elsewhere(tmp_path: Path) -> None:
    world = World(tmp_path)
    with Started(world, *arguments(world), "--answer", "red") as started:
        run_id = started.run_id()
        until(lambda: stored(world, run_id).attempt_number == 2 and stored(world, run_id).state == "waiting_user")
        until(lambda: f"answer with: askback reply {run_id} TEXT" in started.stderr)
        assert askback(world, "reply", run_id, "large").code == 0
        ran = started.ended()
    assert ran.code == 0
    assert '"colour": "large"' in ran.stdout
    assert len(pids(world, run_id)) == 1


@pytest.mark.contract("W-11", "B-3")
def test_a_held_process_ends_with_the_program_that_is_killed_and_no_answer_is_taken(tmp_path: Path) -> None:
    world = World(tmp_path)
    with Started(world, *arguments(world)) as started:
        run_id = started.run_id()
        until(lambda: stored(world, run_id).state is RunState.WAITING_USER)
        started.kill()
        until(lambda: not Tree(mark=run_id).members())
    ran = askback(world, "reply", run_id, "red", "--json")
    assert ran.code == 2
    run = stored(world, run_id)
    assert run.error is not None
    assert (run.state, run.error.code) == (RunState.FAILED, ErrorCode.INTERACTION_PROCESS_LOST)
