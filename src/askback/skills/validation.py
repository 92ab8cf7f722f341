"""Validates what a run is given and what it produces: requests, replies and outputs. Errors are lines with a path."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from askback.core.errors import FieldCode, FieldProblem
from askback.core.interactions import Interaction, Json, option_value
from askback.core.runs import Mode
from askback.core.secrecy import Secrecy
from askback.skills.diagnostics import MAX_UNKNOWN, problem_at, short, unknown_name
from askback.skills.json_schema import Checker, SchemaInvalid, compile_schema, scan
from askback.skills.package import SkillPackage
from askback.skills.schema_files import is_file_input
from askback.text.json_text import refuse_constant

MAX_REPLY_BYTES = 1024 * 1024
MAX_RESPONSE_SCHEMA_WEIGHT = 64_000
_SECRET_INVALID = "does not match its schema; the value is secret and not repeated here"

_FILE_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_OPENING = (
    "patternProperties",
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "$ref",
    "$dynamicRef",
)
_COMPOSING = ("allOf", "anyOf", "oneOf", "if", "dependentSchemas")


# Requests.


def check_request(
    package: SkillPackage, given: Json, parameter: Json, files: Collection[str] | None = None
) -> tuple[FieldProblem, ...]:
    """All errors in a run's input and parameters.

    `files` are the input keys that are given as files. None: that is not checked.
    """
    problems = [*_part_problems(package, "input", given), *_part_problems(package, "parameter", parameter)]
    if files is not None and isinstance(given, Mapping):
        problems += _file_problems(package, given, files)
    return tuple(problems)


def _part_problems(package: SkillPackage, key: str, value: Json) -> tuple[FieldProblem, ...]:
    if not isinstance(value, Mapping):
        return (problem_at(key, (), f"{short(value)} is not an object"),)
    document = dict(value)
    checker = package.checkers.get(key)
    if checker is None:
        return scan(document, key).problems
    schema = package.input_schema if key == "input" else package.parameter_schema
    problems = _without_secrets(Secrecy.by(schema), key, checker.problems(document, key))
    return (*_unknown_keys(schema, document, key), *problems)


def _unknown_keys(schema: Mapping[str, Any] | None, document: Mapping[str, Json], root: str) -> list[FieldProblem]:
    """Names that the schema does not list are mistakes, unless it says which others are allowed."""
    if schema is None or "properties" not in schema or any(word in schema for word in (*_OPENING, *_COMPOSING)):
        return []
    known = dict.fromkeys([*schema["properties"], *schema.get("required", ())])
    unknown = [name for name in document if name not in known]
    problems = [
        problem_at(root, [name], unknown_name(str(name), known), FieldCode.UNKNOWN) for name in unknown[:MAX_UNKNOWN]
    ]
    if len(unknown) > MAX_UNKNOWN:
        problems.append(problem_at(root, (), f"{len(unknown) - MAX_UNKNOWN} more are unknown", FieldCode.UNKNOWN))
    return problems


def _file_problems(package: SkillPackage, given: Mapping[str, Json], files: Collection[str]) -> list[FieldProblem]:
    expected = file_inputs(package)
    missing = [key for key in given if key in expected and key not in files]
    invalid = [key for key in files if not _FILE_KEY.fullmatch(key)]
    return [
        *(problem_at("input", [key], "must be a file; give it as KEY=@FILE, or as an upload") for key in missing),
        *(
            problem_at("input", [key], "the key of a file has only letters, digits, `-`, `_` and `.`")
            for key in invalid
        ),
    ]


def file_inputs(package: SkillPackage) -> frozenset[str]:
    """The input properties that are given as files."""
    names = (package.input_schema or {}).get("properties", {})
    return frozenset(name for name in names if is_file_input(package.input_schema, name))


# Values from a command line.


def typed_value(text: str, schema: Mapping[str, Any] | bool | None) -> Json:
    """Parse a text as the type that its schema has. If that fails it stays a string, and validation reports it."""
    if schema is None or _takes_text(schema, text):
        return text
    try:
        return json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return text


def _takes_text(schema: Any, text: str) -> bool:
    if not isinstance(schema, Mapping):
        return True
    types = schema.get("type")
    if types is not None:
        return types == "string" or (isinstance(types, list) and "string" in types)
    if "const" in schema:
        return isinstance(schema["const"], str)
    if isinstance(schema.get("enum"), list):
        with suppress(ValueError, RecursionError):
            return text in schema["enum"] or json.loads(text) not in schema["enum"]
        return True
    for word in ("anyOf", "oneOf"):
        if isinstance(schema.get(word), list):
            return any(_takes_text(branch, text) for branch in schema[word])
    return True


# Replies.


def reply_problems(interaction: Interaction, response: Json) -> tuple[FieldProblem, ...]:
    """The errors in an answer. An offered option is always valid; the question's schema decides on the rest."""
    if problems := scan(response, "response").problems:
        return problems
    text = response if isinstance(response, str) else json.dumps(response, ensure_ascii=False)
    size = len(text.encode())
    if size > MAX_REPLY_BYTES:
        return (problem_at("response", (), f"is {size:,} bytes long; at most {MAX_REPLY_BYTES:,} are allowed"),)
    if interaction.response_schema is None or _is_offered(interaction, response):
        return ()
    if interaction.questions and not isinstance(response, Mapping):
        count = len(interaction.questions)
        return (problem_at("response", (), f"is not an object with the answers to the {count} questions by their ids"),)
    checker = _response_checker(interaction.response_schema)
    if checker is None:
        return ()
    return _without_secrets(interaction.secrecy, "response", checker.problems(response, "response"))


def _without_secrets(secrecy: Secrecy, root: str, problems: Sequence[FieldProblem]) -> tuple[FieldProblem, ...]:
    """Replace the messages that quote a secret value. A problem of the whole value quotes its secret fields, too."""

    def quotes_secret(path: Sequence[str | int]) -> bool:
        return bool(path) and (secrecy.whole or len(path) == 1 or path[1] in secrecy.fields)

    return tuple(
        problem_at(root, each.path[1:], _SECRET_INVALID)
        if secrecy.any and each.code is not FieldCode.REQUIRED and quotes_secret(each.path)
        else each
        for each in problems
    )


def _is_offered(interaction: Interaction, response: Json) -> bool:
    """Compared as JSON: in Python, true equals 1."""
    given = json.dumps(response, sort_keys=True)
    offered = [option_value(option) for option in interaction.options if not scan(option, "").problems]
    return any(json.dumps(value, sort_keys=True) == given for value in offered)


def _response_checker(schema: dict[str, Json] | None) -> Checker | None:
    """None also for an invalid schema: the user must always be able to answer an engine's question."""
    scanned = scan(schema, "")
    too_large = scanned.weight > MAX_RESPONSE_SCHEMA_WEIGHT
    if schema is None or scanned.problems or too_large or "$ref" in json.dumps(schema):
        return None
    try:
        return compile_schema(schema, "response_schema")
    except SchemaInvalid:
        return None


# Outputs.


def output_check(package: SkillPackage) -> Callable[[Json], tuple[str, ...]] | None:
    """Returns the errors in an output. None for a skill without an output schema."""
    checker = package.checkers.get("output")
    return None if checker is None else lambda output: tuple(map(str, checker.problems(output, root="output")))


def choose_mode(package: SkillPackage, wanted: str | None) -> tuple[Mode, tuple[FieldProblem, ...]]:
    if wanted is None:
        return package.execution_modes[0], ()
    allowed = ", ".join(package.execution_modes)
    if wanted not in package.execution_modes:
        return package.execution_modes[0], (
            problem_at("mode", (), f"{wanted!r} is not a mode of this skill; it has: {allowed}"),
        )
    return Mode(wanted), ()
