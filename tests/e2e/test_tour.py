"""`askback demo`: the whole story, with and without a terminal, and nothing left behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.data_folder import World
from support.program import Terminal, askback


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """Where the demo makes its folder."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


def test_without_a_terminal_the_demo_answers_itself_and_leaves_nothing(tmp_path: Path, scratch: Path) -> None:
    world = World(tmp_path)
    ran = askback(world, "demo", env={"TMPDIR": str(scratch)}, warm=False)
    assert ran.code == 0
    assert json.loads(ran.stdout)["pace"] == "balanced"
    for part in ("? What pace would you like in Lisbon?", "> balanced", "✔ trip-planner: succeeded", "What happened"):
        assert part in ran.stderr
    assert list(scratch.iterdir()) == []
    assert not world.data_dir.exists()
    # What is gone when the demo ends is not named as if it could be looked at.
    assert str(scratch) not in ran.stderr


def test_on_a_terminal_the_demo_asks_and_leaves_nothing(tmp_path: Path, scratch: Path) -> None:
    world = World(tmp_path)
    with Terminal(world, "demo", env={"TMPDIR": str(scratch)}, stdout=tmp_path / "result") as terminal:
        terminal.expect("1) Relaxed: one thing a day")
        terminal.expect("Enter for balanced): ")
        terminal.enter("1")
        ran = terminal.ended()
    assert (ran.code, json.loads(ran.stdout)["pace"]) == (0, "relaxed")
    assert "The answer (relaxed) started a new process" in " ".join(ran.stderr.split())
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(("key", "code"), [("\x04", 4), ("\x03", 130)])
def test_a_demo_that_is_left_early_leaves_nothing_either(tmp_path: Path, scratch: Path, key: str, code: int) -> None:
    with Terminal(World(tmp_path), "demo", env={"TMPDIR": str(scratch)}) as terminal:
        terminal.expect("Enter for balanced): ")
        terminal.write(key)
        ran = terminal.ended()
    assert ran.code == code
    assert "askback reply" not in ran.stderr
    assert "What happened" not in ran.stderr
    assert list(scratch.iterdir()) == []


def test_a_demo_in_a_named_folder_is_kept(tmp_path: Path) -> None:
    world = World(tmp_path)
    ran = askback(world, "demo", "--answer", "packed", "--data-dir", str(world.data_dir))
    assert (ran.code, json.loads(ran.stdout)["pace"]) == (0, "packed")
    (artifact,) = world.data_dir.glob("runs/*/work/artifacts/itinerary.md")
    assert str(artifact) in ran.stderr


def test_the_command_that_the_demo_prints_can_be_typed(tmp_path: Path) -> None:
    world = World(tmp_path)
    (line,) = [each for each in askback(world, "demo").stderr.splitlines() if each.startswith("▸ askback run ")]
    ran = askback(world, *line.removeprefix("▸ askback ").split(), "--answer", "packed")
    assert (ran.code, json.loads(ran.stdout)["pace"]) == (0, "packed")
