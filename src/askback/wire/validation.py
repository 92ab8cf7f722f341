"""Reading requests: a valid one becomes its shape; for any other, every mistake is reported with its path."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, TypeVar, get_args

import msgspec

from askback.wire.base import Shape

S = TypeVar("S", bound=Shape)

_MAX_UNKNOWN = 50
_MAX_NAME_CHARS = 100
_TYPES = {"`str`": "a string", "`int`": "an integer", "`float`": "a number", "`bool`": "a boolean"}
_TYPES |= {"`object`": "an object", "`array`": "an array", "`null`": "null"}
_OR_NULL = re.compile(r"`(\w+) \| null`")
_PATH = re.compile(r" - at `\$(?:\.)?(.*)`$")


class Mismatch(Exception):
    """The request does not have the required shape. `problems` names each mistake with its path."""

    def __init__(self, problems: Iterator[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


def read_body(document: Any, shape: type[S]) -> S:
    try:
        return msgspec.convert(document, shape)
    except msgspec.ValidationError:
        raise Mismatch(_in_object(document, shape, "")) from None


def read_texts(given: Mapping[str, str], shape: type[S]) -> S:
    """Query parameters or headers: numbers are parsed, unknown names are ignored."""
    known = {name: given[name] for name in shape.__struct_fields__ if name in given}
    try:
        found = msgspec.convert(known, shape, strict=False)
        # Without `strict`, "null" is taken for null.
        if all(getattr(found, name) is not None for name in known):
            return found
    except msgspec.ValidationError:
        pass
    raise Mismatch(_in_texts(known, shape))


def _in_texts(given: Mapping[str, str], shape: type[Shape]) -> Iterator[str]:
    for field in msgspec.structs.fields(shape):
        text = given.get(field.name)
        if text is not None and text.lower() == "null" and "null" not in _choices(field.type) and _choices(field.type):
            yield f"{field.name}: {_unknown_choice(text, field.type)}"
        elif text is not None:
            yield from _in_value(text, field.type, field.name, strict=False)


def _in_object(document: Any, shape: type[Shape], path: str) -> Iterator[str]:
    if not isinstance(document, dict):
        yield f"{path or 'body'}: expected an object"
        return
    fields = msgspec.structs.fields(shape)
    yield from _unknown(document, [field.name for field in fields], path)
    for field in fields:
        inner = f"{path}.{field.name}" if path else field.name
        if field.name in document:
            yield from _in_value(document[field.name], field.type, inner)
        elif field.required:
            yield f"{inner}: required"


def _unknown(document: Mapping[str, Any], known: list[str], path: str) -> Iterator[str]:
    names = [name for name in document if name not in known]
    if len(names) > _MAX_UNKNOWN:
        yield f"{path or 'body'}: {len(names)} unknown fields; known: {', '.join(known)}"
        return
    for name in names:
        close = difflib.get_close_matches(name[:_MAX_NAME_CHARS], known, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
        yield f"{path}.{name}: unknown field; {hint}" if path else f"{name}: unknown field; {hint}"


def _in_value(value: Any, kind: Any, path: str, *, strict: bool = True) -> Iterator[str]:
    try:
        msgspec.convert(value, kind, strict=strict)
        return
    except msgspec.ValidationError as error:
        message = str(error)
    inner = _PATH.search(message)
    item = next((each for each in _parts(kind) if isinstance(each, type) and issubclass(each, Shape)), None)
    if inner and item and isinstance(value, list):
        for number, each in enumerate(value):
            yield from _in_object(each, item, f"{path}[{number}]")
        return
    place = path + inner[1] if inner else path
    text = _PATH.sub("", message)
    if text.startswith("Invalid enum value"):
        text = _unknown_choice(text.removeprefix("Invalid enum value ").strip("'"), kind)
    yield f"{place}: {_readable(text)}"


def _readable(text: str) -> str:
    """msgspec's message in the terms of JSON."""
    text = _OR_NULL.sub(r"`\1` or `null`", text)
    for name, words in _TYPES.items():
        text = text.replace(name, words)
    return text[:1].lower() + text[1:]


def _unknown_choice(text: str, kind: Any) -> str:
    return f"{text!r} is not one of {', '.join(_choices(kind))}"


def _choices(kind: Any) -> list[str]:
    found = next((each for each in _parts(kind) if isinstance(each, type) and issubclass(each, Enum)), None)
    return [str(each.value) for each in found] if found else []


def _parts(kind: Any) -> Iterator[Any]:
    """The type and every type inside it."""
    yield kind
    for part in get_args(kind):
        yield from _parts(part)
