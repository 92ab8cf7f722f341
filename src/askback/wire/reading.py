"""Reading requests: a document or texts become a shape, or every problem is reported with its path."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from types import UnionType
from typing import Annotated, Any, Protocol, TypeVar, get_args, get_origin, runtime_checkable

import msgspec

from askback.core.errors import FieldCode, FieldProblem
from askback.wire.base import Shape

S = TypeVar("S", bound=Shape)
Path = tuple[str | int, ...]

_MAX_UNKNOWN = 50
_MAX_NAME_CHARS = 100
_TYPES = {"`str`": "a string", "`int`": "an integer", "`float`": "a number", "`bool`": "a boolean"}
_TYPES |= {"`object`": "an object", "`array`": "an array", "`null`": "null"}
_UNION = re.compile(r"`(\w+(?: \| \w+)+)`")
_PATH = re.compile(r" - at `\$(.*)`$")
_STEPS = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")
_BODY = ("body",)


class Mismatch(Exception):
    """The request does not have the required shape. `problems` names each mistake with its path."""

    def __init__(self, problems: Iterator[FieldProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


@runtime_checkable
class MultiMapping(Protocol):
    """Texts of which several may have the same name."""

    def getlist(self, key: Any) -> list[str]: ...


def read_body(document: Any, shape: type[S]) -> S:
    try:
        return msgspec.convert(document, shape)
    except msgspec.ValidationError:
        raise Mismatch(_in_object(document, shape, ())) from None


def read_texts(given: Mapping[str, str], shape: type[S]) -> S:
    """Query parameters or headers: numbers are parsed, unknown names are ignored."""
    fields = dict(zip(shape.__struct_encode_fields__, shape.__struct_fields__, strict=True))
    known: dict[str, Any] = {name: given[name] for name in fields if name in given}
    if isinstance(given, MultiMapping):
        known |= {name: given.getlist(name) for name in known if name in _lists(shape)}
    try:
        found = msgspec.convert(known, shape, strict=False)
        # Without `strict`, "null" is taken for null.
        if all(getattr(found, fields[name]) is not None for name in known):
            return found
    except msgspec.ValidationError:
        pass
    raise Mismatch(_in_texts(known, shape))


@functools.cache
def _lists(shape: type[Shape]) -> frozenset[str]:
    """The names of the query parameters that can be repeated."""
    return frozenset(
        each.encode_name
        for each in msgspec.structs.fields(shape)
        if any(get_origin(part) is tuple for part in _parts(each.type))
    )


def _in_texts(given: Mapping[str, Any], shape: type[Shape]) -> Iterator[FieldProblem]:
    for field in msgspec.structs.fields(shape):
        name, text = field.encode_name, given.get(field.encode_name)
        if (
            isinstance(text, str)
            and text.lower() == "null"
            and "null" not in _choices(field.type)
            and _choices(field.type)
        ):
            yield FieldProblem.at((name,), _unknown_choice(text, field.type))
        elif text is not None:
            yield from _in_value(text, field.type, (name,), strict=False)
        elif field.required:
            yield FieldProblem.at((name,), "required", FieldCode.REQUIRED)


def _in_object(document: Any, shape: type[Shape], path: Path) -> Iterator[FieldProblem]:
    if not isinstance(document, dict):
        yield FieldProblem.at(path or _BODY, "expected an object")
        return
    fields = msgspec.structs.fields(shape)
    yield from _unknown(document, [field.name for field in fields], path)
    for field in fields:
        inner = (*path, field.name)
        if field.name in document:
            yield from _in_value(document[field.name], field.type, inner)
        elif field.required:
            yield FieldProblem.at(inner, "required", FieldCode.REQUIRED)


def _unknown(document: Mapping[str, Any], known: list[str], path: Path) -> Iterator[FieldProblem]:
    names = [name for name in document if name not in known]
    if len(names) > _MAX_UNKNOWN:
        message = f"{len(names)} unknown fields; known: {', '.join(known)}"
        yield FieldProblem.at(path or _BODY, message, FieldCode.UNKNOWN)
        return
    for name in names:
        close = difflib.get_close_matches(name[:_MAX_NAME_CHARS], known, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
        yield FieldProblem.at((*path, name), f"unknown field; {hint}", FieldCode.UNKNOWN)


def _in_value(value: Any, kind: Any, path: Path, *, strict: bool = True) -> Iterator[FieldProblem]:
    try:
        msgspec.convert(value, kind, strict=strict)
        return
    except msgspec.ValidationError as error:
        message = str(error)
    shape = _shape_of(kind)
    if shape is not None and isinstance(value, dict):
        yield from _in_object(value, shape, path)
        return
    inner = _PATH.search(message)
    item = next((each for each in _parts(kind) if isinstance(each, type) and issubclass(each, Shape)), None)
    if inner and item and isinstance(value, list):
        for number, each in enumerate(value):
            yield from _in_object(each, item, (*path, number))
        return
    named = next((get_args(each)[1] for each in _parts(kind) if get_origin(each) is dict), None)
    if inner and named and isinstance(value, dict):
        for name, each in value.items():
            yield from _in_value(each, named, (*path, name))
        return
    steps = tuple(int(number) if number else name for name, number in _STEPS.findall(inner[1] if inner else ""))
    text = _PATH.sub("", message)
    if text.startswith("Invalid enum value"):
        text = _unknown_choice(text.removeprefix("Invalid enum value ").strip("'"), kind)
    yield FieldProblem.at((*path, *steps), _readable(text))


def _shape_of(kind: Any) -> type[Shape] | None:
    """The shape that a value of this type has itself, or may have."""
    if get_origin(kind) is Annotated:
        return _shape_of(get_args(kind)[0])
    choices = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    return next((each for each in choices if isinstance(each, type) and issubclass(each, Shape)), None)


def _readable(text: str) -> str:
    """msgspec's message in the terms of JSON."""
    text = _UNION.sub(lambda found: " or ".join(f"`{name}`" for name in found[1].split(" | ")), text)
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
