"""`SKILL.md`: its front matter, by the rules of the Agent Skills format, and the instructions after it.

Only a small, safe part of YAML is accepted: strings, lists and maps, without aliases and tags, limited in size and depth.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from typing import Any

import yaml

from askback.skills.diagnostics import Problem, error, errors_of, short, unknown_name, warning
from askback.text.json_text import is_encodable

FILE = "SKILL.md"
MAX_SKILL_BYTES = 1_000_000
MAX_FRONT_MATTER_BYTES = 64_000
MAX_YAML_DEPTH = 8
MAX_NAME = 64
MAX_DESCRIPTION = 1024
MAX_COMPATIBILITY = 500
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""What can be an ID, and so the name of a folder."""

_KNOWN = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
_CONSTANTS: dict[str, bool | None] = dict.fromkeys(("", "~", "null", "Null", "NULL"))
_CONSTANTS |= dict.fromkeys(("true", "True", "TRUE"), True) | dict.fromkeys(("false", "False", "FALSE"), False)
_INTEGER = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
Scalar = Callable[[yaml.Node], Any]
_FRAME = "begin the file with a line ---, then name: and description:, then another line ---"


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillText:
    """`name` and `description` are empty if they are missing or invalid."""

    name: str
    description: str
    body: str


def read_skill_text(content: bytes, folder_name: str) -> tuple[SkillText, tuple[Problem, ...]]:
    try:
        text, body = _split(content)
    except _Refused as refusal:
        return SkillText(name="", description="", body=""), (refusal.problem,)
    front, problems = _load(text)
    if not errors_of(problems):
        problems = (*problems, *_check(front, folder_name))
    if not body.strip():
        problems = (*problems, warning(FILE, "has no instructions", "write them after the front matter"))
    skill = SkillText(name=_text(front, "name"), description=_text(front, "description"), body=body)
    return skill, problems


def front_matter_as_json(content: bytes) -> dict[str, Any] | None:
    """The front matter as other programs read it: values without quotes have the types of YAML 1.2. None if invalid."""
    try:
        front, problems = _load(_split(content)[0], _typed)
    except _Refused:
        return None
    return None if errors_of(problems) else front


def _split(content: bytes) -> tuple[str, str]:
    """The front matter, and the instructions after it."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        raise _Refused(error(FILE, f"byte {fault.start} is not UTF-8", "save the file as UTF-8")) from None
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if lines[0].rstrip() != "---":
        raise _Refused(error(FILE, "has no front matter", _FRAME))
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        raise _Refused(error(FILE, "the front matter has no end", _FRAME))
    return "\n".join(lines[1:end]), "\n".join(lines[end + 1 :]).strip("\n")


def _text(front: Mapping[str, Any], key: str) -> str:
    value = front.get(key)
    return value.strip() if isinstance(value, str) else ""


# YAML.


class _Refused(Exception):
    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def _typed(node: yaml.Node) -> Any:
    """A scalar by the core schema of YAML 1.2. What JSON cannot express stays a string."""
    text = str(node.value)
    if not isinstance(node, yaml.ScalarNode) or node.style is not None:
        return text
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    with suppress(ValueError):
        if _INTEGER.fullmatch(text):
            return int(text)
        if _BASED.fullmatch(text):
            return int(text, 0)
        if _NUMBER.fullmatch(text) and isfinite(number := float(text)):
            return number
    return text


def _load(text: str, scalar: Scalar = lambda node: str(node.value)) -> tuple[dict[str, Any], tuple[Problem, ...]]:
    """Parse the front matter. By default every scalar is a string, as the format says."""
    if len(text.encode()) > MAX_FRONT_MATTER_BYTES:
        return {}, (error(FILE, "the front matter is larger than 64 kB", "move the text below it"),)
    try:
        _scan(text)
        node = yaml.compose(text, Loader=yaml.BaseLoader)
        value = _value(node, "", scalar) if node is not None else {}
    except _Refused as refusal:
        return {}, (refusal.problem,)
    except yaml.YAMLError as fault:
        return {}, (_yaml_problem(fault),)
    # PyYAML does not catch Python's own errors about invalid characters and versions.
    except (ValueError, OverflowError):
        fix = "remove the invalid character, or the line %YAML"
        return {}, (error(FILE, "is not YAML: it has an invalid character or version", fix),)
    if not isinstance(value, dict):
        return {}, (error(FILE, "the front matter is not a list of `key: value` lines", _FRAME),)
    return value, ()


def _scan(text: str) -> None:
    """Refuse anything that could use much time or memory, before it is parsed."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.BaseLoader):
        line = f"{FILE}: line {event.start_mark.line + 2}" if event.start_mark else FILE
        if getattr(event, "anchor", None):
            raise _Refused(error(line, "aliases (&, *) are not allowed", "write it out, or put the text in quotes"))
        if getattr(event, "tag", None):
            raise _Refused(error(line, "tags (!) are not allowed", "remove it, or put the text in quotes"))
        if not is_encodable(getattr(event, "value", "")):
            raise _Refused(error(line, "has a lone surrogate, which is not a character", "write the character itself"))
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_YAML_DEPTH:
            raise _Refused(error(line, f"is nested deeper than {MAX_YAML_DEPTH} levels", "make it flatter"))


def _value(node: yaml.Node, path: str, scalar: Scalar) -> Any:
    if isinstance(node, yaml.MappingNode):
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                line = f"{FILE}: line {key_node.start_mark.line + 2}"
                raise _Refused(error(line, "a key is not a string", "write `key: value`"))
            key = str(key_node.value)
            inner = f"{path}.{key}" if path else key
            if key in result:
                message = f"occurs twice (line {key_node.start_mark.line + 2})"
                raise _Refused(error(f"{FILE}: {inner}", message, "keep one of the two"))
            result[key] = _value(value_node, inner, scalar)
        return result
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, path, scalar) for item in node.value]
    return scalar(node)


def _yaml_problem(fault: yaml.YAMLError) -> Problem:
    mark = getattr(fault, "problem_mark", None)
    where = f"{FILE}: line {mark.line + 2}" if mark is not None else FILE
    what = getattr(fault, "problem", None) or getattr(fault, "reason", None) or "cannot be read"
    fix = "quote a text that contains `: `, `#` or quotes" if mark is not None else "remove the invalid character"
    return error(where, f"is not YAML: {what}", fix)


# The rules of the format.


def _check(front: Mapping[str, Any], folder_name: str) -> tuple[Problem, ...]:
    problems = [*_name_problems(front, folder_name), *_description_problems(front)]
    problems += [*_optional_problems(front), *_metadata_problems(front.get("metadata"))]
    for key in front:
        if key not in _KNOWN:
            problems.append(warning(f"{FILE}: {short(key, quoted=False)}", unknown_name(key, _KNOWN)))
    return tuple(problems)


def _name_problems(front: Mapping[str, Any], folder_name: str) -> list[Problem]:
    where = f"{FILE}: name"
    name = front.get("name")
    suggestion = re.sub(r"[^a-z0-9]+", "-", folder_name.lower()).strip("-")[:MAX_NAME].strip("-") or "my-skill"
    rule = f"use 1 to {MAX_NAME} lowercase letters, digits and single hyphens, such as {suggestion}"
    if name is None:
        return [error(where, "is missing", rule)]
    if not isinstance(name, str):
        return [error(where, "is not a string", rule)]
    if not ID.fullmatch(name):
        return [error(where, f"{short(name)} is not a valid name", rule)]
    if not NAME.fullmatch(name):
        return [warning(where, f"{short(name)} is a name that other programs may refuse", rule)]
    if folder_name and name != folder_name:
        return [warning(where, f"differs from the folder's name {short(folder_name)}", "give both the same name")]
    return []


def _description_problems(front: Mapping[str, Any]) -> list[Problem]:
    where = f"{FILE}: description"
    rule = f"say in 1 to {MAX_DESCRIPTION} characters what the skill does and when to use it"
    if "description" not in front:
        return [error(where, "is missing", rule)]
    description = front["description"]
    if not isinstance(description, str):
        return [error(where, "is not a string", rule)]
    if not description.strip():
        return [error(where, "is empty", rule)]
    if len(description) > MAX_DESCRIPTION:
        return [warning(where, f"has {len(description)} characters; other programs may cut or refuse it", rule)]
    return []


def _optional_problems(front: Mapping[str, Any]) -> list[Problem]:
    problems = [
        error(f"{FILE}: {key}", "is not a string", "write a string")
        for key in ("license", "compatibility")
        if not isinstance(front.get(key, ""), str)
    ]
    if not isinstance(front.get("allowed-tools", ""), str):
        fix = "write the names in one line, separated by spaces"
        problems.append(warning(f"{FILE}: allowed-tools", "is not a string", fix))
    compatibility = front.get("compatibility")
    if isinstance(compatibility, str) and not 1 <= len(compatibility) <= MAX_COMPATIBILITY:
        message = f"has {len(compatibility)} characters"
        problems.append(warning(f"{FILE}: compatibility", message, f"use 1 to {MAX_COMPATIBILITY}, or leave it out"))
    return problems


def _metadata_problems(metadata: Any) -> list[Problem]:
    where = f"{FILE}: metadata"
    if metadata is None:
        return []
    if not isinstance(metadata, dict):
        return [error(where, "is not a map", "write lines `key: value` below it, indented")]
    return [
        warning(f"{where}.{short(key, quoted=False)}", "is not a string", "give each key a string")
        for key, value in metadata.items()
        if not isinstance(value, str)
    ]
