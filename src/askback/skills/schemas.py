"""What a skill takes and gives: a request, a reply and an output, each checked before it counts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from askback.core.interactions import Interaction, Json, option_value
from askback.skills.diagnostics import MOST_UNKNOWN, unknown_name
from askback.skills.json_schema import Checker, SchemaInvalid, compile_schema
from askback.skills.package import SkillPackage, is_file_input
from askback.skills.schema_errors import short, spell, survey
from askback.text.json_text import refuse_constant

MAX_REPLY_BYTES = 1024 * 1024
MAX_RESPONSE_SCHEMA_WEIGHT = 64_000

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


# A request.


def check_request(
    package: SkillPackage, given: Json, parameter: Json, files: Collection[str] | None = None
) -> tuple[str, ...]:
    """Every mistake of a run's input and parameters, each by its path.

    `files` are the keys whose value is a file's path; without it, how a file is given is not looked at.
    """
    problems = [*_part_problems(package, "input", given), *_part_problems(package, "parameter", parameter)]
    if files is not None and isinstance(given, Mapping):
        problems += _file_problems(package, given, files)
    return tuple(problems)


def _part_problems(package: SkillPackage, key: str, value: Json) -> tuple[str, ...]:
    if not isinstance(value, Mapping):
        return (f"{key}: {short(value)} is not an object",)
    document = dict(value)
    checker = package.checkers.get(key)
    if checker is None:
        return survey(document, key).problems
    schema = package.input_schema if key == "input" else package.parameter_schema
    return (*_unknown_keys(schema, document, key), *checker.problems(document, key))


def _unknown_keys(schema: Mapping[str, Any] | None, document: Mapping[str, Json], root: str) -> list[str]:
    """Names that the schema does not list are a slip, unless it says itself what else there may be."""
    if schema is None or "properties" not in schema or any(word in schema for word in (*_OPENING, *_COMPOSING)):
        return []
    known = dict.fromkeys([*schema["properties"], *schema.get("required", ())])
    unknown = [name for name in document if name not in known]
    named = [f"{spell(root, [name])}: {unknown_name(str(name), known)}" for name in unknown[:MOST_UNKNOWN]]
    return (
        named if len(unknown) <= MOST_UNKNOWN else [*named, f"{root}: {len(unknown) - MOST_UNKNOWN} more are unknown"]
    )


def _file_problems(package: SkillPackage, given: Mapping[str, Json], files: Collection[str]) -> list[str]:
    wanted = file_inputs(package)
    return [
        *(
            f"{spell('input', [key])}: a file is wanted here; give it as KEY=@FILE, or as an upload"
            for key in given
            if key in wanted and key not in files
        ),
        *(
            f"{spell('input', [key])}: a file's key holds letters, digits, `-`, `_` and `.` only"
            for key in files
            if not _FILE_KEY.fullmatch(key)
        ),
    ]


def file_inputs(package: SkillPackage) -> frozenset[str]:
    """The input properties that are given as files."""
    names = (package.input_schema or {}).get("properties", {})
    return frozenset(name for name in names if is_file_input(package.input_schema, name))


# The texts of a command line.


def typed_value(text: str, schema: Mapping[str, Any] | bool | None) -> Json:
    """A text as the value that its schema wants; one that cannot be read stays a text, for the checker to name."""
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
        return text in schema["enum"] or not _reads_as_one_of(text, schema["enum"])
    for word in ("anyOf", "oneOf"):
        if isinstance(schema.get(word), list):
            return any(_takes_text(branch, text) for branch in schema[word])
    return True


def _reads_as_one_of(text: str, options: list[Json]) -> bool:
    try:
        return json.loads(text) in options
    except (ValueError, RecursionError):
        return False


# A reply.


def fits_reply(interaction: Interaction, response: Json) -> tuple[str, ...]:
    """What is wrong with an answer. An offered option always fits; any other answer is checked against the schema."""
    seen = survey(response, "response")
    if seen.problems:
        return seen.problems
    size = (
        len(response.encode()) if isinstance(response, str) else len(json.dumps(response, ensure_ascii=False).encode())
    )
    if size > MAX_REPLY_BYTES:
        return (f"response: is {size:,} bytes long; at most {MAX_REPLY_BYTES:,} are allowed",)
    if interaction.response_schema is None or _is_offered(interaction, response):
        return ()
    checker = _response_checker(interaction.response_schema)
    return () if checker is None else checker.problems(response, "response")


def _is_offered(interaction: Interaction, response: Json) -> bool:
    """Compared as JSON, where true is not 1."""
    wanted = json.dumps(response, sort_keys=True)
    offered = [option_value(option) for option in interaction.options if not survey(option, "").problems]
    return any(json.dumps(value, sort_keys=True) == wanted for value in offered)


def _response_checker(schema: dict[str, Json] | None) -> Checker | None:
    """None also for a schema that is itself no good: the user must always be able to answer an engine's question."""
    seen = survey(schema, "")
    if schema is None or seen.problems or seen.weight > MAX_RESPONSE_SCHEMA_WEIGHT or "$ref" in json.dumps(schema):
        return None
    try:
        return compile_schema(schema, "response_schema")
    except SchemaInvalid:
        return None


# An output.


def output_check(package: SkillPackage) -> Callable[[Json], tuple[str, ...]] | None:
    """How an output is checked; None for a skill that has no output schema."""
    checker = package.checkers.get("output")
    return None if checker is None else partial(checker.problems, root="output")
