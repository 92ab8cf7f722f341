"""Finds questions in assistant messages, and reads as much as possible of a malformed one.

Whether a malformed question makes the run wait or fail is not decided here. A long one is cut in `core.interactions`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from askback.core.interactions import Json, Question
from askback.text import yaml_text
from askback.text.json_text import Found, NotJson, loads

_MOST_ID = 200
_KIND = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_OPEN, _CLOSE = "<ASK_USER_YAML>", "</ASK_USER_YAML>"
_OPEN_LINE = re.compile(r"^[ \t]*<ASK_USER_YAML>", re.MULTILINE)
_FENCE_LINE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})[^\n]*$", re.MULTILINE)
_BROKEN = re.compile(r'["\']ask_user["\']\s{0,100}:')
_BROKEN_PROMPT = re.compile(r'"(?:prompt|question)"\s{0,100}:\s{0,100}("[^"\\]*+(?:\\.[^"\\]*+)*+")', re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionBlock:
    """A question found in a message: the value of `ask_user`, the YAML between the tags, or what is wrong with it."""

    start: int
    end: int
    fields: Json = None
    yaml: str | None = None
    problem: str | None = None


def is_question(value: Json) -> bool:
    """Whether the value is an object with a non-empty `ask_user`. Its other keys do not matter."""
    return isinstance(value, Mapping) and value.get("ask_user") not in (None, False)


def find_questions(text: str, found: Sequence[Found]) -> list[QuestionBlock]:
    """Every question in a message, in order."""
    asked = _yaml_blocks(text)
    asked += [
        QuestionBlock(start=one.start, end=one.end, fields=one.value["ask_user"])
        for one in found
        if is_question(one.value)
    ]
    if not asked and (broken := _broken(text, found)) is not None:
        asked.append(broken)
    return sorted(asked, key=lambda one: one.start)


def _yaml_blocks(text: str) -> list[QuestionBlock]:
    asked: list[QuestionBlock] = []
    at = 0
    while (close := text.find(_CLOSE, at)) >= 0:
        # The nearest opening tag: an earlier one is only mentioned in the text.
        if (start := text.rfind(_OPEN, at, close)) >= 0:
            asked.append(QuestionBlock(start=start, end=close + len(_CLOSE), yaml=text[start + len(_OPEN) : close]))
        at = close + len(_CLOSE)
    if (opening := _OPEN_LINE.search(text, at)) is not None:
        yaml, problem = text[opening.end() :], f"ask_user: the closing {_CLOSE} is missing"
        asked.append(QuestionBlock(start=opening.start(), end=len(text), yaml=yaml, problem=problem))
    return asked


def _broken(text: str, found: Sequence[Found]) -> QuestionBlock | None:
    """An intended question that is not valid JSON. Its prompt is often still readable."""
    for match in _BROKEN.finditer(text):
        if any(one.start <= match.start() < one.end for one in found):
            continue
        prompt = _BROKEN_PROMPT.search(text, match.end())
        fields = {"prompt": _literal(prompt[1])} if prompt else {}
        # The end of the block is unknown, so the block is empty.
        at = match.start()
        return QuestionBlock(start=at, end=at, fields=fields, problem="ask_user: the block is not valid JSON")
    return None


def _literal(quoted: str) -> str:
    try:
        return str(loads(quoted))
    except NotJson:
        return quoted[1:-1]


def read_question(asked: QuestionBlock, text: str) -> tuple[Question, tuple[str, ...]]:
    """The question and its problems. Only missing required fields are problems; other invalid fields are dropped."""
    fields, problems = _fields(asked)
    identifier = _identifier(fields.get("interaction_id"))
    prompt = _text(fields.get("prompt")) or _text(fields.get("question"))
    if not problems:
        problems += ["ask_user.interaction_id: it is missing"] * (identifier is None)
        problems += ["ask_user.prompt: it is missing"] * (prompt is None)
    options = options_of(fields.get("options", fields.get("choices")))
    wanted = fields.get("response_schema")
    schema = response_schema(wanted)
    question = Question(
        prompt=prompt or _around(asked, text),
        interaction_id=identifier,
        kind=_kind(fields.get("kind"), bool(options)),
        options=options,
        default=small(fields.get("default")),
        response_schema=schema,
        schema_ignored=wanted is not None and schema is None,
        context=small(fields.get("context")),
    )
    return question, tuple(problems)


def _fields(asked: QuestionBlock) -> tuple[Mapping[str, Json], list[str]]:
    fields, problems = asked.fields, [asked.problem] if asked.problem else []
    if asked.yaml is not None:
        try:
            fields = yaml_text.load(_FENCE_LINE.sub("", asked.yaml))
        except yaml_text.NotYaml as error:
            return {}, problems or [f"ask_user: the YAML cannot be read: {error}"]
        if is_question(fields):
            fields = fields["ask_user"]
    if isinstance(fields, Mapping):
        return fields, problems
    problems = problems or ["ask_user: it is not an object with `interaction_id` and `prompt`"]
    return ({"prompt": fields} if isinstance(fields, str) else {}), problems


def _around(asked: QuestionBlock, text: str) -> str:
    """The message without the question's block, or the whole message if nothing else is left."""
    return (text[: asked.start] + text[asked.end :]).strip() or text.strip()


def _identifier(value: Json) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    return value.strip()[:_MOST_ID] if isinstance(value, str) and value.strip() else None


def _text(value: Json) -> str | None:
    return value.strip() if isinstance(value, str) and value.strip() else None


def _kind(value: Json, has_options: bool) -> str:
    if isinstance(value, str) and _KIND.fullmatch(value.strip().lower()):
        return value.strip().lower()
    return "choice" if has_options else "text"


_MOST_OPTIONS = 200
_MOST_LABEL = 2_000
_MOST_JSON = 64_000
_MOST_PROPERTIES = 100


def small(value: Json) -> Json:
    """The value, or None if it is too large to be shown with a question."""
    return value if len(json.dumps(value)) <= _MOST_JSON else None


def options_of(value: Json) -> tuple[Json, ...]:
    """The valid options of a question: strings, numbers, or objects with `label` or `value`."""
    if not isinstance(value, list):
        return ()
    options = (_option(item) for item in value[:_MOST_OPTIONS])
    return tuple(option for option in options if option is not None)


def _option(item: Json) -> Json:
    if _is_scalar(item):
        return _short(item)
    if not isinstance(item, Mapping):
        return None
    option = {name: _short(item[name]) for name in ("label", "value", "description") if _is_scalar(item.get(name))}
    return option if "label" in option or "value" in option else None


def _is_scalar(value: Json) -> bool:
    return isinstance(value, bool | int | float) or (isinstance(value, str) and bool(value.strip()))


def _short(value: Json) -> Json:
    return value[:_MOST_LABEL] if isinstance(value, str) else value


def response_schema(value: Json) -> dict[str, Json] | None:
    """The schema of an answer, if it is a scalar or a flat object; otherwise None."""
    return flat_schema(value) or _scalar_schema(value)


def _scalar_schema(value: Json) -> dict[str, Json] | None:
    scalar = _property(value)
    if scalar is None or scalar["type"] == "array" or any(name in value and name not in scalar for name in _CHOICES):
        return None
    return small(scalar)  # type: ignore[no-any-return]


def flat_schema(value: Json) -> dict[str, Json] | None:
    """The schema, if it is an object with primitive properties as in MCP's form elicitation; otherwise None."""
    if not isinstance(value, Mapping) or value.get("type") != "object":
        return None
    properties = value.get("properties")
    if not isinstance(properties, Mapping) or not 0 < len(properties) <= _MOST_PROPERTIES:
        return None
    read = {name: _property(schema) for name, schema in properties.items()}
    if any(schema is None for schema in read.values()):
        return None
    flat: dict[str, Json] = {"type": "object", "properties": read}
    required = value.get("required")
    if isinstance(required, list):
        flat["required"] = [name for name in dict.fromkeys(map(str, required)) if name in read]
    return small(flat)  # type: ignore[no-any-return]


def _property(schema: Json) -> dict[str, Json] | None:
    if not isinstance(schema, Mapping):
        return None
    kind = schema.get("type", _type_of_choices(schema))
    keywords = _KEYWORDS.get(kind) if isinstance(kind, str) else None
    if keywords is None:
        return None
    taken = {name: schema[name] for name, fits in (_COMMON | keywords).items() if name in schema and fits(schema[name])}
    if kind == "array":
        items = _items(schema.get("items"))
        return None if items is None else {"type": kind, **taken, "items": items}
    return {"type": kind, **taken}


def _type_of_choices(schema: Mapping[str, Json]) -> str | None:
    """The type of a schema that lists its values without naming their type."""
    if "oneOf" in schema or _are_texts(schema.get("enum")):
        return "string"
    return "number" if _are_scalars(schema.get("enum")) and all(map(_is_number, schema["enum"])) else None


def _items(schema: Json) -> dict[str, Json] | None:
    """The `items` of a multiple choice: a list of strings to choose from."""
    if not isinstance(schema, Mapping):
        return None
    if _are_texts(schema.get("enum")):
        return {"type": "string", "enum": schema["enum"]}
    return {"anyOf": schema["anyOf"]} if _are_titled(schema.get("anyOf")) else None


def _is_text(value: Json) -> bool:
    return isinstance(value, str)


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _is_default(value: Json) -> bool:
    return _is_scalar(value) or value == "" or (isinstance(value, list) and all(map(_is_text, value)))


def _are_texts(value: Json) -> bool:
    return isinstance(value, list) and 0 < len(value) <= _MOST_OPTIONS and all(map(_is_text, value))


def _are_scalars(value: Json) -> bool:
    return isinstance(value, list) and 0 < len(value) <= _MOST_OPTIONS and all(map(_is_scalar, value))


def _are_titled(value: Json) -> bool:
    """`[{"const": "r", "title": "Red"}, …]`."""
    return (
        isinstance(value, list)
        and 0 < len(value) <= _MOST_OPTIONS
        and all(isinstance(item, Mapping) and set(item) <= {"const", "title"} and "const" in item for item in value)
        and all(all(map(_is_text, item.values())) for item in value)
    )


def _is_format(value: Json) -> bool:
    return value in ("email", "uri", "date", "date-time")


_CHOICES = ("enum", "oneOf")
_Fits = Callable[[Any], bool]
_COMMON: dict[str, _Fits] = {"title": _is_text, "description": _is_text, "default": _is_default}
_TEXT: dict[str, _Fits] = {
    "minLength": _is_count,
    "maxLength": _is_count,
    "format": _is_format,
    "enum": _are_texts,
    "enumNames": _are_texts,
    "oneOf": _are_titled,
}
_NUMBER: dict[str, _Fits] = {"minimum": _is_number, "maximum": _is_number, "enum": _are_scalars}
_KEYWORDS: dict[str, dict[str, _Fits]] = {
    "string": _TEXT,
    "number": _NUMBER,
    "integer": _NUMBER,
    "boolean": {},
    "array": {"minItems": _is_count, "maxItems": _is_count},
}
