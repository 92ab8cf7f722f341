"""What is found in an assistant's messages: marker, output, question. The contract's order is read by `conclude`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from askback.core.errors import ErrorCode, WarningCode
from askback.core.interactions import Json
from askback.core.outcomes import AskUser, Final, TurnError, TurnOutcome, conclude
from askback.core.runs import Mode, Validation
from askback.questions.reading import MARKER, read_answer
from askback.text.json_text import NotJson, loads

OUTPUT = {"colour": "red"}
ASK = {"ask_user": {"interaction_id": "q1", "prompt": "Which colour?"}}


def check(value: Json) -> tuple[str, ...]:
    """A schema: an object with a text `colour` and nothing else."""
    if not isinstance(value, dict) or not isinstance(value.get("colour"), str):
        return ("output.colour: a text is needed",)
    return () if set(value) == {"colour"} else ("output: more than a colour",)


def fenced(value: Json, language: str = "json") -> str:
    return f"```{language}\n{json.dumps(value, indent=2)}\n```"


def outcome(
    *messages: str, mode: Mode = Mode.INTERACTIVE, validation: Validation = Validation.LENIENT, schema: bool = True
) -> TurnOutcome:
    answer = read_answer(messages, check if schema else None, whole_turn=mode is Mode.AUTO)
    return conclude(answer, mode=mode, validation=validation, has_schema=schema)


# The marker.

SAID = {
    "alone": MARKER,
    "at the end of the text": f"All done. {MARKER}",
    "on a line of its own": f"Done.\n\n{MARKER}\n",
    "before a full stop": f"Finished {MARKER}.",
    "glued to a full stop": f"Finished.{MARKER}",
    "glued to Chinese": f"完成{MARKER}",
    "in bold": f"Done.\n**{MARKER}**",
    "in a comment": f"Done.\n<!--{MARKER}-->",
    "in backticks on a line of its own": f"Done.\n`{MARKER}`",
    "in backticks after a sentence": f"All is written. `{MARKER}`",
    "in quotes and nothing else": f'"{MARKER}"',
    "in a fenced block": f"```\n{MARKER}\n```",
    "as a key": json.dumps({MARKER: True}),
    "as a key of a fenced object": fenced({"a": 1, MARKER: True}),
    "as a key of an object that is not quite JSON": f'{{"a": 1, "{MARKER}" : true,}}',
    "as a word in a text of the output": json.dumps({"note": f"done {MARKER}"}),
    "after a line break in a text of the output": json.dumps({"note": f"done\n{MARKER}"}),
}
NOT_SAID = {
    "absent": "All done.",
    "within a longer word": f"MY{MARKER} and {MARKER}2 and _{MARKER}",
    "in another case": MARKER.lower(),
    "as a key set to false": json.dumps({MARKER: False}),
    "as a key set to a text": json.dumps({MARKER: "true"}),
    "as a key set to one": json.dumps({MARKER: 1}),
    "as a value": json.dumps({"marker": MARKER}),
    "quoted in a sentence": f'At the end I will say "{MARKER}", not now.',
    "in backticks in a sentence": f"When I am done, I write `{MARKER}` at the end.",
    "as an escaped key in a text": json.dumps({"note": json.dumps({MARKER: True})}),
    "within a question": json.dumps({"ask_user": {"interaction_id": "q", "prompt": f"Shall I say {MARKER} now?"}}),
    "beside a question, in its object": json.dumps({**ASK, MARKER: True}),
    "within a YAML question": f"<ASK_USER_YAML>\nprompt: Shall I say {MARKER} now?\n</ASK_USER_YAML>",
}


@pytest.mark.contract("C-8")
@pytest.mark.parametrize("how", SAID)
def test_the_marker_counts(how: str) -> None:
    assert read_answer([SAID[how]], check).done


@pytest.mark.contract("C-8")
@pytest.mark.parametrize("how", NOT_SAID)
def test_the_marker_does_not_count(how: str) -> None:
    assert not read_answer([NOT_SAID[how]], check).done


@pytest.mark.contract("C-8")
@pytest.mark.parametrize(
    "message",
    [
        json.dumps({**OUTPUT, MARKER: True}),
        json.dumps({**OUTPUT, MARKER: False}),
        fenced({**OUTPUT, MARKER: True}),
        f"{json.dumps(OUTPUT)}\n{MARKER}",
        f"{MARKER}\n{fenced(OUTPUT)}",
        f"```json\n{json.dumps(OUTPUT)}\n{MARKER}\n```",
        f"Here: {json.dumps(OUTPUT)} {MARKER}",
        f"{fenced(OUTPUT)}\n{json.dumps({MARKER: True})}",
        json.dumps(OUTPUT) + MARKER,
    ],
)
def test_the_marker_is_taken_out_of_the_output_before_it_is_checked(message: str) -> None:
    answer = read_answer([message], check)
    assert (answer.output, answer.output_problems) == (OUTPUT, ())


@pytest.mark.contract("C-8")
def test_the_marker_is_cut_out_of_texts() -> None:
    assert read_answer([f"It is red.\n\n{MARKER}"], None).output == "It is red."
    assert read_answer([f"It is {MARKER} red."], None).output == "It is  red."
    assert read_answer([json.dumps({"a": {"b": [{MARKER: True, "c": f"x {MARKER}"}]}})], None).output == {
        "a": {"b": [{"c": "x "}]}
    }


def test_a_marker_in_any_message_of_the_turn_counts() -> None:
    answer = read_answer([f"{fenced(OUTPUT)}\n{MARKER}", "Tell me if you need anything else."], check)
    assert answer.done
    assert answer.output == OUTPUT


# The output.


@pytest.mark.parametrize(
    "message",
    [
        json.dumps(OUTPUT),
        f"  \n{json.dumps(OUTPUT, indent=4)}\n ",
        fenced(OUTPUT),
        fenced(OUTPUT, language=""),
        fenced(OUTPUT, language="JSON"),
        fenced(OUTPUT).replace("\n", "\r\n"),
        f"- here it is:\n  ```json\n  {json.dumps(OUTPUT)}\n  ```",
        f"~~~\n{json.dumps(OUTPUT)}\n~~~",
        f"The result is {json.dumps(OUTPUT)}, as you wanted.",
        f"if (x) {{ y }} then {json.dumps(OUTPUT)}",
        f"```python\nx = {{'a': 1}}\n```\nand {json.dumps(OUTPUT)}",
        f"```json\n{json.dumps(OUTPUT)}",
        f'{{"broken": {json.dumps(OUTPUT)}',
        f"{fenced({'colour': 1})}\nNo, rather:\n{fenced(OUTPUT)}",
        f"{fenced({'x': 1})} or {json.dumps(OUTPUT)}",
        '{"colour": "\\u0072ed"}',
    ],
)
def test_an_output_is_found_wherever_it_stands(message: str) -> None:
    answer = read_answer([message], check)
    assert (answer.output, answer.output_problems) == (OUTPUT, ())


def test_the_last_output_that_passes_is_taken() -> None:
    first, last = fenced({"colour": "red"}), fenced({"colour": "blue"})
    assert read_answer([f"{first}\n{last}"], check).output == {"colour": "blue"}
    assert read_answer(['{"colour": "red"} {"colour": "blue"}'], check).output == {"colour": "blue"}
    assert read_answer([first, last, MARKER], check).output == {"colour": "blue"}


def test_problems_of_the_likeliest_output_are_told_when_none_passes() -> None:
    answer = read_answer([fenced({"x": 1}), f"{fenced({'colour': 'red', 'y': 2})}\n{MARKER}"], check)
    assert answer.output == {"colour": "red", "y": 2}
    assert answer.output_problems == ("output: more than a colour",)


def test_an_object_that_carries_the_marker_is_the_output_and_no_other() -> None:
    draft, result = fenced(OUTPUT), fenced({"colour": 3, MARKER: True})
    answer = read_answer([draft, f"{draft}\n{result}"], check)
    assert answer.output == {"colour": 3}
    assert answer.output_problems


def test_nothing_like_an_output_is_told_apart_from_one_that_fails() -> None:
    assert read_answer(["Which colour?"], check).output_problems is None
    assert read_answer([], check).output_problems is None
    assert read_answer([fenced({})], check).output_problems == ("output.colour: a text is needed",)


@pytest.mark.parametrize("text", ["See [1] and [2].", "- [ ] todo\n- [x] done", "[link](http://x)", "Use {braces}."])
def test_what_only_looks_like_json_is_no_output(text: str) -> None:
    assert read_answer([text], lambda value: ()).output_problems is None


def test_an_array_on_its_own_line_is_an_output() -> None:
    assert read_answer(["The list:\n[1, 2]\nThat is all."], lambda value: ()).output == [1, 2]


@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1" * 5000], ids=lambda number: number[:9]
)
def test_numbers_that_are_not_json_are_no_output(number: str) -> None:
    for text in (number, f'{{"colour": {number}}}', f'```json\n{{"colour": {number}}}\n```'):
        assert read_answer([text], lambda value: ()).output_problems is None


def test_an_answer_can_always_be_written_as_utf_8() -> None:
    lone = '{"colour": "\\ud800x", "\\udfff": 1}'
    answer = read_answer([lone, f"text \ud800 {MARKER}", lone], lambda value: ())
    json.dumps([answer.output, answer.message], ensure_ascii=False).encode()
    question = read_answer(['{"ask_user": {"interaction_id": "\\ud800", "prompt": "\\ud800?"}}'], None).question
    assert question is not None
    question.prompt.encode()


def test_only_the_last_message_may_complete_softly() -> None:
    messages = [f"A draft: {fenced(OUTPUT)}", "Do you like it?"]
    assert read_answer(messages, check).output_problems is None
    assert read_answer(messages, check, whole_turn=True).output == OUTPUT
    assert read_answer([*messages[:1], "\n  "], check).output == OUTPUT


def test_without_a_schema_the_output_is_the_json_or_the_text() -> None:
    assert read_answer([f"{json.dumps(OUTPUT)}\n{MARKER}"], None).output == OUTPUT
    assert read_answer([f"Here:\n{fenced([1, 2])}\n{MARKER}"], None).output == [1, 2]
    assert (
        read_answer([f"I made {json.dumps(OUTPUT)} of it. {MARKER}"], None).output
        == f"I made {json.dumps(OUTPUT)} of it."
    )
    assert read_answer(["The text.", MARKER], None).output == "The text."
    assert read_answer(["The text.", json.dumps({MARKER: True})], None).output == "The text."
    assert read_answer([], None).output is None


def test_an_output_of_no_fields_may_be_the_marker_alone() -> None:
    accepts_objects = lambda value: () if isinstance(value, dict) else ("output: not an object",)  # noqa: E731
    assert read_answer([json.dumps({MARKER: True})], accepts_objects).output == {}
    assert read_answer([f"{json.dumps(OUTPUT)}", json.dumps({MARKER: True})], accepts_objects).output == OUTPUT


# Questions, and the order of the contract.


@pytest.mark.contract("T-7")
@pytest.mark.parametrize(
    "message",
    [
        json.dumps(ASK),
        fenced(ASK),
        fenced(ASK, language=""),
        f"I need to know: {json.dumps(ASK)} Thank you.",
        f"One thing first.\n\n{fenced(ASK)}",
        "<ASK_USER_YAML>\ninteraction_id: q1\nprompt: Which colour?\n</ASK_USER_YAML>",
        "<ASK_USER_YAML>\nask_user:\n  interaction_id: q1\n  prompt: Which colour?\n</ASK_USER_YAML>",
        "I ask with <ASK_USER_YAML>:\n<ASK_USER_YAML>\ninteraction_id: q1\nprompt: Which colour?\n</ASK_USER_YAML>",
        "Hm.\n<ASK_USER_YAML>\n```yaml\ninteraction_id: 'q1'\nprompt: >-\n  Which\n  colour?\n```\n</ASK_USER_YAML>\nBye",
    ],
)
def test_a_question_is_found_in_every_form(message: str) -> None:
    answer = read_answer([message], check)
    assert answer.question is not None
    assert (answer.question.interaction_id, answer.question.prompt) == ("q1", "Which colour?")
    assert answer.question_problems == ()
    assert isinstance(outcome(message), AskUser)


def test_the_last_question_counts() -> None:
    def ask(number: int) -> str:
        return json.dumps({"ask_user": {"interaction_id": f"q{number}", "prompt": "?"}})

    yaml = "<ASK_USER_YAML>\ninteraction_id: q9\nprompt: x\n</ASK_USER_YAML>"
    for messages, wanted in (
        ([ask(1), ask(2), "Hm."], "q2"),
        ([f"{yaml} {ask(3)}"], "q3"),
        ([f"{ask(3)} {yaml}"], "q9"),
    ):
        question = read_answer(messages, check).question
        assert question is not None
        assert question.interaction_id == wanted


def test_a_question_is_never_an_output() -> None:
    everything = read_answer([fenced({**ASK, **OUTPUT})], lambda value: ())
    assert everything.output_problems is None
    assert everything.question is not None
    assert read_answer([json.dumps(ASK)], None).output is None
    assert read_answer([f"I need to know: {json.dumps(ASK)}"], None).output is None
    whole_without_marker = f'{{"ask_user": {{"interaction_id": "q", "prompt": "?"}} {MARKER}}}'
    assert read_answer([whole_without_marker], lambda value: ()).output_problems is None


def test_an_output_with_an_empty_question_is_an_output() -> None:
    answer = read_answer([json.dumps({"ask_user": None, "a": 1})], lambda value: ())
    assert answer.question is None
    assert answer.output == {"ask_user": None, "a": 1}


@pytest.mark.contract("C-1")
def test_marker_and_passing_output_complete_before_a_question_is_read() -> None:
    result = outcome(f"{fenced(ASK)}\n{fenced({**OUTPUT, MARKER: True})}")
    assert result == Final(data=OUTPUT, done=True)


@pytest.mark.contract("C-2")
def test_a_question_is_read_before_a_failing_output() -> None:
    assert isinstance(outcome(f"{fenced({'x': 1})}\n{MARKER}\n{fenced(ASK)}"), AskUser)
    assert isinstance(outcome(fenced(OUTPUT), fenced(ASK)), AskUser)


@pytest.mark.contract("C-3")
def test_marker_and_failing_output_is_a_result_with_problems() -> None:
    result = outcome(fenced({"colour": 1, MARKER: True}))
    assert isinstance(result, Final)
    assert (result.done, result.problems) == (True, ("output.colour: a text is needed",))
    nothing = outcome(f"Ready. {MARKER}")
    assert isinstance(nothing, Final)
    assert nothing.problems == ("output: none was found",)


@pytest.mark.contract("C-4")
def test_a_passing_output_without_marker_completes_softly_only_with_a_schema() -> None:
    assert outcome(fenced(OUTPUT)) == Final(data=OUTPUT, done=False)
    assert isinstance(outcome(fenced(OUTPUT), schema=False), AskUser)
    assert outcome(fenced({**OUTPUT, MARKER: True}), schema=False) == Final(data=OUTPUT, done=True)


@pytest.mark.contract("C-5", "T-5")
def test_anything_else_waits_with_the_message_as_the_question() -> None:
    result = outcome("I have looked around.", "What do you think?")
    assert isinstance(result, AskUser)
    assert result.question.prompt == "What do you think?"
    assert result.warnings == ()


@pytest.mark.contract("C-7")
def test_an_auto_turn_is_read_as_a_whole_and_never_waits() -> None:
    assert outcome(fenced(OUTPUT), "That was it.", mode=Mode.AUTO) == Final(data=OUTPUT, done=False)
    asked = outcome(fenced(ASK), mode=Mode.AUTO)
    assert isinstance(asked, Final)
    assert asked.problems
    assert [warning.code for warning in asked.warnings] == [WarningCode.AUTO_RUN_ASKED]


@pytest.mark.contract("T-4", "T-5")
@pytest.mark.parametrize(
    ("payload", "prompt"),
    [
        ({"prompt": "Which?"}, "Which?"),
        ({"interaction_id": "q"}, "Before."),
        ({"interaction_id": "  ", "prompt": "Which?"}, "Which?"),
        ({"interaction_id": "q", "prompt": " "}, "Before."),
        ({"interaction_id": "q", "prompt": ["a"]}, "Before."),
        ({"interaction_id": {"a": 1}, "prompt": "Which?"}, "Which?"),
        ("Which?", "Which?"),
        ([1], "Before."),
        ({}, "Before."),
        (True, "Before."),
    ],
)
def test_a_malformed_question_waits_when_lenient_and_fails_when_strict(payload: Json, prompt: str) -> None:
    message = f"Before.\n\n{fenced({'ask_user': payload})}"
    lenient = outcome(message)
    assert isinstance(lenient, AskUser)
    assert lenient.question.prompt == prompt
    assert [warning.code for warning in lenient.warnings] == [WarningCode.ASK_USER_PAYLOAD_INVALID]
    strict = outcome(message, validation=Validation.STRICT)
    assert isinstance(strict, TurnError)
    assert strict.error.code is ErrorCode.ASK_USER_PAYLOAD_INVALID


@pytest.mark.contract("T-4", "T-5")
@pytest.mark.parametrize(
    "message",
    [
        '{"ask_user": {"interaction_id": "q", "prompt": "Which?",}}',
        '```json\n{\'ask_user\': {"prompt": "Which?"\n```',
        "<ASK_USER_YAML>\nprompt: [\n</ASK_USER_YAML>\nWhich?",
        "<ASK_USER_YAML>\nprompt: Which?",
        "<ASK_USER_YAML>\n- a\n</ASK_USER_YAML>\nWhich?",
        "<ASK_USER_YAML>\na: &x 1\nprompt: *x\n</ASK_USER_YAML>\nWhich?",
    ],
)
def test_a_question_that_cannot_be_read_is_a_malformed_question(message: str) -> None:
    lenient = outcome(message)
    assert isinstance(lenient, AskUser)
    assert "Which?" in lenient.question.prompt
    assert [warning.code for warning in lenient.warnings] == [WarningCode.ASK_USER_PAYLOAD_INVALID]
    assert isinstance(outcome(message, validation=Validation.STRICT), TurnError)


@pytest.mark.contract("T-1")
@given(st.lists(st.text(max_size=200), max_size=4), st.booleans(), st.sampled_from(Mode), st.sampled_from(Validation))
def test_every_turn_ends_as_final_ask_user_or_error(
    messages: list[str], schema: bool, mode: Mode, validation: Validation
) -> None:
    assert isinstance(outcome(*messages, mode=mode, validation=validation, schema=schema), Final | AskUser | TurnError)


# Hostile text.

_PIECES = st.sampled_from(
    [
        *"{}[]\":,\\`~<>\n\t #*_'",
        MARKER,
        f'"{MARKER}": true',
        '{"ask_user": ',
        '"interaction_id": "q", ',
        '"prompt": "?"',
        "<ASK_USER_YAML>",
        "</ASK_USER_YAML>",
        "```json\n",
        "\n```\n",
        '{"colour": "red"}',
        '{"colour": 1}',
        "\\n",
        "\\ud800",
        "\ud800",
        "NaN",
        "1e999",
        "true",
        "- ",
        "&a ",
        "*a",
        "!!python/object:os.system x",
        "colour",
    ]
)


@settings(max_examples=600)
@given(st.lists(st.lists(_PIECES | st.text(max_size=5), max_size=30).map("".join), max_size=3), st.booleans())
@example(['{"a":' * 3000], False)
@example(["[\n" * 3000], True)
def test_no_text_makes_it_raise_or_lie(messages: list[str], whole_turn: bool) -> None:
    answer = read_answer(messages, check, whole_turn=whole_turn)
    if answer.output_problems == ():
        assert check(answer.output) == ()
        assert "colour" in "".join(messages)
    if answer.done:
        assert any(MARKER in message for message in messages)
    if answer.question is not None:
        assert any("ask_user" in message or "ASK_USER" in message for message in messages)
        assert answer.question.prompt.strip()
    json.dumps([answer.output, answer.message], ensure_ascii=False, allow_nan=False).encode()


_LONG = 3_000_000
HOSTILE: dict[str, Callable[[], str]] = {
    "letters": lambda: "a " * 5_000_000,
    "open braces": lambda: "{" * _LONG,
    "open brackets": lambda: "[" * _LONG,
    "lines of brackets": lambda: "[\n" * (_LONG // 2),
    "nested objects": lambda: '{"a":' * (_LONG // 5),
    "quotes": lambda: '{"' * (_LONG // 2),
    "backslashes": lambda: '{"' + "\\" * _LONG,
    "objects": lambda: "{} " * (_LONG // 3),
    "almost objects": lambda: '{"a": b}\n' * (_LONG // 9),
    "fences": lambda: "```\n" * (_LONG // 4),
    "blocks": lambda: "```\n{}\n```\n" * (_LONG // 11),
    "markers": lambda: f"x{MARKER} " * (_LONG // 16),
    "quoted markers": lambda: f'"{MARKER}" ' * (_LONG // 17),
    "backticks": lambda: "." + "`" * _LONG + MARKER,
    "openings of a question": lambda: "<ASK_USER_YAML>\n" * (_LONG // 16),
    "closings of a question": lambda: "</ASK_USER_YAML>\n" * (_LONG // 17),
    "questions": lambda: "<ASK_USER_YAML>a</ASK_USER_YAML>" * (_LONG // 32),
    "keys of questions": lambda: '"ask_user": ' * (_LONG // 12),
    "a deep yaml": lambda: "<ASK_USER_YAML>" + "- " * 30_000 + "</ASK_USER_YAML>",
    "yaml brackets": lambda: "<ASK_USER_YAML>" + "[" * 60_000 + "</ASK_USER_YAML>",
    "digits": lambda: "1" * _LONG,
    "spaces": lambda: "{" + " " * _LONG,
    "a block in one line": lambda: '```{"a":"' + "b" * _LONG + '"}```',
    "spaces behind a fence": lambda: "```" + " " * _LONG + "`",
    "spaces before a word and the marker": lambda: " " * _LONG + f"x {MARKER}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_megabytes_of_anything_take_no_more_than_seconds(name: str) -> None:
    started = time.process_time()
    answer = read_answer([HOSTILE[name]()], lambda value: ("no",))
    assert time.process_time() - started < 5
    assert answer.output_problems != ()
    assert len(answer.message) < 70_000


@pytest.mark.parametrize("sign", ["", "-"])
def test_a_number_that_not_every_reader_takes_is_no_json(sign: str) -> None:
    for digits in (1, 1_000):
        number = sign + "7" * digits
        assert read_answer([f'{{"n": {number}, "{MARKER}": true}}'], None).output == {"n": int(number)}
    long = sign + "7" * 4_300
    answer = read_answer([f'{{"ask_user": {{"interaction_id": "a", "prompt": "b?", "default": {long}}}}}'], None)
    assert answer.question is not None
    assert (answer.question.prompt, answer.question.default) == ("b?", None)
    assert loads(f'["{long}"]') == [long]


@pytest.mark.parametrize("depth", [101, 100_000])
def test_deep_nesting_is_told_alike_whoever_finds_it(depth: int) -> None:
    with pytest.raises(NotJson, match=r"^it is nested deeper than 100 levels$"):
        loads("[" * depth + "]" * depth)


def test_deep_outputs_are_refused_and_flat_ones_are_not() -> None:
    def nested(depth: int) -> Any:
        value: Any = 1
        for _ in range(depth):
            value = [value]
        return value

    for depth, taken in ((50, True), (99, True), (101, False), (400, False)):
        found = read_answer([json.dumps(nested(depth))], lambda value: ()).output_problems == ()
        assert found is taken, depth
