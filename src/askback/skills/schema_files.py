"""Files in the schemas of a skill: inputs that are given as files, and files that an output names. Pure.

An input is a file by `x-input-source`, or by default in a package that relies on it. An output names a file by a property
with `"x-type": "artifact"`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from askback.core.interactions import Json
from askback.core.values import referenced
from askback.skills.diagnostics import Problem, short, warning
from askback.skills.field_values import FILE_TYPES, MANIFEST
from askback.skills.json_schema import property_schema, resolve

SOURCE = "x-input-source"
_BRANCHES = ("anyOf", "oneOf")
_PARTS = ("allOf", *_BRANCHES)
_MAX_DEPTH = 64
_MAX_STEPS = 200_000

Path = tuple[str | int, ...]
Schema = Mapping[str, Any]


# Inputs.


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


# Outputs.


class TooLarge(ValueError):
    """The output is too large to look for files in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFile:
    """One file that an output names at a path in it. An empty name is allowed if the property is optional."""

    path: Path
    name: str
    required: bool
    is_manifest: bool
    """Whether the file lists further files."""


def marks_files(schema: Any) -> bool:
    """Whether anything in a schema is the name of a file."""
    return any(keyword.startswith("x-type: ") for keyword in file_keywords(schema))


def file_keywords(schema: Any) -> frozenset[str]:
    """The keywords for files that occur in a schema, with their values: `x-type: artifact`."""
    found: set[str] = set()
    pending = [schema]
    while pending:
        node = pending.pop()
        if isinstance(node, Mapping):
            pending += node.values()
            if file_type(node) is not None:
                found.add(f"x-type: {node['x-type']}")
                role = node.get("x-role")
                found |= {"x-filename"} if isinstance(node.get("x-filename"), str) else set()
                found |= {"x-role: artifact-manifest" if role == MANIFEST else "x-role: *"} if role else set()
        elif isinstance(node, list):
            pending += node
    return frozenset(found)


def file_type(schema: Schema) -> str | None:
    kind = schema.get("x-type")
    return kind if isinstance(kind, str) and kind in FILE_TYPES else None


def type_problems(place: str, schema: Any) -> tuple[Problem, ...]:
    """An `x-type` of a property that is not known has no effect."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    fields = properties.items() if isinstance(properties, Mapping) else ()
    kinds = {name: field["x-type"] for name, field in fields if isinstance(field, Mapping) and "x-type" in field}
    fix = "use " + ", ".join(f'"{known}"' for known in FILE_TYPES)
    return tuple(
        warning(f"{place}: properties.{name}.x-type", f"{short(kind)} is unknown", fix)
        for name, kind in kinds.items()
        if kind not in FILE_TYPES
    )


class FileSearch:
    """Looks for the names of files in outputs. All searches together are bounded: a hostile engine sends many outputs."""

    def __init__(self, schema: Any) -> None:
        self._document = schema
        self._left = _MAX_STEPS

    def named_in(self, output: Json) -> list[NamedFile]:
        """The files that a valid output names, each once. Raises `TooLarge`."""
        found = self._files(self._document, output, (), required=True, depth=0)
        return list({each.path: each for each in found}.values())

    def _files(self, schema: Any, value: Json, path: Path, *, required: bool, depth: int) -> Iterator[NamedFile]:
        if depth > _MAX_DEPTH:
            raise TooLarge
        for form in self._forms(schema, value, 0):
            if file_type(form) is not None:
                yield from _named(form, value, path, required=required)
            needed = form.get("required")
            for name, part, inner in _parts(form, value):
                is_needed = isinstance(name, int) or (isinstance(needed, list) and name in needed)
                yield from self._files(part, inner, (*path, name), required=is_needed, depth=depth + 1)

    def _forms(self, schema: Any, value: Json, depth: int) -> Iterator[Schema]:
        """The schema, its reference and its parts. Of alternatives, those that the value can match."""
        self._left -= 1
        if self._left < 0 or depth > _MAX_DEPTH:
            raise TooLarge
        if not isinstance(schema, Mapping):
            return
        yield schema
        if isinstance(schema.get("$ref"), str):
            yield from self._forms(referenced(self._document, schema["$ref"]), value, depth + 1)
        for word in _PARTS:
            parts = schema.get(word)
            for part in parts if isinstance(parts, list) else ():
                if word not in _BRANCHES or self._fits(part, value):
                    yield from self._forms(part, value, depth + 1)

    def _fits(self, branch: Any, value: Json) -> bool:
        """False if a constant, a choice or a required property of the alternative contradicts the value."""
        branch = resolve(self._document, branch)
        if not isinstance(branch, Mapping) or not isinstance(value, dict):
            return branch is not False
        needed, fields = branch.get("required"), branch.get("properties")
        if isinstance(needed, list) and any(name not in value for name in needed):
            return False
        known = fields.items() if isinstance(fields, Mapping) else ()
        return not any(name in value and _contradicts(field, value[name]) for name, field in known)


def _contradicts(field: Any, value: Json) -> bool:
    if not isinstance(field, Mapping):
        return field is False
    wrong_choice = isinstance(field.get("enum"), list) and value not in field["enum"]
    return wrong_choice or ("const" in field and field["const"] != value)


def _named(form: Schema, value: Json, path: Path, *, required: bool) -> Iterator[NamedFile]:
    """A text is one name, a list of texts several."""
    names = enumerate(value) if isinstance(value, list) else ()
    texts = [(path, value)] if isinstance(value, str) else [((*path, index), name) for index, name in names]
    is_manifest = MANIFEST in (form.get("x-type"), form.get("x-role"))
    for place, name in texts:
        if isinstance(name, str):
            yield NamedFile(path=place, name=name, required=required, is_manifest=is_manifest)


def _parts(form: Schema, value: Json) -> Iterator[tuple[str | int, Any, Json]]:
    if isinstance(value, dict):
        fields = form.get("properties")
        known = fields if isinstance(fields, Mapping) else {}
        rest = form.get("additionalProperties")
        for name, inner in value.items():
            if (part := known.get(name, rest)) is not None:
                yield name, part, inner
    elif isinstance(value, list) and isinstance(form.get("items"), Mapping):
        yield from ((index, form["items"], inner) for index, inner in enumerate(value))


def with_names(output: Json, names: Mapping[Path, str]) -> Json:
    """The output with other names at these paths."""
    if () in names:
        return names[()]
    below: dict[str | int, dict[Path, str]] = {}
    for (first, *rest), name in names.items():
        below.setdefault(first, {})[tuple(rest)] = name
    if isinstance(output, dict):
        return {key: with_names(value, below[key]) if key in below else value for key, value in output.items()}
    if isinstance(output, list):
        return [with_names(value, below[at]) if at in below else value for at, value in enumerate(output)]
    return output
