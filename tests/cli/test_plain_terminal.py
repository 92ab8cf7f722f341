"""What the lists look like on a terminal: colours unless they are unwanted, and lines that fit."""

from __future__ import annotations

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


def test_runs_have_a_heading_and_one_line_each(world: World) -> None:
    with Terminal(world, "runs", columns=60) as terminal:
        heading, run = terminal.ended().stderr.splitlines()
    assert heading.split() == ["RUN", "STATE", "SKILL", "ENGINE", "AGE"]
    assert run.startswith("? ")
    assert run.endswith("…")
    assert len(run) == 60
