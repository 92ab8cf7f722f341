"""Which inputs of a skill are files: by `x-input-source`, or by default in a package that relies on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from askback.skills.diagnostics import Problem, short, warning
from askback.skills.json_schema import property_schema, resolve

SOURCE = "x-input-source"


def is_file_input(input_schema: Mapping[str, Any] | None, name: str) -> bool:
    """Whether an input is given as a file."""
    found = property_schema(input_schema, name)
    return found is not None and found.get(SOURCE) == "file"


def with_default_files(document: Any, *, by_default: bool) -> Any:
    """The input schema with `"x-input-source": "file"` on every input that is a file without saying so.

    In Skill-Runner every input is a file unless it is marked as inline. `extensions` is a keyword of Skill-Runner for
    files. What cannot be a path, because its type is not a string, is a value.
    """
    properties = document.get("properties") if isinstance(document, dict) else None
    if not isinstance(properties, dict):
        return document
    files = {
        name: {**found, SOURCE: "file"}
        for name, found in ((name, resolve(document, schema)) for name, schema in properties.items())
        if isinstance(found, dict) and _is_unmarked_file(found, by_default=by_default)
    }
    return {**document, "properties": {**properties, **files}} if files else document


def _is_unmarked_file(schema: Mapping[str, Any], *, by_default: bool) -> bool:
    types = schema.get("type", "string")
    can_be_path = types == "string" or (isinstance(types, list) and "string" in types)
    return SOURCE not in schema and can_be_path and (by_default or isinstance(schema.get("extensions"), list))


def default_problems(place: str, document: Mapping[str, Any]) -> tuple[Problem, ...]:
    """The unmarked inputs that are values only because of their type. In Skill-Runner they are files."""
    found = {name: resolve(document, schema) for name, schema in document.get("properties", {}).items()}
    return tuple(
        warning(f"{place}: properties.{name}", "is a value, because its type is not a string", f'write "{SOURCE}"')
        for name, schema in found.items()
        if isinstance(schema, dict) and SOURCE not in schema and not _is_unmarked_file(schema, by_default=True)
    )


def input_keywords(document: Any, used: Any) -> frozenset[str]:
    """What an input schema says about files. `used` is the same schema with the files that it does not mark."""
    found = {f"{SOURCE}: {value}" for field in _fields(document) if isinstance(value := field.get(SOURCE), str)}
    found |= {"extensions" for field in _fields(document) if "extensions" in field}
    if used is not None and used != document:
        found.add(f"no {SOURCE}")
    return frozenset(found)


def _fields(document: Any) -> list[Mapping[str, Any]]:
    properties = document.get("properties") if isinstance(document, Mapping) else None
    fields = properties.values() if isinstance(properties, Mapping) else ()
    return [resolved for field in fields if isinstance(resolved := resolve(document, field), Mapping)]


def with_files_as_paths(document: dict[str, Any]) -> dict[str, Any]:
    """The schema of a file input describes the file. The engine gets its path, so a string is validated."""
    properties = document.get("properties", {})
    paths = {name: {"type": "string"} for name in properties if is_file_input(document, name)}
    return {**document, "properties": {**properties, **paths}} if paths else document


def source_problems(place: str, document: Mapping[str, Any]) -> tuple[Problem, ...]:
    properties = document.get("properties", {})
    sources = {name: schema.get(SOURCE) for name, schema in properties.items() if isinstance(schema, dict)}
    return tuple(
        warning(f"{place}: properties.{name}.{SOURCE}", f"{short(source)} is unknown", 'use "file" or "inline"')
        for name, source in sources.items()
        if source not in (None, "file", "inline")
    )
