"""Skills as slash commands: what is offered, and what a typed command means."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from askback.core.errors import Invalid, RefusalCode
from askback.skills.field_values import describe, takes_file
from askback.skills.front_matter import ID
from askback.skills.validation import typed_value
from askback.text.formatting import one_line

if TYPE_CHECKING:
    from askback.client import AsyncClient, Skill, SkillDetails

CANCEL = "cancel"
"""The command that cancels the session's run, unless a skill has this name."""
_COMMAND = re.compile(r"\s*/(\S+)\s*(.*)", re.DOTALL)
_MAX_DESCRIPTION = 200
_TEXT = "text"
"""The name of the input, if the skill does not say what it takes."""


class Command(NamedTuple):
    name: str
    rest: str


def read_command(text: str) -> Command | None:
    found = _COMMAND.fullmatch(text)
    return None if found is None else Command(name=found[1], rest=found[2].strip())


def is_skill_id(name: str) -> bool:
    """Whether a skill could have this name. The path of a file is none."""
    return ID.fullmatch(name) is not None


def runnable(skills: Sequence[Skill]) -> list[Skill]:
    return [skill for skill in skills if skill.problem is None]


def hint(skill: SkillDetails) -> str:
    """What to type after the command: `destination=… days=… [pace=…]`."""
    properties, required = _properties(skill), _required(skill)
    if not properties:
        return _TEXT
    words = (f"{name}=…" if name in required else f"[{name}=…]" for name in properties)
    return " ".join(words)


def about(skill: Skill) -> str:
    return one_line(skill.description or skill.name or skill.id, _MAX_DESCRIPTION)


def usage(skill: SkillDetails) -> str:
    """How to call the skill, with all its fields."""
    lines = [f"Use it like this: `/{skill.id} {hint(skill)}`, or give a JSON object: `/{skill.id} {{…}}`", ""]
    required = _required(skill)
    for name, field in _properties(skill).items():
        lines.append(f"- `{name}`{'' if name in required else ' (optional)'}: {describe(field)}")
    return "\n".join(lines)


def read_input(skill: SkillDetails, rest: str) -> dict[str, Any]:
    """The input of a run: a JSON object, `name=value` words, or one text for the only field that takes it."""
    properties = _properties(skill)
    if not rest:
        return {}
    if rest.startswith("{"):
        try:
            value: dict[str, Any] = json.loads(rest)
        except (ValueError, RecursionError) as error:
            raise Invalid(RefusalCode.INPUT_INVALID, f"the input is not valid JSON: {error}") from None
        return value
    if words := _pairs(rest, properties):
        return {name: typed_value(value, properties[name]) for name, value in words.items()}
    if not properties:
        return {_TEXT: rest}
    candidates = [name for name in properties if name in _required(skill)] or list(properties)
    if len(candidates) == 1:
        return {candidates[0]: typed_value(rest, properties[candidates[0]])}
    raise Invalid(RefusalCode.INPUT_INVALID, "the input cannot be read: it has several fields, each needs its name")


def _pairs(text: str, properties: Mapping[str, Any]) -> dict[str, str]:
    """`name=value` words; none unless each has the name of a field, once."""
    try:
        words = [word.partition("=") for word in shlex.split(text)]
    except ValueError:
        return {}
    found = {name: value for name, equals, value in words if equals and name in properties}
    return found if len(found) == len(words) else {}


def _properties(skill: SkillDetails) -> Mapping[str, Any]:
    schema = skill.schemas.input
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return properties if isinstance(properties, Mapping) else {}


def _required(skill: SkillDetails) -> Sequence[str]:
    schema = skill.schemas.input
    required = schema.get("required") if isinstance(schema, Mapping) else None
    return required if isinstance(required, list) else []


async def with_files(client: AsyncClient, skill: SkillDetails, given: dict[str, Any], cwd: str) -> dict[str, Any]:
    """The input with every file uploaded. A relative path is one in the folder of the session."""
    properties = _properties(skill)
    changed = dict(given)
    for name, value in given.items():
        field = properties.get(name)
        if isinstance(value, str) and isinstance(field, Mapping) and takes_file(field):
            changed[name] = (await client.upload(_existing(name, Path(cwd) / value))).reference
    return changed


def _existing(name: str, path: Path) -> Path:
    try:
        if path.is_file():
            return path
    except (OSError, ValueError):
        pass
    raise Invalid(RefusalCode.INPUT_INVALID, f"{name}: there is no file {one_line(str(path), _MAX_DESCRIPTION)}")
