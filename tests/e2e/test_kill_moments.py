"""`askback run` killed with kill -9 at the moments that matter goes on afterwards, with nothing lost and nothing doubled."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from audit import audit

from askback.core.runs import RunState
from askback.process.tree import Tree
from support.data_folder import ASK, FINISH, World
from support.program import Started, Terminal, askback, stored, until, work_folder

REPLY = "the wall shall be crimson"


def at_work(name: str) -> list[dict[str, Any]]:
    """Steps that let a test see the turn, and hold it."""
    return [{"touch": f"{name}-started"}, {"wait_for": f"{name}-go"}]


def see(world: World, run_id: str, name: str) -> None:
    until(lambda: (work_folder(world, run_id) / f"{name}-started").exists())


def let_go(world: World, run_id: str, name: str) -> None:
    (work_folder(world, run_id) / f"{name}-go").touch()


def sit_down(world: World, *turns: Any) -> Terminal:
    return Terminal(world, "run", world.skill(*turns), "--engine", "scripted")


def kill(terminal: Terminal) -> None:
    terminal.process.kill()
    assert terminal.process.wait() == -signal.SIGKILL


@pytest.mark.contract("B-1", "B-4")
@pytest.mark.parametrize("way", ["reply", "continue"])
def test_killed_while_waiting(tmp_path: Path, way: str) -> None:
    world = World(tmp_path)
    with sit_down(world, [ASK], [FINISH]) as terminal:
        run_id = terminal.run_id()
        terminal.expect("Your answer")
        kill(terminal)
    assert stored(world, run_id).state is RunState.WAITING_USER
    ways = {"reply": ("reply", run_id, REPLY), "continue": ("run", "--continue", run_id, "--answer", REPLY)}
    ran = askback(world, *ways[way], "--json", warm=False)
    assert ran.code == 0
    audit(world, run_id, [REPLY], ran.json["data"], {"colour": REPLY})


@pytest.mark.contract("B-1", "B-4")
def test_killed_in_the_middle_of_the_first_turn(tmp_path: Path) -> None:
    world = World(tmp_path)
    with sit_down(world, [*at_work("first"), ASK], [FINISH]) as terminal:
        run_id = terminal.run_id()
        see(world, run_id, "first")
        kill(terminal)
    left = Tree(mark=run_id).members()
    let_go(world, run_id, "first")
    ran = askback(world, "run", "--continue", run_id, "--answer", REPLY, "--json", warm=False)
    assert ran.code == 0
    assert not left & Tree(mark=run_id).members()
    audit(world, run_id, [REPLY], ran.json["data"], {"colour": REPLY})


@pytest.mark.contract("B-1", "B-4")
def test_killed_in_the_middle_of_the_reply_turn(tmp_path: Path) -> None:
    world = World(tmp_path)
    with sit_down(world, [ASK], [*at_work("second"), FINISH]) as terminal:
        run_id = terminal.run_id()
        terminal.expect("Your answer")
        terminal.enter(REPLY)
        see(world, run_id, "second")
        kill(terminal)
    assert REPLY in world.prompts(run_id)[-1]
    refused = askback(world, "reply", run_id, "too late", "--json")
    assert (refused.code, refused.json["error"]["code"]) == (2, "INTERACTION_NOT_PENDING")
    let_go(world, run_id, "second")
    ran = askback(world, "run", "--continue", run_id, "--json", warm=False)
    assert ran.code == 0
    audit(world, run_id, [REPLY], ran.json["data"], {"colour": REPLY})


@pytest.mark.contract("B-1", "B-4")
def test_killed_right_after_the_reply_was_accepted(tmp_path: Path) -> None:
    world = World(tmp_path)
    with sit_down(world, [ASK], [FINISH]) as terminal:
        run_id = terminal.run_id()
        terminal.expect("Your answer")
        # A program that is stopped keeps its run, and does nothing for it.
        os.kill(terminal.process.pid, signal.SIGSTOP)
        sent = askback(world, "reply", run_id, REPLY, "--json")
        assert (sent.code, sent.json["state"]) == (0, "queued")
        kill(terminal)
    assert REPLY not in "".join(world.prompts(run_id))
    ran = askback(world, "run", "--continue", run_id, "--json", warm=False)
    assert ran.code == 0
    audit(world, run_id, [REPLY], ran.json["data"], {"colour": REPLY})


@pytest.mark.contract("B-1", "B-4")
def test_a_reply_command_killed_at_work_is_gone_on_with(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [*at_work("second"), ASK], [FINISH])
    run_id = askback(world, "run", skill, "--engine", "scripted", "--mode", "interactive", "--json").json["id"]
    with Started(world, "reply", run_id, REPLY) as replying:
        see(world, run_id, "second")
        replying.kill()
    let_go(world, run_id, "second")
    other = "no, rather blue"
    ran = askback(world, "run", "--continue", run_id, "--answer", other)
    assert ran.code == 0
    audit(world, run_id, [REPLY, other], json.loads(ran.stdout), {"colour": other})


def test_what_was_cut_off_is_listed_where_an_unknown_run_is_named(tmp_path: Path) -> None:
    world = World(tmp_path)
    with sit_down(world, [*at_work("first"), {"finish": {"colour": "red"}}]) as terminal:
        run_id = terminal.run_id()
        see(world, run_id, "first")
        kill(terminal)
    ran = askback(world, "run", "--continue", "nosuch", "--json")
    assert ran.json["error"]["problems"] == [f"{run_id} (tested) was interrupted"]
    let_go(world, run_id, "first")
    assert askback(world, "run", "--continue", run_id).code == 0
