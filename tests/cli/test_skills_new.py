"""`askback skills new`, and what `askback skills check` says about a script."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.data_folder import ASK, FINISH, World
from support.program import Terminal, askback, here


def test_a_new_skill_passes_the_check_and_asks_a_question(tmp_path: Path) -> None:
    world = World(tmp_path)
    made = askback(world, "skills", "new", "my-skill")
    assert made.code == 0
    assert "run ./my-skill --engine scripted --input topic=tea\n" in made.stdout
    checked = askback(world, "skills", "check", "my-skill", "--json")
    assert (checked.code, checked.json["ok"], checked.json["problems"]) == (0, True, [])
    with Terminal(world, "run", "./my-skill", "--engine", "scripted", stdout=tmp_path / "result") as terminal:
        terminal.expect("topic (What the note is about; text): ")
        terminal.enter("tea")
        terminal.expect("Your answer (1-2 or your own words, Enter for friendly): ")
        terminal.enter("2")
        ran = terminal.ended()
    assert (ran.code, json.loads(ran.stdout)["tone"]) == (0, "formal")
    given = ("--engine", "scripted", "--input", "topic=tea", "--mode", "auto", "--json")
    assert askback(world, "run", "./my-skill", *given).json["data"]["tone"] == "friendly"


def test_a_new_skill_as_json_names_its_files_and_the_next_steps(tmp_path: Path) -> None:
    world = World(tmp_path)
    made = askback(world, "skills", "new", "skills/release-notes", "--json").json
    folder = here(world) / "skills" / "release-notes"
    assert (made["id"], made["folder"]) == ("release-notes", str(folder))
    assert all((folder / name).is_file() for name in made["files"])
    assert "assets/scripted.json" in made["files"]
    assert len(made["next"]) == 3


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    world = World(tmp_path)
    (here(world) / "mine").mkdir()
    (here(world) / "taken").write_text("text")
    for name in ("mine", "taken"):
        refused = askback(world, "skills", "new", name)
        assert (refused.code, refused.stderr) == (
            2,
            f"askback: {name} already exists, and nothing is overwritten; choose another name\n",
        )
    assert list((here(world) / "mine").iterdir()) == []


@pytest.mark.parametrize("name", ["My-Skill", "a_b", "-a-", "x" * 65, ".."])
def test_a_name_that_no_skill_can_have_is_refused(tmp_path: Path, name: str) -> None:
    world = World(tmp_path)
    before = sorted(here(world).iterdir())
    refused = askback(world, "skills", "new", "--json", "--", name)
    assert (refused.code, refused.json["error"]["code"]) == (2, "SKILL_INVALID")
    assert sorted(here(world).iterdir()) == before


def problems(world: World, skill: str, exit_code: int = 0) -> list[str]:
    checked = askback(world, "skills", "check", skill, "--json")
    assert checked.code == exit_code
    return [f"{each['severity']}: {each['where']}: {each['message']}" for each in checked.json["problems"]]


def test_every_step_that_cannot_be_played_is_listed(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill({"auto": [{"sing": "x"}], "interactive": [{"play": "nothing"}]}, [{"misbehave": "politely"}])
    found = problems(world, skill, 2)
    assert [each.partition(" has ")[0].partition(" plays ")[0] for each in found] == [
        "error: assets/scripted.json: step 1 of turn 1 (auto):",
        "error: assets/scripted.json: step 1 of turn 1 (interactive):",
        "error: assets/scripted.json: step 1 of turn 2:",
    ]
    assert "can be run, but not by the engine 'scripted'" in askback(world, "skills", "check", skill).stdout


@pytest.mark.parametrize(
    ("turn", "warned"),
    [
        ({"interactive": [ASK]}, 'turn 1: has no steps for the mode "auto"'),
        ([{"ask": {"prompt": "Which?"}}], "ask: interaction_id: it is missing"),
        (
            [{"ask": {"interaction_id": "a", "prompt": "?", "optoins": []}}],
            "\"optoins\" is unknown; did you mean 'options'?",
        ),
        ([{"say": "{{input.cty}}"}], "{{input.cty}}: \"cty\" is unknown; did you mean 'city'?"),
        ([{"say": "{{inputs.city}}"}], "\"inputs\" is unknown; did you mean 'input'?"),
        ([{"say": "{{values.title}}"}], '"title" is unknown'),
        (
            [{"ask": {"interaction_id": "a", "prompt": "?", "response_schema": {"type": "object"}}}],
            "response_schema is ignored",
        ),
    ],
)
def test_what_would_be_played_badly_is_a_warning(tmp_path: Path, turn: Any, warned: str) -> None:
    world = World(tmp_path)
    inputs = {"type": "object", "properties": {"city": {"type": "string"}}}
    (found,) = problems(world, world.skill(turn, [FINISH], schemas={"input": inputs}))
    assert found.startswith("warning: assets/scripted.json: ")
    assert warned in found


def test_a_placeholder_with_a_default_is_no_problem(tmp_path: Path) -> None:
    world = World(tmp_path)
    turn = [{"say": "{{input.cty|Lisbon}} {{reply_json.date}} {{values.a}}"}]
    assert (
        problems(world, world.skill(turn, schemas={"input": {"type": "object", "properties": {"city": {}}}}))[1:] == []
    )


def test_an_unknown_engine_is_named_with_the_one_that_was_meant(tmp_path: Path) -> None:
    world = World(tmp_path)
    (found,) = problems(world, world.skill([FINISH], runner={"engines": ["codx"]}))
    assert "\"codx\" is unknown; did you mean 'codex'?" in found


def test_a_script_that_is_no_json_is_an_error(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([FINISH])
    Path(skill, "assets/scripted.json").write_text('{"turns": [')
    (found,) = problems(world, skill, 2)
    assert found.startswith("error: assets/scripted.json: is not JSON")


def test_a_run_with_a_broken_script_blames_the_script(tmp_path: Path) -> None:
    world = World(tmp_path)
    ran = askback(world, "run", world.skill([{"say": "{{input.nothing}}"}]), "--engine", "scripted", "--json")
    assert (ran.code, ran.json["error"]["code"]) == (1, "SCRIPT_INVALID")
    assert "{{input.nothing}}" in ran.json["error"]["detail"]
