"""How a value that does not fit its schema is told: one line a mistake, named by its path in the document.

Knows jsonschema-rs's kinds of errors and nothing of packages. Values stand in messages shortened.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jsonschema_rs import ValidationError, ValidationErrorKind

from askback.core.interactions import Json
from askback.skills.diagnostics import unknown_name

MAX_DEPTH = 100
MAX_VALUES = 1_000_000
MAX_UNFIT = 1000
SHORT = 60

Path = tuple[str | int, ...]


# Values that no schema is asked about.


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What a look at a whole value gave; `weight` is its size, roughly in bytes."""

    problems: tuple[str, ...]
    weight: int


def survey(value: Json, root: str) -> Survey:
    """Look for what is no JSON, or more than a reader should be given. Never raises, whatever the value is."""
    problems: list[str] = []
    weight = 0
    for seen, (path, item) in enumerate(_every(value)):
        told = _unfit(item, len(path))
        if told is not None:
            problems.append(f"{spell(root, path)}: {told}")
        else:
            weight += _weight(item)
        if seen >= MAX_VALUES or len(problems) > MAX_UNFIT:
            problems.append(f"{root}: holds more values or more mistakes than are looked at")
            break
    return Survey(problems=tuple(problems), weight=weight)


def _every(value: Json) -> Iterator[tuple[Sequence[Any], Any]]:
    """Each value inside with its path, the holder before what it holds. What is nested too deep is not entered."""
    path: list[Any] = []
    levels: list[Iterator[tuple[Any, Any]]] = [iter([("", value)])]
    while levels:
        pair = next(levels[-1], None)
        if pair is None:
            levels.pop()
            continue
        path[len(levels) - 1 :] = [pair[0]]
        yield path[1:], pair[1]
        if len(levels) > MAX_DEPTH + 1:
            continue
        if isinstance(pair[1], dict):
            levels.append(iter(pair[1].items()))
        elif isinstance(pair[1], list | tuple):
            levels.append(iter(enumerate(pair[1])))


def _weight(item: Any) -> int:
    if isinstance(item, dict):
        return 4 + sum(len(name) for name in item)
    return 4 + (len(item) if isinstance(item, str) else 0)


def _unfit(item: Any, depth: int) -> str | None:
    if depth > MAX_DEPTH:
        return f"is nested deeper than {MAX_DEPTH} levels"
    match item:
        case None | bool():
            return None
        case int():
            return None if -(2**63) <= item < 2**64 else "is a number of more than 64 bits; send it as a text"
        case float():
            return None if math.isfinite(item) else "is not a finite number"
        case str():
            return None if encodes(item) else "holds a lone surrogate, which is no character"
        case list() | tuple():
            return None
        case dict():
            fit = all(isinstance(key, str) and encodes(key) for key in item)
            return None if fit else "has a name that is not a proper text"
        case _:
            return f"is of the type {type(item).__name__}, which JSON does not have"


def encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# Mistakes that a schema finds.


def spell(root: str, path: Iterable[Any]) -> str:
    """`input`, `items`, 3, `name` → `input.items[3].name`."""
    text = root
    for part in path:
        if not isinstance(part, str):
            text += f"[{part}]"
        elif part.isprintable() and part and not set(part) & set(' .[]:"'):
            text += f".{short(part, quoted=False)}"
        else:
            text += f"[{short(part)}]"
    return text


def short(value: Json, *, quoted: bool = True) -> str:
    """The value as JSON, at most about sixty characters of it, all of them printable."""
    if isinstance(value, str):
        cut = value if len(value) <= SHORT else value[: SHORT - 1] + "…"
        return printable(json.dumps(cut, ensure_ascii=False) if quoted else cut)
    text = ""
    try:
        for chunk in json.JSONEncoder(ensure_ascii=False).iterencode(value):
            text += chunk[: SHORT + 1]
            if len(text) > SHORT:
                return printable(text[: SHORT - 1] + "…")
    except (ValueError, TypeError, RecursionError):
        return "the value"
    return printable(text)


def printable(text: str) -> str:
    """What a terminal would act on, or show as something else, stands as its code."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    path: Path
    text: str

    def text_at(self, root: str) -> str:
        return f"{spell(root, self.path)}: {self.text}"

    def order(self) -> tuple[tuple[tuple[int, int, str], ...], str]:
        """Sorts by place in the document: numbers by value, names by letter."""
        parts = ((0, part, "") if isinstance(part, int) else (1, 0, part) for part in self.path)
        return tuple(parts), self.text


def mistakes_of(error: ValidationError, value: Json, schema: Json) -> list[Mistake]:
    """What one error of the validator says about `value`; several where it names several properties."""
    path = tuple(error.instance_path)
    kind = error.kind
    match kind:
        case ValidationErrorKind.Required():
            return [Mistake(path=(*path, kind.property), text="is required")]
        case ValidationErrorKind.AdditionalProperties() | ValidationErrorKind.UnevaluatedProperties():
            known = _properties_beside(schema, error.schema_path)
            return [Mistake(path=(*path, name), text=_unexpected(name, known)) for name in kind.unexpected]
        case ValidationErrorKind.FalseSchema() if error.schema_path[-1:] == ["additionalProperties"]:
            return [Mistake(path=(*path, name), text="is not allowed here") for name in _at(value, path) or ()]
        case ValidationErrorKind.AnyOf() | ValidationErrorKind.OneOfNotValid():
            return [_none_fits(kind.context, path, value, schema)]
        case _:
            return [Mistake(path=path, text=_told(kind, _at(value, path), error.message))]


def _unexpected(name: str, known: Sequence[str]) -> str:
    return unknown_name(name, known) if known else "is not allowed here"


def _properties_beside(schema: Json, keyword: Sequence[str | int]) -> list[str]:
    """The names that the object schema holding this keyword lists."""
    holder = _at(schema, tuple(keyword[:-1]))
    properties = holder.get("properties") if isinstance(holder, Mapping) else None
    return list(properties) if isinstance(properties, Mapping) else []


def _at(document: Json, path: Path) -> Json:
    for part in path:
        try:
            document = document[part]
        except (KeyError, IndexError, TypeError):
            return None
    return document


def _none_fits(branches: list[list[ValidationError]], path: Path, value: Json, schema: Json) -> Mistake:
    """None of several forms fits: the wanted types where that is all, else what the nearest form lacks."""
    wanted = [_types_at(branch, path) for branch in branches]
    if all(wanted):
        types = [name for names in wanted for name in names]
        return Mistake(path=path, text=_told_type(_at(value, path), types))
    nearest = min((branch for branch in branches if branch), key=lambda branch: _distance(branch, path), default=[])
    for error in nearest:
        first = mistakes_of(error, value, schema)[0]
        return Mistake(path=first.path, text=f"{first.text} (other forms are allowed too)")
    return Mistake(path=path, text="fits none of the allowed forms")


def _types_at(branch: list[ValidationError], path: Path) -> list[str]:
    if len(branch) != 1 or tuple(branch[0].instance_path) != path:
        return []
    kind = branch[0].kind
    return list(kind.types) if isinstance(kind, ValidationErrorKind.Type) else []


def _distance(branch: list[ValidationError], path: Path) -> tuple[int, int]:
    """A form that is refused for its type or its constant is farther than one that merely lacks something."""
    far = sum(isinstance(error.kind, ValidationErrorKind.Type | ValidationErrorKind.Constant) for error in branch)
    return far, len(branch)


_ARTICLES = {
    "integer": "an integer",
    "object": "an object",
    "array": "an array",
    "boolean": "a boolean",
    "null": "null",
}


def _told_type(item: Json, types: Iterable[str]) -> str:
    names = [_ARTICLES.get(name, f"a {name}") for name in dict.fromkeys(types)]
    return f"{short(item)} is not {' or '.join(names)}"


_Kind = ValidationErrorKind
_LIMITS: dict[type[ValidationErrorKind], Callable[[str, str], str]] = {
    _Kind.Minimum: lambda item, limit: f"{item} is less than {limit}",
    _Kind.Maximum: lambda item, limit: f"{item} is more than {limit}",
    _Kind.ExclusiveMinimum: lambda item, limit: f"{item} is not more than {limit}",
    _Kind.ExclusiveMaximum: lambda item, limit: f"{item} is not less than {limit}",
    _Kind.MinLength: lambda item, limit: f"{item} is shorter than {limit} characters" if limit != "1" else "is empty",
    _Kind.MaxLength: lambda item, limit: f"{item} is longer than {limit} characters",
    _Kind.MinItems: lambda _, limit: f"has fewer than {limit} items" if limit != "1" else "is empty",
    _Kind.MaxItems: lambda _, limit: f"has more than {limit} items",
    _Kind.AdditionalItems: lambda _, limit: f"has more than {limit} items",
    _Kind.MinProperties: lambda _, limit: f"has fewer than {limit} properties" if limit != "1" else "is empty",
    _Kind.MaxProperties: lambda _, limit: f"has more than {limit} properties",
}
_PLAIN: dict[type[ValidationErrorKind], str] = {
    _Kind.Contains: "has too few or too many items of the wanted form",
    _Kind.FalseSchema: "is not allowed here",
    _Kind.Not: "is of a form that is not allowed",
    _Kind.OneOfMultipleValid: "fits several of the forms of which exactly one is allowed",
    _Kind.UnevaluatedItems: "has items that are not allowed",
    _Kind.UniqueItems: "holds the same item twice",
}


def _told(kind: ValidationErrorKind, item: Json, message: str) -> str:
    if type(kind) in _LIMITS:
        return _LIMITS[type(kind)](short(item), short(getattr(kind, "limit", None)))
    if type(kind) in _PLAIN:
        return _PLAIN[type(kind)]
    match kind:
        case _Kind.Type():
            return _told_type(item, kind.types)
        case _Kind.Enum():
            return "is not one of " + _listed(kind.options)
        case _Kind.Constant():
            return f"is not {short(kind.expected_value)}"
        case _Kind.Pattern():
            return f"{short(item)} does not match {short(kind.pattern, quoted=False)}"
        case _Kind.Format():
            return f"{short(item)} is not of the format {kind.format}"
        case _Kind.MultipleOf():
            return f"{short(item)} is not a multiple of {short(kind.multiple_of)}"
        case _Kind.PropertyNames():
            return f"has a name that is not allowed: {short(kind.error.instance)}"
        case _:
            return short(message, quoted=False)


def _listed(options: Sequence[Json]) -> str:
    shown = [short(option) for option in options[:20]]
    return ", ".join(shown) + (f" and {len(options) - 20} more" if len(options) > 20 else "")
