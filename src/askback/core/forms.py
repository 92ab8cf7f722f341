"""Several questions in one ask: the fields of a form, the schemas of their answers, and which answers are secret. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from askback.core.secrecy import Secrecy

FORM = "form"
"""The kind of an interaction with several questions."""
MAX_FORM_FIELDS = 20

_ID = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_FLAGS = {"yes": True, "true": True, "no": False, "false": False}
_TYPES: Mapping[str, str] = {"confirm": "boolean", "boolean": "boolean", "number": "number", "integer": "integer"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """One question of a form. Its answer is the property `id` of the form's answer."""

    id: str
    prompt: str
    kind: str = "text"
    options: tuple[Any, ...] = ()
    default: Any = None
    required: bool = True
    response_schema: dict[str, Any] | None = None
    """What the engine asked for; in an interaction, the whole schema of the answer."""
    context: Any = None

    @property
    def secret(self) -> bool:
        """Whether its answer, or a part of it, must not be shown."""
        return secrecy(self.kind, self.response_schema).any


def option_label(option: Any) -> str:
    if isinstance(option, Mapping):
        return str(option.get("label", option.get("value", "")))
    return str(option)


def option_value(option: Any) -> Any:
    if isinstance(option, Mapping):
        return option.get("value", option.get("label"))
    return option


def heading(prompt: str, questions: Sequence[Any]) -> str:
    """A question for one line, such as that of a list: a form says how many questions it has."""
    return f"{prompt} ({len(questions)} questions)" if len(questions) > 1 else prompt


# The form as it is asked.


def complete(fields: Sequence[FormField]) -> tuple[FormField, ...]:
    """The fields with unique ids, and with the schemas of their answers."""
    taken: set[str] = set()
    completed = []
    for number, field in enumerate(fields, 1):
        name = field.id if _ID.fullmatch(field.id) else f"question-{number}"
        while name in taken:
            name += "x"
        taken.add(name)
        schema = _schema(field)
        default = _default(field, schema)
        if default is not None:
            schema["default"] = default
        completed.append(replace(field, id=name, default=default, response_schema=schema))
    return tuple(completed)


def form_schema(fields: Sequence[FormField]) -> dict[str, Any]:
    """The schema of a form's answer. The fields are complete."""
    return {
        "type": "object",
        "properties": {field.id: field.response_schema for field in fields},
        "required": [field.id for field in fields if field.required],
        "additionalProperties": False,
    }


def form_default(fields: Sequence[FormField]) -> dict[str, Any] | None:
    """The answer if nobody answers; None unless every required field has a default."""
    known = {field.id: field.default for field in fields if field.default is not None}
    return known if known and all(field.id in known for field in fields if field.required) else None


def _schema(field: FormField) -> dict[str, Any]:
    shown: dict[str, Any] = {"title": field.prompt}
    if isinstance(field.context, str):
        shown["description"] = field.context
    schema = {**(field.response_schema or _by_kind(field)), **shown}
    if field.secret:
        schema |= {"writeOnly": True, **({"format": "password"} if schema.get("type") == "string" else {})}
    return schema


def _by_kind(field: FormField) -> dict[str, Any]:
    if field.options:
        return _choice(field.options)
    kind = _TYPES.get(field.kind, "string")
    return {"type": kind, "minLength": 1} if kind == "string" and field.required else {"type": kind}


def _choice(options: Sequence[Any]) -> dict[str, Any]:
    """Each value once: in a `oneOf`, a value that is there twice would match nothing."""
    offered = {json.dumps(option_value(option)): option for option in reversed(options)}
    kept = list(reversed(offered.values()))
    values = [option_value(option) for option in kept]
    typed: dict[str, Any] = {"type": "string"} if all(isinstance(value, str) for value in values) else {}
    if not any(isinstance(option, Mapping) for option in kept):
        return {**typed, "enum": values}
    return {**typed, "oneOf": [_titled(option) for option in kept]}


def _titled(option: Any) -> dict[str, Any]:
    titled = {"const": option_value(option), "title": option_label(option)}
    about = option.get("description") if isinstance(option, Mapping) else None
    return {**titled, "description": str(about)} if about else titled


def _default(field: FormField, schema: Mapping[str, Any]) -> Any:
    """The default as a value that the field takes; None if it is none."""
    given = field.default
    if field.options and field.response_schema is None:
        named = (option_value(option) for option in field.options)
        by_label = (option_value(option) for option in field.options if option_label(option) == given)
        return next((value for value in (*named,) if _same(value, given)), next(by_label, None))
    match schema.get("type"):
        case "boolean":
            return given if isinstance(given, bool) else _FLAGS.get(str(given).lower())
        case "integer" | "number":
            return given if isinstance(given, int | float) and not isinstance(given, bool) else None
        case "array":
            return given if isinstance(given, list) else None
        case _:
            return given if isinstance(given, str) and given else None


def _same(one: Any, other: Any) -> bool:
    """As JSON: in Python, true equals 1."""
    return json.dumps(one) == json.dumps(other)


# Secret answers.


def secrecy(kind: str, schema: Mapping[str, Any] | None) -> Secrecy:
    """What must not be shown of an answer: by the question's kind, or by its schema."""
    return Secrecy(whole=True) if kind == "secret" else Secrecy.by(schema)
