"""A run's input for people: as one line, and which parts of it are secret."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from askback.core.secrecy import Secrecy
from askback.text.formatting import cut
from askback.text.redaction import MASK

MAX_SUMMARY = 120
MAX_TEMPLATE = 200
PLACEHOLDER = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")
_MAX_VALUES = 3
_MAX_VALUE = 60
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
    secrecy = Secrecy.by(schema)
    return tuple(name for name in values if secrecy.whole or name in secrecy.fields)


def masked(values: Mapping[str, Any], secrets: tuple[str, ...]) -> dict[str, Any]:
    return {name: MASK if name in secrets else value for name, value in values.items()}


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
    return cut(" ".join(printable.split()), longest)
