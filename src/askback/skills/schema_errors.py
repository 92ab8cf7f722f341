"""Errors of the validator as lines for people and models: `input.items[3].name: is required`.

The texts are those of jsonschema-rs, with the value shortened. Written here is what helps more than its text: the path
of each missing or unknown property, similar names, all options of an `enum`, and which of several alternatives was meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jsonschema_rs import ValidationError
from jsonschema_rs import ValidationErrorKind as Kind

from askback.core.interactions import Json
from askback.skills.diagnostics import format_path, printable, short, unknown_name

MASK = "\ufdd0"
"""What the validator writes in the place of a value, which may be huge. It is not a character of any text."""
_MAX_MESSAGE = 300
_MAX_OPTIONS = 20

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaError:
    path: Path
    message: str

    def line(self, root: str) -> str:
        return f"{format_path(root, self.path)}: {self.message}"

    def sort_key(self) -> tuple[tuple[tuple[int, int, str], ...], str]:
        """By the place in the document: indexes by value, names by letter."""
        parts = ((0, part, "") if isinstance(part, int) else (1, 0, part) for part in self.path)
        return tuple(parts), self.message


def describe(error: ValidationError, value: Json, schema: Json) -> list[SchemaError]:
    """One error of the validator, as one or more errors in `value`: each property has its own."""
    path = tuple(error.instance_path)
    kind = error.kind
    match kind:
        case Kind.Required():
            return [SchemaError(path=(*path, kind.property), message="is required")]
        case Kind.AdditionalProperties() | Kind.UnevaluatedProperties():
            known = _properties_beside(schema, error.schema_path)
            return [SchemaError(path=(*path, name), message=_unexpected(name, known)) for name in kind.unexpected]
        case Kind.FalseSchema() if error.schema_path[-1:] == ["additionalProperties"]:
            return [SchemaError(path=(*path, name), message=_unexpected(name, ())) for name in _at(value, path) or ()]
        case Kind.AnyOf() | Kind.OneOfNotValid():
            return [_closest_alternative(kind.context, path, value, schema)]
        case _:
            return [SchemaError(path=path, message=_message(error, _at(value, path)))]


def _message(error: ValidationError, item: Json) -> str:
    kind = error.kind
    match kind:
        case Kind.Enum():
            options = ", ".join(short(option) for option in kind.options[:_MAX_OPTIONS])
            more = len(kind.options) - _MAX_OPTIONS
            return f"{short(item)} is not one of {options}" + (f" and {more} more" if more > 0 else "")
        case Kind.Contains():
            return "has too few or too many items that match `contains`"
        case Kind.FalseSchema():
            return _unexpected("", ())
        case Kind.PropertyNames():
            return f"has a property name that is not allowed: {short(kind.error.instance)}"
        case _:
            return library_message(error, item)


def library_message(error: ValidationError, item: Json) -> str:
    """What jsonschema-rs says. Parts of the schema in it may be as long as the schema."""
    text = error.message
    if len(text) > _MAX_MESSAGE:
        text = text[: _MAX_MESSAGE - 1] + "…"
    return printable(text.replace(MASK, short(item)))


def _unexpected(name: str, known: Sequence[str]) -> str:
    return unknown_name(name, known) if known else "is not allowed here"


def _properties_beside(schema: Json, keyword: Sequence[str | int]) -> list[str]:
    """The property names of the object schema that has this keyword."""
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


def _closest_alternative(branches: list[list[ValidationError]], path: Path, value: Json, schema: Json) -> SchemaError:
    """No alternative matches: the types that do, if only the type is wrong, or the first error of the closest one."""
    types = [_wrong_type(branch, path) for branch in branches]
    if all(types):
        return SchemaError(
            path=path, message=_type_message(_at(value, path), [name for each in types for name in each])
        )
    closest = min((branch for branch in branches if branch), key=_distance, default=[])
    for error in closest:
        first = describe(error, value, schema)[0]
        return SchemaError(path=first.path, message=f"{first.message} (other alternatives are allowed too)")
    return SchemaError(path=path, message="matches none of the alternatives")


def _wrong_type(branch: list[ValidationError], path: Path) -> list[str]:
    if len(branch) != 1 or tuple(branch[0].instance_path) != path:
        return []
    kind = branch[0].kind
    return list(kind.types) if isinstance(kind, Kind.Type) else []


def _distance(branch: list[ValidationError]) -> tuple[int, int]:
    """A wrong type or constant says more than a missing property: another alternative was meant."""
    far = sum(isinstance(error.kind, Kind.Type | Kind.Constant) for error in branch)
    return far, len(branch)


def _type_message(item: Json, types: Iterable[str]) -> str:
    names = [f'"{name}"' for name in dict.fromkeys(types)]
    return f"{short(item)} is not of type{'s' if len(names) > 1 else ''} {', '.join(names)}"
