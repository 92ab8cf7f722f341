"""What the lists look like on a terminal: colours unless they are unwanted, and lines that fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.data_folder import ASK, FINISH, World
from support.program import Terminal, askback

COMMANDS = (("runs",), ("engines",), ("doctor",), ("inbox",), ("skills",))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("lists"))
    long = "Which of the very many colours that there are on this earth shall it be for the wall in the hall?"
    ask = {"ask": {**ASK["ask"], "prompt": long}}
    skill = world.skill([ask], [FINISH], name="a-skill-with-a-name-that-is-rather-long-for-a-table")
    assert askback(world, "skills", "install", skill).code == 0
    assert askback(world, "run", skill, "--engine", "scripted", "--mode", "interactive").code == 4
    return world


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_lines_fit_and_signs_have_colours(world: World, words: tuple[str, ...]) -> None:
    with Terminal(world, *words, columns=80) as terminal:
        ran = terminal.ended()
    assert b"\x1b[" in terminal.raw
    # A path that is longer than a line cannot be broken.
    too_long = [line for line in ran.stderr.splitlines() if len(line) > 80 and max(map(len, line.split())) < 50]
    assert too_long == []


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=lambda env: next(iter(env)))
def test_colours_can_be_turned_off(world: World, env: dict[str, str]) -> None:
    for words in COMMANDS:
        with Terminal(world, *words, env=env) as terminal:
            terminal.ended()
        assert b"\x1b[" not in terminal.raw, words


def test_an_example_of_a_question_or_of_the_marker_is_text(tmp_path: Path) -> None:
    own = World(tmp_path)
    example = 'Write {"ask_user": 1} if you ask, and then go on'
    skill = own.skill([{"say": example}, {"say": 'one {"__SKILL_DONE__": true} two'}])
    ran = askback(own, "run", skill, "--engine", "scripted", "--mode", "auto")
    said = [line.split() for line in ran.stderr.splitlines()]
    assert example.split() in said
    assert ["one", "two"] in said
    assert "__SKILL_DONE__" not in ran.stderr


def test_runs_have_a_heading_and_one_line_each(world: World) -> None:
    with Terminal(world, "runs", columns=60) as terminal:
        heading, run = terminal.ended().stderr.splitlines()
    assert heading.split()[:4] == ["RUN", "STATE", "SKILL", "AGE"]
    assert run.startswith("? ")
    assert run.endswith("…")
    assert len(run) <= 60
    with Terminal(world, "runs", columns=100) as terminal:
        heading, run = terminal.ended().stderr.splitlines()
    assert heading.split() == ["RUN", "STATE", "SKILL", "ENGINE", "AGE", "ABOUT"]
    assert "Which of the very many" in run


def test_a_locale_without_our_signs_gets_ascii(world: World) -> None:
    for words in COMMANDS:
        with Terminal(world, *words, env={"LC_ALL": "C"}, columns=80) as terminal:
            shown = terminal.ended().stderr
        assert shown.isascii(), words
        assert "\\u" not in shown, words
    with Terminal(world, "runs", env={"LC_ALL": "C"}, columns=60) as terminal:
        run = terminal.ended().stderr.splitlines()[1]
    assert len(run) <= 60
    assert run.endswith("...")


def test_a_locale_without_our_signs_leaves_the_output_of_a_run_alone(world: World) -> None:
    skill = world.skill([{"finish": {"colour": "blau … grün →"}}], name="signs")
    ran = askback(world, "run", skill, "--engine", "scripted", "--mode", "auto", env={"LC_ALL": "C"}, warm=False)
    assert '"colour": "blau … grün →"' in ran.stdout
    assert "+ signs: succeeded" in ran.stderr


def test_runs_and_show_say_what_a_run_is_about(tmp_path: Path) -> None:
    world = World(tmp_path)
    properties = {"city": {"type": "string"}, "days": {"type": "integer"}, "key": {"type": "string", "writeOnly": True}}
    skill = world.skill([ASK], [FINISH], schemas={"input": {"type": "object", "properties": properties}})
    given = ("--input", "city=Lisbon", "--input", "days=3", "--input", "key=hunter2")
    run_id = askback(world, "run", skill, "--engine", "scripted", "--mode", "interactive", "--json", *given).json["id"]
    assert "Lisbon · 3 · Which colour?" in askback(world, "runs").stdout
    assert f"run {run_id}: tested on scripted · Lisbon · 3\n" in askback(world, "inbox").stdout
    shown = askback(world, "show", run_id).stdout
    assert "  input    city: Lisbon\n           days: 3\n" in shown
    assert "hunter2" not in shown
