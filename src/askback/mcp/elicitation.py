"""How a question becomes the form of an MCP client, and the content of a form an answer. Pure.

A form has fields of simple types only. A question that does not fit is not asked by form; a secret never is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from askback.client import Refused
from askback.core.errors import RefusalCode
from askback.core.interactions import option_label, option_value
from askback.questions.typed_answers import YES_OR_NO, confirmation, is_confirmation
from askback.skills.field_values import readable
from askback.text.formatting import cut, one_line, printable
from askback.wire.questions import Interaction
from askback.wire.runs import Run

ANSWER = "answer"
"""The field of a form for a question that is not one itself."""
_KEPT = {
    "string": ("title", "description", "minLength", "maxLength", "default"),
    "integer": ("title", "description", "minimum", "maximum", "default"),
    "number": ("title", "description", "minimum", "maximum", "default"),
    "boolean": ("title", "description", "default"),
}
_FORMATS = frozenset({"email", "uri", "date", "date-time"})
_NOT_BY_FORM = frozenset({"file"})
_MAX_TITLE = 120
_MAX_CONTEXT = 2000
_MAX_DESCRIPTION = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What a client shows."""

    schema: dict[str, Any]
    whole: bool
    """Whether the answer is the content itself, and not its field `answer`."""
    values: Mapping[str, Mapping[str, Any]]
    """Of a field with options: the value of each label."""

    def answer(self, content: Mapping[str, Any] | None) -> Any:
        """The answer in the content of an accepted form; None if there is none."""
        if not content:
            return None
        given = {name: self._value(name, value) for name, value in content.items()}
        return given if self.whole else given.get(ANSWER)

    def _value(self, name: str, given: Any) -> Any:
        known = self.values.get(name, {})
        return known.get(given, given) if isinstance(given, str) else given


def form_of(asked: Interaction) -> Form | None:
    """The form for a question; None if it cannot be asked by form."""
    if asked.asks_secrets or asked.kind in _NOT_BY_FORM:
        return None
    schema = asked.response_schema
    whole = schema is not None and schema.get("type") == "object"
    fields = _fields(schema) if whole and schema is not None else {ANSWER: _bare(asked)}
    shown = {name: _shown(_with_descriptions(field) if whole else field) for name, field in fields.items()}
    if not shown or any(each is None for each in shown.values()):
        return None
    required = list((schema or {}).get("required", ())) if whole else [ANSWER]
    kept = {name: each for name, each in shown.items() if each is not None}
    values = {name: dict(_options(fields[name])) for name in fields if _options(fields[name])}
    document = {"type": "object", "properties": kept, "required": required}
    return Form(schema=document, whole=whole, values=values)


def message_of(run: Run, asked: Interaction) -> str:
    """What the user reads above the form, or before the page is opened: who asks, the question, and what it is about."""
    about = one_line(f"{run.skill} ({run.summary})" if run.summary else run.skill, _MAX_TITLE)
    context = cut(readable(asked.context).strip(), _MAX_CONTEXT) if asked.context else ""
    is_form = (asked.response_schema or {}).get("type") == "object"
    options = "" if is_form else _descriptions(_bare(asked))
    parts = (f"{about} asks:\n{asked.prompt.strip()}", context, options)
    return printable("\n\n".join(part for part in parts if part))


def _fields(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return dict(schema.get("properties") or {})


def _bare(asked: Interaction) -> Mapping[str, Any]:
    """The field for a text, a choice or a schema of one value."""
    if asked.response_schema is not None:
        return asked.response_schema
    if is_confirmation(asked):
        default = confirmation(asked.default)
        return {"enum": list(YES_OR_NO.values())} | ({} if default is None else {"default": default})
    if asked.options:
        field: dict[str, Any] = {"oneOf": [_titled(each) for each in asked.options]}
    else:
        field = {"type": "string", "minLength": 1}
    return field | ({} if asked.default is None else {"default": asked.default})


def _titled(option: Any) -> dict[str, Any]:
    about = option.get("description") if isinstance(option, Mapping) else None
    titled = {"const": option_value(option), "title": option_label(option)}
    return titled | ({"description": about} if about else {})


def _descriptions(field: Mapping[str, Any]) -> str:
    """The descriptions of options, which a plain list of labels cannot show. One line each."""
    offered = (each for each in field.get("oneOf", ()) if isinstance(each, Mapping) and each.get("description"))
    lines = (f"{each.get('title', each.get('const'))}: {each['description']}" for each in offered)
    return cut("\n".join(f"- {one_line(line, _MAX_DESCRIPTION)}" for line in lines), _MAX_CONTEXT)


def _with_descriptions(field: Mapping[str, Any]) -> Mapping[str, Any]:
    """A field of a form, whose description also has those of its options."""
    parts = (field.get("description"), _descriptions(field))
    known = "\n".join(str(part) for part in parts if part)
    return {**field, "description": known} if known else field


def _options(field: Mapping[str, Any]) -> Sequence[tuple[str, Any]]:
    """Labels and values of a field with options, each label once."""
    if "enum" in field:
        found = [(str(value), value) for value in field["enum"]]
    else:
        found = [
            (str(each.get("title", each["const"])), each["const"])
            for each in field.get("oneOf", ())
            if isinstance(each, Mapping) and "const" in each
        ]
    return list(dict(found).items())


def _shown(field: Mapping[str, Any]) -> dict[str, Any] | None:
    """The field as every client reads it; None if it is not simple."""
    if options := _options(field):
        default = next((label for label, value in options if value == field.get("default")), None)
        named = {key: field[key] for key in ("title", "description") if key in field}
        labels = [label for label, _ in options]
        return {"type": "string", **named, "enum": labels, **({} if default is None else {"default": default})}
    kind = field.get("type")
    if not isinstance(kind, str) or kind not in _KEPT:
        return None
    shown = {"type": kind} | {key: field[key] for key in _KEPT[kind] if key in field}
    return shown | ({"format": field["format"]} if field.get("format") in _FORMATS else {})


_STATUS = 422
"""That of the API for an answer that does not fit."""


def by_form(asked: Interaction, form: Form, content: dict[str, Any] | None) -> Any:
    """The answer in an accepted form; None if there is none. Raises `Refused` if it does not fit."""
    given = form.answer(content)
    if given is not None and asked.response_schema is None and _is_empty(asked, given):
        raise _invalid("the answer is empty")
    return None if given is None else _fitting(asked, given)


def by_tool(asked: Interaction, given: Any) -> Any:
    """The answer in the arguments of a tool: nothing stands for the default. Raises `Refused` if there is none."""
    if _is_empty(asked, given):
        given = _default(asked)
        if given is None:
            raise _invalid("the answer is empty, and the question has no default")
    elif isinstance(given, str):
        given = _as_asked(given, asked.response_schema)
    return _fitting(asked, given)


def _is_empty(asked: Interaction, given: Any) -> bool:
    """Nothing, unless it is offered as an option."""
    is_blank = given is None or (isinstance(given, str) and not given.strip())
    return is_blank and given not in [option_value(each) for each in asked.options]


def _default(asked: Interaction) -> Any:
    return asked.default if asked.default is not None else (asked.response_schema or {}).get("default")


def _as_asked(answer: str, schema: dict[str, Any] | None) -> Any:
    """Some clients send every value as a text. It is read as JSON where the question asks for something else."""
    if schema is None or schema.get("type") in (None, "string"):
        return answer
    try:
        return json.loads(answer)
    except ValueError:
        return answer


def _fitting(asked: Interaction, given: Any) -> Any:
    """The answer as the page of the question sends it."""
    if not is_confirmation(asked):
        return given
    answer = confirmation(given)
    if answer is None:
        raise _invalid("the question is answered with yes or no")
    return answer


def _invalid(message: str) -> Refused:
    return Refused(_STATUS, RefusalCode.REPLY_INVALID, message)
