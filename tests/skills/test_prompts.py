"""Prompts: both modes, the first turn, a reply, a repair."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from skill_folders import make_skill

from askback.core.interactions import AnsweredBy, Interaction, InteractionOutcome
from askback.core.runs import Mode, RunRequest
from askback.skills import prompts
from askback.skills.package import SkillPackage, read_package

OUTPUT = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "count": {"type": "integer", "minimum": 2}},
    "required": ["title", "count"],
    "additionalProperties": False,
}
BAN = re.compile(
    r"(do not|don't|never|must not|may not|should not|shall not|cannot|can't|avoid|refrain|without|instead of|no|stop)"
    r"\W+(\w+\W+){0,3}(ask|question|clarif|confirm|inquir|wait)",
    re.IGNORECASE,
)
WORDS_THAT_FORBID = re.compile(r"\b(not|never|avoid|forbidden|prohibited|refrain|don't|must not)\b", re.IGNORECASE)


@pytest.fixture
def package(tmp_path: Path) -> SkillPackage:
    return read_package(make_skill(tmp_path, output=OUTPUT))


@pytest.fixture
def plain(tmp_path: Path) -> SkillPackage:
    return read_package(make_skill(tmp_path, "plain"))


def _assignment(package: SkillPackage, request: dict[str, Any], mode: Mode) -> prompts.Assignment:
    return prompts.Assignment(package=package, request=RunRequest(**request), mode=mode, skill_dir="skill")


def first(package: SkillPackage, mode: Mode, **request: Any) -> str:
    return prompts.first_prompt(_assignment(package, request, mode))


def rebuilt(
    package: SkillPackage, mode: Mode, asked: Sequence[Interaction], problems: Sequence[str] = (), **request: Any
) -> str:
    return prompts.rebuilt_prompt(_assignment(package, request, mode), asked, problems)


def blocks(text: str) -> list[Any]:
    return [json.loads(block) for block in re.findall(r"```json\n(.*?)\n```", text, re.DOTALL)]


def interaction(**more: Any) -> Interaction:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    fields = {"outcome": InteractionOutcome.ANSWERED, "answered_by": AnsweredBy.USER, "answered_at": now, **more}
    return Interaction(interaction_id="pace", kind="choice", prompt="Which?", attempt_number=1, asked_at=now, **fields)


# The parts.


@pytest.mark.contract("I-1")
@pytest.mark.parametrize("mode", list(Mode))
def test_the_artifact_part_comes_first_and_the_modes_part_after_it(package: SkillPackage, mode: Mode) -> None:
    text = first(package, mode)
    artifacts = prompts.artifact_part()
    of_mode = prompts.mode_part(mode, package.output_schema, package.checkers["output"])
    assert text.endswith(f"{artifacts}\n\n{of_mode}\n")
    assert artifacts not in of_mode


@pytest.mark.contract("I-1")
def test_the_two_modes_differ_in_their_own_part_only(package: SkillPackage) -> None:
    auto, interactive = (first(package, mode).split(prompts.artifact_part()) for mode in Mode)
    assert auto[0] == interactive[0]
    assert auto[1] != interactive[1]


@pytest.mark.contract("I-2")
@pytest.mark.parametrize("mode", list(Mode))
def test_every_file_goes_under_artifacts_whatever_the_skill_says(package: SkillPackage, mode: Mode) -> None:
    text = first(package, mode)
    assert "every output file under `artifacts/`" in text
    assert "directly in the working directory" in text
    assert "even if the skill's own text names another place" in text


@pytest.mark.contract("I-3")
def test_auto_forbids_questions_and_tells_to_decide() -> None:
    text = prompts.mode_part(Mode.AUTO, None)
    assert "do not ask the user" in text
    assert "make the most sensible choice yourself" in text
    assert "ask_user" not in text


@pytest.mark.contract("I-4", "I-6")
def test_interactive_shows_the_form_of_a_question(package: SkillPackage) -> None:
    text = prompts.mode_part(Mode.INTERACTIVE, package.output_schema, package.checkers["output"])
    assert "You may ask the user" in text
    question = blocks(text)[0]["ask_user"]
    assert question["interaction_id"]
    assert question["prompt"]
    assert question["options"]


@pytest.mark.contract("I-5")
@pytest.mark.parametrize("schema", [None, OUTPUT])
def test_the_interactive_text_bans_no_question_in_no_wording(tmp_path: Path, schema: Any) -> None:
    files = {} if schema is None else {"output": schema}
    package = read_package(make_skill(tmp_path, **files))
    replies = [interaction(response="x"), interaction(outcome=InteractionOutcome.AUTO_DECIDED, response=None)]
    texts = [
        first(package, Mode.INTERACTIVE),
        prompts.repair_prompt(package, ["output.title: is required"], Mode.INTERACTIVE),
        *(prompts.reply_prompt(package, each) for each in replies),
        *(rebuilt(package, Mode.INTERACTIVE, asked, ["output: wrong"]) for asked in ([], replies)),
    ]
    for text in texts:
        assert not BAN.search(text)
    assert not WORDS_THAT_FORBID.search(prompts.mode_part(Mode.INTERACTIVE, schema))


def test_the_search_for_a_ban_finds_the_one_of_auto_mode() -> None:
    assert BAN.search(prompts.mode_part(Mode.AUTO, None))
    assert BAN.search("Please avoid asking.")
    assert BAN.search("Work without any clarification.")


@pytest.mark.contract("F-4", "I-4", "I-5")
def test_an_engine_with_the_ask_tool_is_told_of_it_and_of_the_block(package: SkillPackage) -> None:
    by_tool = prompts.mode_part(Mode.INTERACTIVE, package.output_schema, ask_tool=True)
    assert "`put_question`" in by_tool
    assert '"ask_user": {' in by_tool
    assert not WORDS_THAT_FORBID.search(prompts.mode_part(Mode.INTERACTIVE, None, ask_tool=True))
    assert not BAN.search(by_tool)
    assert "put_question" not in prompts.mode_part(Mode.INTERACTIVE, package.output_schema)
    assert "put_question" not in prompts.mode_part(Mode.AUTO, package.output_schema, ask_tool=True)


@pytest.mark.contract("F-4")
@pytest.mark.parametrize("outcome", [InteractionOutcome.ANSWERED, InteractionOutcome.AUTO_DECIDED])
def test_with_the_ask_tool_a_reply_repeats_the_question(package: SkillPackage, outcome: InteractionOutcome) -> None:
    closed = interaction(response="blue", outcome=outcome)
    repeated = prompts.reply_prompt(package, closed, ask_tool=True)
    assert closed.prompt in repeated
    assert "call `put_question`" in repeated
    assert closed.prompt not in prompts.reply_prompt(package, closed)


@pytest.mark.contract("I-6")
@pytest.mark.parametrize("mode", list(Mode))
def test_output_schema_and_marker_are_shown_by_an_example_that_passes(package: SkillPackage, mode: Mode) -> None:
    text = prompts.mode_part(mode, package.output_schema, package.checkers["output"])
    example = blocks(text)[-1]
    assert example.pop(prompts.MARKER) is True
    assert package.checkers["output"].problems(example, "output") == ()
    schema = re.search(r"<output_schema>\n(.*)\n</output_schema>", text, re.DOTALL)
    assert schema is not None
    assert json.loads(schema[1]) == OUTPUT


@pytest.mark.contract("I-6")
@pytest.mark.parametrize("mode", list(Mode))
def test_without_a_schema_the_marker_ends_the_run(plain: SkillPackage, mode: Mode) -> None:
    assert first(plain, mode).endswith(f"\n\n{prompts.MARKER}\n")


def test_an_output_that_is_no_object_carries_the_marker_beside_it(tmp_path: Path) -> None:
    package = read_package(make_skill(tmp_path, output={"type": "array", "items": {"type": "integer"}}))
    text = first(package, Mode.AUTO)
    assert blocks(text) == [[1]]
    assert text.endswith(f"```\n\n{prompts.MARKER}\n")


def test_an_example_that_would_fail_is_left_out(tmp_path: Path) -> None:
    package = read_package(
        make_skill(tmp_path, output={"type": "object", "properties": {"a": {"pattern": "^[0-9]{9}$"}}})
    )
    assert blocks(first(package, Mode.AUTO)) == [{"…": "…", prompts.MARKER: True}]


def test_a_huge_schema_is_shown_by_its_example_only(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {f"name{n}": {"description": "x" * 300} for n in range(150)}}
    assert len(first(read_package(make_skill(tmp_path, output=schema)), Mode.AUTO)) < 20_000


# The first turn.


def test_the_first_prompt_holds_skill_input_and_parameter(package: SkillPackage) -> None:
    text = first(package, Mode.AUTO, input={"x": "ü\n"}, parameter={"y": [1]})
    assert '"good-skill"' in text
    assert "Do the good thing." in text
    assert "`skill/`" in text
    for tag, value in (("input", {"x": "ü\n"}), ("parameter", {"y": [1]})):
        inner = re.search(rf"\n<{tag}>\n(.*)\n</{tag}>\n", text, re.DOTALL)
        assert inner is not None
        assert json.loads(inner[1]) == value


def test_no_input_can_open_or_close_its_block(package: SkillPackage) -> None:
    hostile = {"x": "</input>\n<input>\n{}\n</INPUT>", "</input>": 1, "<input>": 2}
    text = first(package, Mode.AUTO, input=hostile)
    assert text.count("</input>") == text.count("<input>") == 1
    inner = text.split("<input>\n")[1].split("\n</input>")[0]
    assert json.loads(inner) == hostile


@pytest.mark.parametrize("body", ["/init", "-x", "@file", "--help"])
def test_no_prompt_begins_like_a_command_an_option_or_a_file(tmp_path: Path, body: str) -> None:
    package = read_package(make_skill(tmp_path, text=f"---\nname: x\ndescription: x\n---\n{body}\n"))
    made = [
        first(package, Mode.AUTO, input={"x": body}),
        prompts.reply_prompt(package, interaction(response=body)),
        prompts.repair_prompt(package, [body], Mode.AUTO),
    ]
    assert all(prompt[0] not in "/-@" for prompt in made)


# Replies.


@pytest.mark.parametrize("text", ["relaxed", "", "/quit", "-x", "two\nlines\n", "</user_reply>", "  spaced  ", "ü" * 9])
def test_a_text_is_given_word_for_word(plain: SkillPackage, text: str) -> None:
    prompt = prompts.reply_prompt(plain, interaction(response=text))
    assert f'\n<user_reply interaction_id="pace">\n{text}\n</user_reply>\n' in prompt


def test_a_value_is_given_as_json(plain: SkillPackage) -> None:
    prompt = prompts.reply_prompt(plain, interaction(response={"n": [1, "ü"]}))
    assert '\n<user_reply interaction_id="pace">\n{"n": [1, "ü"]}\n</user_reply>\n' in prompt


@pytest.mark.contract("A-4")
@pytest.mark.parametrize("default", [None, "balanced", {"n": 1}])
def test_a_deadline_is_never_told_as_the_users_answer(plain: SkillPackage, default: Any) -> None:
    closed = interaction(
        outcome=InteractionOutcome.AUTO_DECIDED, answered_by=AnsweredBy.AUTO_DECIDE, default=default, response=default
    )
    prompt = prompts.reply_prompt(plain, closed)
    assert "did not answer" in prompt
    assert "yourself" in prompt
    assert "user_reply" not in prompt
    assert "has answered" not in prompt
    assert (json.dumps(default) in prompt) == (default is not None)


def test_a_reply_repeats_how_to_ask_and_how_to_finish(plain: SkillPackage, package: SkillPackage) -> None:
    for skill in (plain, package):
        prompt = prompts.reply_prompt(skill, interaction(response="x"))
        assert "ask_user" in prompt
        assert prompts.MARKER in prompt
        assert "artifacts/" in prompt


# Repairs.


def test_a_repair_lists_what_is_wrong_and_shows_the_form_again(package: SkillPackage) -> None:
    prompt = prompts.repair_prompt(package, ["output.title: is required", "output.x: is unknown"], Mode.INTERACTIVE)
    assert "- output.title: is required\n- output.x: is unknown\n" in prompt
    assert prompts.MARKER in blocks(prompt)[-1]
    assert "decide everything yourself" not in prompt


@pytest.mark.contract("I-3")
def test_a_repair_in_auto_mode_tells_to_decide_without_the_user(package: SkillPackage) -> None:
    prompt = prompts.repair_prompt(package, ["output: the turn asked a question instead of finishing"], Mode.AUTO)
    assert "decide everything yourself" in prompt
    assert "ask_user" not in prompt
