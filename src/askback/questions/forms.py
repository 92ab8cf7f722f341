"""A question as a form of simple fields, for clients that show forms (MCP and ACP elicitation). Pure.

A question that does not fit is not asked by form; a secret and a file never are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from askback.core.interactions import Json
from askback.questions.typed_answers import YES_OR_NO, confirmation, is_confirmation
from askback.questions.view import Asked, fields_of, options_of
from askback.skills.field_values import Schema, descriptions, text_of, type_of
from askback.skills.field_values import choices as choices_of
from askback.text.formatting import cut, one_line

ANSWER = "answer"
"""The field of a form for a question that is not one itself."""
OWN_WORDS = "own_words"
_KEYWORDS = {
    "string": ("title", "description", "minLength", "maxLength", "default"),
    "integer": ("title", "description", "minimum", "maximum", "default"),
    "number": ("title", "description", "minimum", "maximum", "default"),
    "boolean": ("title", "description", "default"),
    "array": ("title", "description", "minItems", "maxItems", "items", "default"),
}
_FORMATS = frozenset({"email", "uri", "date", "date-time"})
_MAX_TITLE = 300
_MAX_ABOUT = 300
_MAX_DESCRIPTION = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    schema: dict[str, Any]
    whole: bool = False
    """Whether the answer is the content itself, and not its field `answer`."""
    values: Mapping[str, Mapping[str, Json]]
    """Of a field with choices: the value of each label."""
    confirms: bool = False

    def answer(self, content: Mapping[str, Any] | None) -> Json:
        """The answer in the content of an accepted form; None if there is none."""
        given = {name: self._value(name, each) for name, each in (content or {}).items() if each is not None}
        if self.whole:
            return given
        answer = given.get(OWN_WORDS) or given.get(ANSWER)
        return (confirmation(answer) or answer) if self.confirms and answer is not None else answer

    def _value(self, name: str, given: Json) -> Json:
        known = self.values.get(name, {})
        if isinstance(given, list):
            return [known.get(each, each) if isinstance(each, str) else each for each in given]
        return known.get(given, given) if isinstance(given, str) else given


def form_of(asked: Asked, *, rich: bool = False) -> Form | None:
    """The form for a question; None if it cannot be asked by form.

    `rich`: the client shows titles of choices, lists of choices, and a text beside a choice.
    """
    if asked.asks_secrets or asked.kind == "file":
        return None
    fields = {each.name: each.schema for each in fields_of(asked)}
    whole = bool(fields)
    if not whole:
        fields = {ANSWER: _single(asked, rich=rich)}
    choices = {
        name: {} if type_of(field) == "array" else {title: value for value, title in choices_of(field)}
        for name, field in fields.items()
    }
    shown = {name: _shown(field, choices[name], rich=rich, whole=whole) for name, field in fields.items()}
    properties = {name: each for name, each in shown.items() if each is not None}
    if len(properties) < len(fields):
        return None
    required = [each.name for each in fields_of(asked) if each.required] if whole else [ANSWER]
    if rich and asked.options and asked.response_schema is None:
        properties[OWN_WORDS], required = {"type": "string", "title": "Or answer in your own words"}, []
    return Form(
        schema={"type": "object", "properties": properties, "required": required},
        whole=whole,
        values={name: each for name, each in choices.items() if each},
        confirms=is_confirmation(asked),
    )


def _single(asked: Asked, *, rich: bool) -> Schema:
    """The field for a text, a choice or a schema of one value."""
    title = {"title": asked.prompt[:_MAX_TITLE]} if rich else {}
    default = {} if asked.default is None else {"default": asked.default}
    if asked.options:
        options = options_of(asked)
        chosen = [each.value for each in options if each.is_default]
        default = {"default": chosen[0]} if chosen else {}
        return {**title, "oneOf": [{"const": each.value, "title": each.name} for each in options], **default}
    if is_confirmation(asked):
        agreed = confirmation(asked.default)
        return {**title, "enum": list(YES_OR_NO.values()), **({} if agreed is None else {"default": agreed})}
    if asked.response_schema is not None:
        return {**title, **asked.response_schema, **default}
    return {**title, "type": "string", "minLength": 1, **default}


def _shown(field: Schema, choices: Mapping[str, Json], *, rich: bool, whole: bool) -> dict[str, Any] | None:
    """The field as every client reads it; None if it is not simple."""
    named = {key: field[key] for key in ("title", "description") if key in field}
    said = descriptions(field) if whole else {}
    # A plain list of labels cannot show what is said of each choice.
    lines = [f"{title}: {about}" for value, title in choices_of(field) if (about := said.get(text_of(value)))]
    if about := listed(lines):
        named["description"] = "\n".join(str(part) for part in (field.get("description"), about) if part)
    if choices:
        labels = list(choices)
        offered = {"oneOf": [{"const": label, "title": label} for label in labels]} if rich else {"enum": labels}
        default = [label for label, value in choices.items() if "default" in field and value == field["default"]]
        return {"type": "string", **named, **offered, **({"default": default[0]} if default else {})}
    kind = field.get("type")
    if not isinstance(kind, str) or kind not in _KEYWORDS or (kind == "array" and not (rich and choices_of(field))):
        return None
    shown = {"type": kind} | {key: field[key] for key in _KEYWORDS[kind] if key in field} | named
    return shown | ({"format": field["format"]} if field.get("format") in _FORMATS else {})


def listed(lines: Sequence[str]) -> str:
    return cut("\n".join(f"- {one_line(line, _MAX_ABOUT)}" for line in lines), _MAX_DESCRIPTION)
