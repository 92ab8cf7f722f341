"""Required inputs that the command line lacks: asked for on a terminal, and described where there is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.data_folder import World
from support.program import Terminal, askback, work_folder

INPUT: dict[str, Any] = {
    "type": "object",
    "required": ["city", "days", "pace"],
    "properties": {
        "city": {"type": "string", "description": "Where to go."},
        "days": {"type": "integer", "minimum": 1, "maximum": 14, "description": "Without the journey."},
        "pace": {"type": "string", "enum": ["slow", "fast"]},
        "note": {"type": "string"},
    },
}
ANY = {"type": "object"}


def skill(world: World, schema: dict[str, Any] = INPUT) -> str:
    return world.skill([{"finish": {"done": True}}], output=ANY, schemas={"input": schema})


def requested(world: World, run_id: str) -> str:
    (prompt,) = world.prompts(run_id)
    return prompt


def test_missing_inputs_are_asked_for_by_their_schema(tmp_path: Path) -> None:
    world = World(tmp_path)
    words = ("run", skill(world), "--engine", "scripted", "--input", "city=Lisbon")
    with Terminal(world, *words, stdout=tmp_path / "result") as terminal:
        terminal.expect("tested needs input:")
        for hint, line, problem in (
            ("days (Without the journey; whole number, 1 to 14): ", "30", "30 is greater than"),
            ("days (Without the journey; whole number, 1 to 14): ", "", "a value is required (Ctrl-C: stop)"),
            ("days (Without the journey; whole number, 1 to 14): ", "3", None),
            ("      1) slow\n      2) fast\n    pace (1-2): ", "2", None),
        ):
            terminal.expect(hint)
            terminal.enter(line)
            if problem is not None:
                terminal.expect(problem)
        run_id = terminal.run_id()
        ran = terminal.ended()
    assert (ran.code, json.loads(ran.stdout)) == (0, {"done": True})
    assert "city (" not in ran.stderr
    prompt = requested(world, run_id)
    for text in ("Lisbon", '"days": 3', '"pace": "fast"'):
        assert text in prompt


@pytest.mark.parametrize(
    ("words", "says"),
    [((), "none of the default engines is installed"), (("--engine", "codex"), "engine 'codex' is not installed")],
    ids=["default", "named"],
)
def test_nothing_is_asked_for_where_no_engine_is_installed(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    world = World(tmp_path)
    with Terminal(world, "run", skill(world), *words, env={"PATH": str(tmp_path)}) as terminal:
        ran = terminal.ended()
    assert ran.code == 2
    assert says in ran.stderr
    assert "needs input" not in ran.stderr


def test_a_missing_file_is_asked_for_by_its_path(tmp_path: Path) -> None:
    world = World(tmp_path)
    schema = {"type": "object", "required": ["draft"], "properties": {"draft": {"x-input-source": "file"}}}
    (tmp_path / "draft.md").write_text("a draft")
    with Terminal(world, "run", skill(world, schema), "--engine", "scripted") as terminal:
        terminal.expect("draft (path of a file): ")
        terminal.enter(str(tmp_path / "nowhere.md"))
        terminal.expect("there is no file")
        terminal.enter(str(tmp_path / "draft.md"))
        run_id = terminal.run_id()
        assert terminal.ended().code == 0
    assert (work_folder(world, run_id) / "inputs" / "draft" / "draft.md").read_text() == "a draft"


def test_a_secret_input_is_not_shown(tmp_path: Path) -> None:
    world = World(tmp_path)
    schema = {"type": "object", "required": ["key"], "properties": {"key": {"type": "string", "format": "password"}}}
    with Terminal(world, "run", skill(world, schema), "--engine", "scripted") as terminal:
        terminal.expect("key (secret, not shown): ")
        assert not terminal.shows_what_is_typed
        terminal.enter("hunter2")
        ran = terminal.ended()
    assert ran.code == 0
    assert "hunter2" not in ran.stderr


def test_leaving_the_prompt_starts_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    for leave, code in ((Terminal.end_input, 2), (Terminal.interrupt, 130)):
        with Terminal(world, "run", skill(world), "--engine", "scripted") as terminal:
            terminal.expect("city (Where to go; text): ")
            leave(terminal)
            assert terminal.ended().code == code
    assert askback(world, "runs", "--json").json == []


def test_a_request_that_is_wrong_otherwise_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    world = World(tmp_path)
    with Terminal(world, "run", skill(world), "--engine", "scripted", "--input", "day=3") as terminal:
        ran = terminal.ended()
    assert ran.code == 2
    assert "needs input" not in ran.stderr
    assert "input.day: " in ran.stderr


def test_without_a_terminal_each_missing_input_is_described(tmp_path: Path) -> None:
    world = World(tmp_path)
    ran = askback(world, "run", skill(world), "--engine", "scripted")
    assert ran.code == 2
    lines = ran.stderr.splitlines()
    assert "  - input.city: is required: --input city=VALUE, text (Where to go)" in lines
    assert "  - input.days: is required: --input days=VALUE, whole number, 1 to 14 (Without the journey)" in lines
    assert "  - input.pace: is required: --input pace=VALUE, slow | fast" in lines
