"""What all shapes have in common: the base class, descriptions for OpenAPI, times, and JSON."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Generic, Self, TypeVar, dataclass_transform, get_args

import msgspec

from askback.core.actors import Channel

T = TypeVar("T")


class _ShapeMeta(msgspec.StructMeta):
    """Makes every shape frozen and keyword-only; msgspec does not inherit the latter."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **config: Any) -> _ShapeMeta:
        return super().__new__(cls, name, bases, namespace, **{"frozen": True, "kw_only": True, **config})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Shape(msgspec.Struct, frozen=True, metaclass=_ShapeMeta):
    """A JSON object. With `omit_defaults=True`, fields that are None are left out."""

    @classmethod
    def of(cls, source: Any = None, **given: Any) -> Self:
        """The shape of an object that has attributes with the names of the fields. `given` has those that differ.

        Objects inside it become the shapes that the fields declare, and times are in UTC. Nothing is validated.
        """
        values = {}
        for name, inner in _fields(cls):
            if name in given:
                values[name] = _sent(given[name], inner)
            elif hasattr(source, name):
                values[name] = _sent(getattr(source, name), inner)
        return cls(**values)


@functools.cache
def _fields(shape: type[Shape]) -> tuple[tuple[str, type[Shape] | None], ...]:
    """The fields, each with the shape of its value or of the items of its value."""
    return tuple((field.name, _shape_in(field.type)) for field in msgspec.structs.fields(shape))


def _shape_in(kind: Any) -> type[Shape] | None:
    if isinstance(kind, type) and issubclass(kind, Shape):
        return kind
    return next((shape for part in get_args(kind) if (shape := _shape_in(part)) is not None), None)


def _sent(value: Any, inner: type[Shape] | None) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if inner is None or value is None or isinstance(value, Shape):
        return value
    return tuple(_sent(each, inner) for each in value) if isinstance(value, Sequence) else inner.of(value)


def about(description: str, *examples: Any, **limits: Any) -> msgspec.Meta:
    """The description of a field, with examples and limits such as `ge` or `max_length`."""
    return msgspec.Meta(description=description, examples=list(examples) or None, **limits)


def one_of(codes: type[StrEnum], schema: str | None = None) -> msgspec.Meta:
    """A string that OpenAPI lists as one of these codes. Any string is decoded: a newer server may have more codes."""
    return msgspec.Meta(extra_json_schema={"$ref": f"#/components/schemas/{schema or codes.__name__}"})


def choice(*values: str) -> msgspec.Meta:
    """A string that OpenAPI lists as one of these. Any string is decoded."""
    return msgspec.Meta(extra_json_schema={"enum": list(values)})


Moment = Annotated[datetime, msgspec.Meta(tz=True, examples=["2026-03-01T09:30:00.123456Z"])]
RunId = Annotated[str, about("The ID of the run.", "1m7gekfsksrgk77s")]
NextCursor = Annotated[
    str | None,
    about("Pass it as `cursor` to get the next page. Null on the last page.", extra_json_schema={"examples": [None]}),
]


class Actor(Shape):
    """Who did something, and through which channel."""

    name: Annotated[
        str, about("The name of the token, of the link's recipient, or of the user of the server's machine.", "anna")
    ]
    via: Annotated[str, one_of(Channel, "Via"), about("`askback`: Askback itself, for example at a deadline.", "link")]


class Page(Shape, Generic[T]):
    """One page of a list."""

    items: Annotated[tuple[T, ...], about("At most `limit` items.")]
    next_cursor: NextCursor = None


class WholeList(Shape, Generic[T]):
    """A list that always fits on one page."""

    items: Annotated[tuple[T, ...], about("All items.")]
    next_cursor: Annotated[None, about("Always null.")] = None


def plain(shape: Shape | Iterable[Shape]) -> Any:
    """The shape as dicts, tuples and strings."""
    return msgspec.to_builtins(shape)


def encode(document: Any) -> bytes:
    """The document as JSON. Text that is not valid Unicode, such as a part of a file name, becomes `?`."""
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(document), ensure_ascii=False).encode(errors="replace")
