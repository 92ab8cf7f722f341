"""A run's input for people: as one line, and which parts of it are secret."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from askback.skills.json_pointer import referenced
from askback.text.redaction import MASK

MAX_SUMMARY = 120
MAX_TEMPLATE = 200
PLACEHOLDER = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")
_MAX_VALUES = 3
_MAX_VALUE = 60
_MAX_DEPTH = 20
_LOOKS_SECRET = re.compile(r"pass(word|phrase|code)|secret|token|api[-_ ]?key|credential", re.IGNORECASE)

Schema = Mapping[str, Any]


def summarize(
    values: Mapping[str, Any], *, template: str | None, schema: Schema | None, secrets: tuple[str, ...]
) -> str | None:
    """The input as one line: by the skill's template, else its first values. Never contains one of the secrets."""
    if template is not None:
        shown = masked(values, secrets)
        return _line(PLACEHOLDER.sub(lambda found: _text(_at(shown, found[1])) or "", template), MAX_SUMMARY) or None
    fields = (schema or {}).get("properties") or {}
    order = [*(name for name in fields if name in values), *(name for name in values if name not in fields)]
    texts = [_text(values[name]) for name in order if name not in secrets and not _LOOKS_SECRET.search(name)]
    return _line(" · ".join([text for text in texts if text][:_MAX_VALUES]), MAX_SUMMARY) or None


def secret_inputs(values: Mapping[str, Any], schema: Schema | None) -> tuple[str, ...]:
    """The names of the inputs that are secret, or contain a secret, by the schema."""
    return tuple(name for name, value in values.items() if is_secret({name: value}, schema, schema))


def masked(values: Mapping[str, Any], secrets: tuple[str, ...]) -> dict[str, Any]:
    return {name: MASK if name in secrets else value for name, value in values.items()}


def is_secret(value: Any, schema: Any, root: Any, depth: int = 0) -> bool:
    """Whether the value is a secret or contains one: `"format": "password"` or `"writeOnly": true`."""
    if depth > _MAX_DEPTH:
        return True
    for form in _forms(schema, root):
        if form.get("format") == "password" or form.get("writeOnly") is True:
            return True
        if any(is_secret(each, part, root, depth + 1) for each, part in _parts(value, form)):
            return True
    return False


def _parts(value: Any, form: Schema) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        fields = form.get("properties") or {}
        yield from ((each, fields.get(name, form.get("additionalProperties"))) for name, each in value.items())
    elif isinstance(value, list):
        yield from ((each, form.get("items")) for each in value)


def _forms(schema: Any, root: Any, depth: int = 0) -> Iterator[Schema]:
    """The schema, its references, and its alternatives. What a reference to an anchor means is unknown: it is secret."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return
    yield schema
    if isinstance(schema.get("$ref"), str):
        target = referenced(root, schema["$ref"])
        yield from _forms({"writeOnly": True} if target is None else target, root, depth + 1)
    for word in ("allOf", "anyOf", "oneOf"):
        for each in schema.get(word) or ():
            yield from _forms(each, root, depth + 1)


def _at(values: Mapping[str, Any], path: str) -> Any:
    """The value at `input.stay.nights`; None if there is none."""
    found: Any = {"input": values}
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _text(value: Any) -> str | None:
    """A string or a number; flags, lists and objects say little without their names."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return _line(str(value), _MAX_VALUE)


def _line(text: str, longest: int) -> str:
    """Without control characters. Only the beginning of a long text is examined."""
    printable = "".join(sign if sign.isprintable() else " " for sign in text[: 4 * longest])
    line = " ".join(printable.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
