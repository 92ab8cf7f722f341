"""JSON Schemas: compiling them, validating values, and messages that say where a value is wrong."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import jsonschema_rs
from jsonschema_rs import ValidationError
from jsonschema_rs import ValidationErrorKind as Kind

from askback.core.errors import FieldCode, FieldProblem
from askback.core.interactions import Json
from askback.core.values import referenced
from askback.skills.diagnostics import printable, problem_at, short, unknown_name
from askback.skills.schema_work import MAX_LISTED, MAX_STEPS, SchemaWork, TooMuchWork
from askback.text.formatting import cut
from askback.text.json_text import is_encodable

MAX_PROBLEMS = 50
MAX_COUNTED = 1000
WHOLE_WEIGHT = 256_000
"""In a larger value only the first error is looked for: the validator copies the value into each error."""
MAX_DEPTH = 100
MAX_VALUES = 1_000_000
MAX_NOT_JSON = 1000

_DEFAULT_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_DRAFTS = (
    "http://json-schema.org/draft-04/schema",
    "http://json-schema.org/draft-06/schema",
    "http://json-schema.org/draft-07/schema",
    "https://json-schema.org/draft/2019-09/schema",
    _DEFAULT_DRAFT,
)
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


class SchemaInvalid(ValueError):
    """The schema itself is wrong. The path of each problem begins with the name of the schema."""

    def __init__(self, *problems: FieldProblem) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class Checker:
    """A compiled schema."""

    def __init__(self, document: Json, validator: jsonschema_rs.Validator, work: SchemaWork | None = None) -> None:
        self._document = document
        self._validator = validator
        self._work = work or SchemaWork({})
        self.is_quick = self._work.is_small()
        """Whether a small value may be validated in the event loop."""

    def problems(self, value: Json, root: str = "input") -> tuple[FieldProblem, ...]:
        """The errors in the value, 50 at most, in the order of the document. Never raises."""
        scanned = scan(value, root)
        if scanned.problems:
            return _capped(scanned.problems)
        cost = self._work.cost(value)
        if cost.steps > MAX_STEPS:
            return (
                problem_at(root, (), "cannot be validated: it is too large for a schema with this many subschemas"),
            )
        try:
            if self._validator.is_valid(value):
                return ()
        except ValueError as error:
            return (problem_at(root, (), f"cannot be validated: {error}"),)
        if cost.listed > MAX_LISTED and not self._work.stops_at_first:
            return (problem_at(root, (), "does not match the schema; the value is too large to list its errors"),)
        whole = scanned.weight <= WHOLE_WEIGHT and cost.listed <= MAX_LISTED
        errors: list[ValidationError] = []
        try:
            if whole:
                errors = list(itertools.islice(self._validator.iter_errors(value), MAX_COUNTED))
            else:
                self._validator.validate(value)
        except ValidationError as first:
            errors = [first]
        found = [each for error in errors for each in describe(error, value, self._document)]
        lines = (each.line(root) for each in sorted(found, key=SchemaError.sort_key))
        return _capped(tuple(dict.fromkeys(lines)))


def _capped(problems: tuple[FieldProblem, ...]) -> tuple[FieldProblem, ...]:
    if len(problems) <= MAX_PROBLEMS:
        return problems
    return (*problems[:MAX_PROBLEMS], FieldProblem(f"and {len(problems) - MAX_PROBLEMS} more"))


# Values that are not JSON, or too large to validate.


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """`weight` is the size of the value, roughly in bytes."""

    problems: tuple[FieldProblem, ...]
    weight: int


def scan(value: Json, root: str) -> Scan:
    """Look for anything in a value that JSON does not have, and for too much of it. Never raises."""
    problems: list[FieldProblem] = []
    weight = 0
    for count, (path, item) in enumerate(_walk(value)):
        reason = _not_json(item, len(path))
        if reason is not None:
            problems.append(problem_at(root, path, reason))
        else:
            weight += 4 + (sum(map(len, item)) if isinstance(item, dict) else len(item) if isinstance(item, str) else 0)
        if count >= MAX_VALUES or len(problems) > MAX_NOT_JSON:
            problems.append(problem_at(root, (), "has too many values or too many errors to check all of them"))
            break
    return Scan(problems=tuple(problems), weight=weight)


def _walk(value: Json) -> Iterator[tuple[Sequence[Any], Any]]:
    """Every value with its path, parents first. Values that are nested too deep are not entered."""
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


_TOO_LARGE = "is a number of more than 64 bits; send a smaller one, or a string if the schema allows it"


def _not_json(item: Any, depth: int) -> str | None:
    if depth > MAX_DEPTH:
        return f"is nested deeper than {MAX_DEPTH} levels"
    match item:
        case None | bool() | list() | tuple():
            return None
        case int():
            return None if -(2**63) <= item < 2**64 else _TOO_LARGE
        case float():
            return None if math.isfinite(item) else "is not a finite number"
        case str():
            return None if is_encodable(item) else "has a lone surrogate, which is not a character"
        case dict():
            valid = all(isinstance(key, str) and is_encodable(key) for key in item)
            return None if valid else "has a property name that is not a valid string"
        case _:
            return f"is of the type {type(item).__name__}, which JSON does not have"


# Compiling.


def compile_schema(document: Json, where: str) -> Checker:
    """Compile a schema. Raises `SchemaInvalid` with every error; `where` is the name of the schema."""
    problems = (
        _capped(scan(document, where).problems)
        or _draft_problems(document, where)
        or _capped(_reference_problems(document, where))
    )
    if problems:
        raise SchemaInvalid(*problems)
    work = _bounded_work(document, where)
    try:
        return Checker(document, _validator(document), work)
    except jsonschema_rs.ValidationError as error:
        raise SchemaInvalid(problem_at(where, error.instance_path, library_message(error, error.instance))) from error
    except ValueError as error:
        raise SchemaInvalid(problem_at(where, (), str(error))) from error


def _bounded_work(document: Json, where: str) -> SchemaWork:
    """Bound the cost of compiling the schema and of validating a value, before the validator sees it."""
    try:
        work = SchemaWork(document)
    except TooMuchWork as error:
        raise SchemaInvalid(problem_at(where, (), "has too many references and anchors")) from error
    if (problem := work.problem()) is not None:
        path, message = problem
        raise SchemaInvalid(problem_at(where, path, message))
    return work


def _validator(document: Json) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(document, retriever=_refuse, validate_formats=True, mask=MASK)


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is outside this document")


def _draft_problems(document: Json, where: str) -> tuple[FieldProblem, ...]:
    """Errors of the schema itself, by the meta-schema of its draft."""
    if isinstance(document, bool):
        return ()
    if not isinstance(document, dict):
        return (problem_at(where, (), "a JSON Schema is an object"),)
    named = document.get("$schema", _DEFAULT_DRAFT)
    draft = named.rstrip("#") if isinstance(named, str) else None
    if draft not in _DRAFTS:
        message = f"this draft is unknown; use {_DEFAULT_DRAFT} or leave it out"
        return (problem_at(where, ("$schema",), message),)
    if jsonschema_rs.meta.is_valid(document):
        return ()
    return Checker({}, _validator({"$schema": named, "$ref": draft})).problems(document, where)


def _reference_problems(document: Json, where: str) -> tuple[FieldProblem, ...]:
    advice = "points outside this document; put it under $defs and refer to #/$defs/…"
    outside = [(path, target) for path, target in _references(document, ()) if not target.startswith("#")]
    return tuple(problem_at(where, path, f"{target!r} {advice}") for path, target in outside)


def _references(node: Any, path: tuple[str | int, ...]) -> list[tuple[tuple[str | int, ...], str]]:
    found: list[tuple[tuple[str | int, ...], str]] = []
    if isinstance(node, Mapping):
        for key, inner in node.items():
            if key in _REFERENCES and isinstance(inner, str):
                found.append(((*path, key), inner))
            elif key not in ("const", "enum", "default", "examples"):
                found.extend(_references(inner, (*path, key)))
    elif isinstance(node, list):
        for index, inner in enumerate(node):
            found.extend(_references(inner, (*path, index)))
    return found


def resolve(document: Json, node: Json) -> Json:
    """Follow local references from `node`, a few at most."""
    for _ in range(8):
        target = node.get("$ref") if isinstance(node, Mapping) else None
        if not isinstance(target, str) or not target.startswith("#"):
            return node
        if (node := referenced(document, target)) is None:
            return {}
    return {}


def property_schema(schema: Mapping[str, Any] | None, name: str) -> Mapping[str, Any] | None:
    """The schema of one property, or None."""
    properties = schema.get("properties") if schema is not None else None
    found = resolve(schema, properties.get(name)) if isinstance(properties, Mapping) else None
    return found if isinstance(found, Mapping) else None


MASK = "\ufdd0"
"""What the validator writes in the place of a value, which may be huge. It is not a character of any text."""
_MAX_MESSAGE = 300
_MAX_OPTIONS = 20

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaError:
    path: Path
    message: str
    code: FieldCode = FieldCode.INVALID

    def line(self, root: str) -> FieldProblem:
        return problem_at(root, self.path, self.message, self.code)

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
            return [SchemaError(path=(*path, kind.property), message="is required", code=FieldCode.REQUIRED)]
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
    return printable(cut(error.message, _MAX_MESSAGE).replace(MASK, short(item)))


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
        names = [f'"{name}"' for name in dict.fromkeys(name for each in types for name in each)]
        plural = "s" if len(names) > 1 else ""
        message = f"{short(_at(value, path))} is not of type{plural} {', '.join(names)}"
        return SchemaError(path=path, message=message)
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
