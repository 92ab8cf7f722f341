"""Templates of `runner.json`, for prompts and for the summary of an input: text with placeholders such as `{{ input.city }}`.

Nothing in them is executed. Skill-Runner renders prompts with Jinja2. Only the substitution of values is supported here:
a sandbox for a template language does not bound the time and the memory that a loop takes. A prompt that contains
anything else is not used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from askback.core.interactions import Json
from askback.core.secrecy import Secrecy
from askback.skills.diagnostics import short, unknown_name
from askback.text.formatting import cut
from askback.text.json_text import is_encodable
from askback.text.redaction import MASK

MAX_TEMPLATE_CHARS = 100_000
MAX_PLACEHOLDERS = 200
MAX_VALUE_CHARS = 1_000
"""A longer value is not repeated: the input is in the prompt as a whole."""

MAX_SUMMARY = 120
MAX_SUMMARY_TEMPLATE = 200
SUMMARY_PLACEHOLDER = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")
_MAX_SUMMARY_VALUES = 3
_MAX_SUMMARY_VALUE = 60
_LOOKS_SECRET = re.compile(r"pass(word|phrase|code)|secret|token|api[-_ ]?key|credential", re.IGNORECASE)

_SKILL = ("id", "name", "version", "description")
_TREES = ("input", "parameter")
_WORDS = ("skill_id", "skill_dir", "run_dir", "engine_id", "engine_workspace_dir")
_OPENING = re.compile(r"\{[{%#]")
_NAME = r"[A-Za-z_][A-Za-z0-9_-]*"
_KEY = r"\.[A-Za-z0-9_-]+|\[\s*'[^'\]]*'\s*\]|\[\s*\"[^\"\]]*\"\s*\]"
_PLACEHOLDER = re.compile(rf"\{{\{{\s*({_NAME})((?:{_KEY})*)\s*\}}\}}")
_KEYS = re.compile(_KEY)
_UNSAFE = frozenset("<>`")
_SHOWN = 40
_MISSING = object()

Path = tuple[str, ...]
Schema = Mapping[str, Any]


class TemplateUnsupported(ValueError):
    """The template contains something other than placeholders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTemplate:
    """`texts` has one more element than `places`: a text, a place, a text, and so on."""

    texts: tuple[str, ...]
    places: tuple[Path, ...]

    def render(self, values: Mapping[str, Json]) -> str:
        """Fill in the values. A value that is not given leaves its place empty.

        A value cannot end the line or the block in which it is: then it is written as JSON.
        """
        filled = [_written(_at(values, place), place) for place in self.places]
        return "".join(text for pair in zip(self.texts, [*filled, ""], strict=True) for text in pair)


def parse_template(text: str) -> PromptTemplate:
    if len(text) > MAX_TEMPLATE_CHARS:
        raise TemplateUnsupported(f"is longer than {MAX_TEMPLATE_CHARS:,} characters")
    if "\0" in text or not is_encodable(text):
        raise TemplateUnsupported("contains something that is not text")
    texts: list[str] = []
    places: list[Path] = []
    at = 0
    for opening in _OPENING.finditer(text):
        start = opening.start()
        if start < at:
            continue
        found = _PLACEHOLDER.match(text, start)
        if found is None:
            end = text.find("}", start, start + _SHOWN)
            piece = text[start : start + _SHOWN if end < 0 else min(end + 2, start + _SHOWN)]
            raise TemplateUnsupported(f"{short(piece)} is not a placeholder such as {{{{ input.city }}}}")
        texts.append(text[at:start])
        places.append(_place(found))
        at = found.end()
    if len(places) > MAX_PLACEHOLDERS:
        raise TemplateUnsupported(f"has more than {MAX_PLACEHOLDERS} placeholders")
    return PromptTemplate(texts=(*texts, text[at:]), places=tuple(places))


def _place(found: re.Match[str]) -> Path:
    """The path of a placeholder. Raises `TemplateUnsupported` if there is never such a value."""
    root, keys = found[1], tuple(key.strip(".[] \t\r\n").strip("'\"") for key in _KEYS.findall(found[2]))
    known = (*_TREES, "skill", *_WORDS)
    if root not in known:
        raise TemplateUnsupported(f"{short(found[0])}: {short(root)} {unknown_name(root, known)}")
    if root == "skill" and (len(keys) != 1 or keys[0] not in _SKILL):
        raise TemplateUnsupported(f"{short(found[0])}: a skill has only {', '.join(_SKILL)}")
    if root in _WORDS and keys:
        raise TemplateUnsupported(f"{short(found[0])}: {root} is a text")
    return (root, *keys)


def _at(values: Mapping[str, Json], place: Sequence[str]) -> Json:
    found: Json = values
    for name in place:
        if not isinstance(found, Mapping) or name not in found:
            return _MISSING
        found = found[name]
    return found


def _written(value: Json, place: Path) -> str:
    if value is _MISSING:
        return ""
    if isinstance(value, str) and len(value) <= MAX_VALUE_CHARS and value.isprintable() and not _UNSAFE & set(value):
        return value
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > MAX_VALUE_CHARS:
        return f"(the value of {'.'.join(place)} above)"
    return "".join(_escaped(letter) if letter in _UNSAFE or not letter.isprintable() else letter for letter in text)


def _escaped(letter: str) -> str:
    """The letter in JSON's own notation."""
    return f"\\u{ord(letter):04x}" if ord(letter) < 0x10000 else json.dumps(letter)[1:-1]


# The summary of an input.


def summarize(
    values: Mapping[str, Any], *, template: str | None, schema: Schema | None, secrets: tuple[str, ...]
) -> str | None:
    """The input as one line: by the skill's template, else its first values. Never contains one of the secrets."""
    if template is not None:
        shown = {"input": masked(values, secrets)}
        return (
            _line(
                SUMMARY_PLACEHOLDER.sub(lambda found: _text(_at(shown, found[1].split("."))) or "", template),
                MAX_SUMMARY,
            )
            or None
        )
    fields = (schema or {}).get("properties") or {}
    order = [*(name for name in fields if name in values), *(name for name in values if name not in fields)]
    texts = [_text(values[name]) for name in order if name not in secrets and not _LOOKS_SECRET.search(name)]
    return _line(" · ".join([text for text in texts if text][:_MAX_SUMMARY_VALUES]), MAX_SUMMARY) or None


def secret_inputs(values: Mapping[str, Any], schema: Schema | None) -> tuple[str, ...]:
    """The names of the inputs that are secret, or contain a secret, by the schema."""
    secrecy = Secrecy.by(schema)
    return tuple(name for name in values if secrecy.whole or name in secrecy.fields)


def masked(values: Mapping[str, Any], secrets: tuple[str, ...]) -> dict[str, Any]:
    return {name: MASK if name in secrets else value for name, value in values.items()}


def _text(value: Any) -> str | None:
    """A string or a number; flags, lists and objects say little without their names."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return _line(str(value), _MAX_SUMMARY_VALUE)


def _line(text: str, longest: int) -> str:
    """The text on one line, without control characters, and cut. Only the beginning of a long text is examined."""
    printable = "".join(sign if sign.isprintable() else " " for sign in text[: 4 * longest])
    return cut(" ".join(printable.split()), longest)
