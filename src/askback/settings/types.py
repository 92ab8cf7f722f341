"""What follows from the type of a setting: which values are paths, what of a value is shown, and which keys exist.

It walks the model of the settings, and knows none of its keys. A setting that is added to the model needs no further entry
in any list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from askback.settings.trust import Shown, key_name


class Program:
    """Marks a command. Its first word is a path if it contains a slash; otherwise it is looked up on PATH."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Marks a number with its unit, which is shown after the value: the name of the setting does not tell it."""

    name: str


def unit(model: type[BaseModel], path: Sequence[str]) -> str | None:
    """The unit of a setting, if its field is marked with one."""
    kind: Any = model
    found: list[str] = []
    for name in path:
        if _is_section(kind):
            field = kind.model_fields[name]
            found = [each.name for each in field.metadata if isinstance(each, Unit)]
            kind = field.annotation
        elif get_origin(kind) in (dict, tuple):
            kind = _entry_kind(kind) if any(map(_is_section, get_args(kind))) else None
        else:
            return None
    return found[0] if found else None


def shown(model: type[BaseModel], path: Sequence[str]) -> Shown:
    """What `askback trust` shows of a setting: its value, unless its field says otherwise. Nothing of unknown keys."""
    kind: Any = model
    for name in path:
        if _is_section(kind):
            if (field := kind.model_fields.get(name)) is None:
                return Shown.NOTHING
            if marks := [each for each in field.metadata if isinstance(each, Shown)]:
                return marks[0]
            kind = field.annotation
        elif get_origin(kind) is dict:
            kind = get_args(kind)[1]
        else:
            return Shown.NOTHING
    return Shown.VALUE


def keys_at(model: type[BaseModel], path: Sequence[str | int]) -> list[str]:
    """The keys of the section at a path, which must exist."""
    kind: Any = model
    for name in path:
        kind = kind.model_fields[name].annotation if _is_section(kind) else _entry_kind(kind)
    section = kind if _is_section(kind) else _entry_kind(kind)
    return list(section.model_fields)


def example_at(model: type[BaseModel], path: Sequence[str | int]) -> str | None:
    """The first example of the setting at a path, which must exist."""
    kind: Any = model
    examples: Sequence[Any] | None = None
    for name in path:
        if not _is_section(kind):
            kind = next((each for each in get_args(kind) if _is_section(each)), None)
        if isinstance(name, str) and kind is not None and name in kind.model_fields:
            examples, kind = kind.model_fields[name].examples, kind.model_fields[name].annotation
    return str(examples[0]) if examples else None


def paths(model: type[BaseModel]) -> Iterator[tuple[str, ...]]:
    """The paths of all settings. A table with names of the user's choice counts as one."""
    for name, field in model.model_fields.items():
        if _is_section(field.annotation):
            yield from ((name, *path) for path in paths(field.annotation))  # type: ignore[arg-type]
        else:
            yield (name,)


def _entry_kind(kind: Any) -> Any:
    """The type of an entry in a table or list of sections."""
    return next(each for each in get_args(kind) if _is_section(each))


def with_paths(kind: Any, value: Any, path: tuple[str, ...], change: Callable[[str, Any], Any]) -> Any:
    """A value of the type `kind` with every path in it changed. Values of another type are left as they are.

    `value` is part of a document or of validated settings. `change` gets the key of a path and the path.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Path:
        return change(key_name(path), value)
    if _is_section(kind):
        return _section_with_paths(kind, value, path, change)
    if origin is Annotated:
        return with_paths(arguments[0], value, path, change)
    if origin in (Union, UnionType):
        for each in arguments:
            value = with_paths(each, value, path, change)
    elif origin is dict and isinstance(value, Mapping):
        return {name: with_paths(arguments[1], each, (*path, name), change) for name, each in value.items()}
    elif origin is tuple and isinstance(value, (list, tuple)):
        return type(value)(with_paths(arguments[0], each, path, change) for each in value)
    return value


def _section_with_paths(
    kind: type[BaseModel], value: Any, path: tuple[str, ...], change: Callable[[str, Any], Any]
) -> Any:
    given = vars(value) if isinstance(value, BaseModel) else value
    if not isinstance(given, Mapping):
        return value
    fields = {name: field for name, field in kind.model_fields.items() if name in given}
    changed = {name: with_paths(field.annotation, given[name], (*path, name), change) for name, field in fields.items()}
    for name, field in fields.items():
        match changed[name]:
            case [str(program), *rest] if "/" in program and any(isinstance(each, Program) for each in field.metadata):
                changed[name] = type(changed[name])([change(key_name((*path, name)), program), *rest])
    return value.model_copy(update=changed) if isinstance(value, BaseModel) else {**given, **changed}


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
