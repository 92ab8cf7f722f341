"""`askback run --option on_lost_session=rebuild`, with a session that is gone and a program that is killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.data_folder import ASK, World
from support.program import Started, askback, until

pytestmark = pytest.mark.contract("J-5")

FINISH = {"finish": {"colour": "{{reply}}"}}


def asked(world: World, skill: str, *options: str) -> str:
    """A run that waits, and whose session is gone."""
    ran = askback(world, "run", skill, "--engine", "scripted", "--mode", "interactive", "--json", *options)
    assert ran.code == 4, ran.stderr
    run_id = str(ran.json["id"])
    world.lose_session(run_id)
    return run_id


def warned(document: Any) -> list[str]:
    return [each["code"] for each in document["warnings"]]


def test_a_reply_to_a_run_without_its_session_is_warned_of_and_succeeds(tmp_path: Path) -> None:
    world = World(tmp_path)
    run_id = asked(world, world.skill([ASK], [FINISH]), "--option", "on_lost_session=rebuild")
    ran = askback(world, "reply", run_id, "red")
    assert ran.code == 0, ran.stderr
    assert "! CONTEXT_REBUILT: turn 2 could not resume the session" in ran.stderr
    shown = askback(world, "show", run_id)
    assert "! CONTEXT_REBUILT" in shown.stdout


def test_without_the_option_it_fails(tmp_path: Path) -> None:
    world = World(tmp_path)
    run_id = asked(world, world.skill([ASK], [FINISH]))
    ran = askback(world, "reply", run_id, "red", "--json")
    assert (ran.code, ran.json["error"]["code"], warned(ran.json)) == (1, "SESSION_RESUME_FAILED", [])


def test_another_value_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    ran = askback(world, "run", world.skill([ASK]), "--engine", "scripted", "--option", "on_lost_session=retry")
    assert (ran.code, "options.on_lost_session" in ran.stderr) == (2, True)


@pytest.mark.contract("B-1", "B-4")
def test_a_kill_in_the_new_session_does_not_rebuild_it_twice(tmp_path: Path) -> None:
    world = World(tmp_path)
    here, go = tmp_path / "begun", tmp_path / "go"
    skill = world.skill([ASK], [{"touch": str(here)}, {"wait_for": str(go)}, FINISH])
    run_id = asked(world, skill, "--option", "on_lost_session=rebuild")
    with Started(world, "reply", run_id, "red", "--json") as replying:
        until(here.exists)
        replying.kill()
    go.touch()
    ran = askback(world, "run", "--continue", run_id, "--json")
    assert (ran.code, ran.json["data"]) == (0, {"colour": "red"}), ran.stderr
    assert warned(ran.json) == ["CONTEXT_REBUILT"]
    (prompt,) = world.prompts(run_id)
    assert prompt.count("\nred\n</user_reply>") == 1
    shown = askback(world, "show", run_id, "--json").json
    assert shown["attempt_number"] == 3
