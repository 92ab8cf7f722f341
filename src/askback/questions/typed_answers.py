"""What a typed line means as an answer, and what is wrong with it. Knows no terminal and no chat."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from askback.core.interactions import Interaction, Json, option_label, option_value
from askback.questions.view import Asked
from askback.skills.field_values import Choices, Schema, choices, has_numbers, in_words, kind_of, text_of, type_of
from askback.skills.validation import reply_problems, typed_value
from askback.text.formatting import one_line

FLAGS = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}
YES_OR_NO = {True: "yes", False: "no"}
"""The answers to a confirmation."""
SAY_YES_OR_NO = "answer y or n"
_NUMBERS = {"integer": "a whole number", "number": "a number"}
_DATE = "is not a date; write it as YYYY-MM-DD, such as 2026-03-01"
_MAX_SHOWN = 60
_MAX_DIGITS = 9


def read_answer(interaction: Interaction, line: str) -> Json:
    """An option by number, label or value; the default for an empty line; otherwise what the schema makes of the text."""
    text = line.strip("\r\n")
    word = text.strip()
    if is_confirmation(interaction):
        return confirmation(word if word else interaction.default) or text
    if not word and interaction.default is not None:
        return interaction.default
    for option in interaction.options:
        if word in (option_label(option), str(option_value(option))):
            return option_value(option)
    if word.isdecimal() and len(word) <= _MAX_DIGITS and 1 <= int(word) <= len(interaction.options):
        return option_value(interaction.options[int(word) - 1])
    return _structured(interaction, text)


def _structured(interaction: Interaction, text: str) -> Json:
    """Parse a scalar by its type; parse a JSON object if the schema is that of an object."""
    schema = interaction.response_schema
    if schema is None:
        return text
    if schema.get("type") != "object":
        return value_of(text, schema) if text.strip() else schema.get("default", text)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


def is_confirmation(interaction: Asked) -> bool:
    """Answered with the words yes or no. A question with a boolean schema is answered with true or false."""
    return interaction.kind == "confirm" and not interaction.options and interaction.response_schema is None


def refusal(interaction: Interaction, line: str) -> str | None:
    """Why a line cannot be meant as an answer."""
    word = line.strip()
    if is_confirmation(interaction):
        return SAY_YES_OR_NO if word and confirmation(word) is None else None
    names = [name for each in interaction.options for name in (option_label(each), str(option_value(each)))]
    is_number = word.isdecimal() and len(word) <= _MAX_DIGITS
    # Where options are numbers, another number is an answer in the user's own words.
    if not names or not is_number or any(name.isdecimal() for name in names):
        return None
    last = len(interaction.options)
    return (
        None
        if 1 <= int(word) <= last
        else f"there is no option {word}; choose {option_numbers(last)}, or answer in words"
    )


def option_numbers(last: int) -> str:
    """The numbers that options can be chosen by."""
    return "1" if last == 1 else f"1-{last}"


def answer_problems(interaction: Interaction, response: Json) -> tuple[str, ...]:
    """What is wrong with an answer, in words."""
    if is_confirmation(interaction):
        return () if response in YES_OR_NO.values() else (SAY_YES_OR_NO,)
    if isinstance(response, str) and (why_not := refusal(interaction, response)):
        return (why_not,)
    schema = interaction.response_schema
    if schema is None or interaction.options or schema.get("type") == "object":
        return tuple(in_words(problem, schema) for problem in reply_problems(interaction, response))
    return field_problems(response, schema)


def as_flag(value: Json) -> bool | None:
    return value if isinstance(value, bool) else FLAGS.get(str(value).strip().lower())


def confirmation(given: Json) -> str | None:
    """What was given to a confirmation, as its answer yes or no; None if it is neither."""
    flag = as_flag(given)
    return None if flag is None else YES_OR_NO[flag]


def value_of(line: str, field: Schema) -> Json:
    """Convert a line to the field's type. What cannot be converted stays text, and `field_problems` reports it."""
    word = line.strip()
    kind = type_of(field)
    if kind == "boolean":
        return FLAGS.get(word.lower(), word)
    offered = choices(field)
    if kind == "array" and not word.startswith("["):
        parts = [part.strip() for part in word.split(",") if part.strip()]
        if offered:
            chosen = [_chosen(part, offered) for part in parts]
            return [each for at, each in enumerate(chosen) if each not in chosen[:at]]
        return [typed_value(part, field.get("items")) for part in parts]
    return _chosen(word, offered) if offered else typed_value(line, field)


def _chosen(word: str, offered: Choices) -> Json:
    """A choice by value, title or number; the word itself if there is no such choice."""
    for value, title in (*((value, str(value)) for value, _ in offered), *offered):
        if word == title:
            return value
    if has_numbers(offered) and word.isdecimal() and len(word) < 9 and 1 <= int(word) <= len(offered):
        return offered[int(word) - 1][0]
    return word


def field_problems(value: Json, field: Schema) -> tuple[str, ...]:
    """What is wrong with the value, in words."""
    offered, kind = choices(field), type_of(field)
    if kind == "boolean" and not isinstance(value, bool):
        return (SAY_YES_OR_NO,)
    texts = {json.dumps(each) for each, _ in offered}
    wrong = [each for each in (value if isinstance(value, list) else [value]) if json.dumps(each) not in texts]
    if offered and wrong:
        shown = ", ".join(one_line(text_of(each), _MAX_SHOWN) for each in wrong)
        verb = "is" if len(wrong) == 1 else "are"
        return (f"{shown} {verb} not offered; choose from: {kind_of(field)}",)
    if kind in _NUMBERS and isinstance(value, str):
        return (f"{one_line(value, _MAX_SHOWN)} is not {_NUMBERS[kind]}",)
    alone = Interaction(
        interaction_id="", kind="", prompt="", attempt_number=1, asked_at=datetime.now(UTC), response_schema=dict(field)
    )
    problems = reply_problems(alone, value)
    if problems and isinstance(value, str) and field.get("format") == "date":
        return (f"{one_line(value, _MAX_SHOWN)} {_DATE}",)
    return tuple(in_words(problem) for problem in problems)
