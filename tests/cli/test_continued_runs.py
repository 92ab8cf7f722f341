"""`askback run --from`: a run that continues another one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.data_folder import ASK, FINISH, World
from support.program import askback

WRITE = [
    {"write": {"path": "artifacts/plan.md", "text": "the plan"}},
    {"write": {"path": "draft.txt", "text": "a draft"}},
    {"finish": {"colour": "red"}},
]


@pytest.mark.contract("J-3")
@pytest.mark.parametrize("files", [None, "artifacts", "workspace"])
def test_a_run_starts_with_the_files_of_another(tmp_path: Path, files: str | None) -> None:
    world = World(tmp_path)
    first, second = world.skill(WRITE, name="first"), world.skill([{"finish": {"colour": "blue"}}], name="second")
    source = json.loads(askback(world, "run", first, "--engine", "scripted", "--json").stdout)["id"]
    chosen = () if files is None else ("--from-files", files)
    ran = askback(world, "run", second, "--engine", "scripted", "--json", "--from", source[:12], *chosen)
    assert ran.code == 0, ran.stderr
    work = world.data_dir / "runs" / json.loads(ran.stdout)["id"] / "work"
    assert (work / "artifacts" / "plan.md").read_text() == "the plan"
    assert (work / "draft.txt").exists() is (files == "workspace")


@pytest.mark.contract("J-3")
def test_a_follow_up_continues_the_session(tmp_path: Path) -> None:
    world = World(tmp_path)
    first, second = world.skill(WRITE, name="first"), world.skill([], [{"finish": {"colour": "blue"}}], name="second")
    source = json.loads(askback(world, "run", first, "--engine", "scripted", "--json").stdout)["id"]
    ran = askback(world, "run", second, "--json", "--from", source, "--from-session")
    assert ran.code == 0, ran.stderr
    run = json.loads(ran.stdout)
    assert [f'"{name}"' in prompt for name, prompt in zip(("first", "second"), world.prompts(run["id"]), strict=True)]
    assert (world.data_dir / "runs" / run["id"] / "work" / "draft.txt").exists()


@pytest.mark.contract("J-4")
def test_a_fork_answers_differently(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])
    first = askback(world, "run", skill, "--engine", "scripted", "--json", "--answer", "red")
    source = json.loads(first.stdout)["id"]
    fork = ("run", skill, "--json", "--from", source, "--from-question", "colour")
    ran = askback(world, *fork, "--answer", "blue")
    assert ran.code == 0, ran.stderr
    assert json.loads(ran.stdout)["data"] == {"colour": "blue"}
    waits = askback(world, *fork)
    assert (waits.code, json.loads(waits.stdout)["state"]) == (4, "waiting_user")
    shown = askback(world, "show", json.loads(waits.stdout)["id"])
    assert f"  from     run {source}: forked at question colour, its working directory" in shown.stdout


def test_mistakes_are_told(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill(WRITE)
    without = askback(world, "run", skill, "--from-files", "artifacts")
    assert (without.code, "need a run: --from RUN" in without.stderr) == (2, True)
    unknown = askback(world, "run", skill, "--engine", "scripted", "--from", "1m7gekfsksrgk77s")
    assert unknown.code != 0
    assert "1m7gekfsksrgk77s" in unknown.stderr
