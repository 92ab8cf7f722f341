"""JSON Schemas: compiled once, with no network and no file ever read, and every mistake of a value named by its path.

A schema is checked against its own draft before it is used. References stay within the document.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import jsonschema_rs

from askback.core.interactions import Json
from askback.skills.schema_errors import Mistake, mistakes_of, spell, survey
from askback.skills.schema_work import MOST_LISTED, MOST_STEPS, SchemaWork, TooMuchWork

MAX_PROBLEMS = 50
MAX_COUNTED = 1000
WHOLE_WEIGHT = 256_000
"""Above this size only the first mistake of a value is looked for: the validator copies the value into each."""

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
    """The schema itself is wrong. `problems` names each mistake by its path."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class Checker:
    """A compiled schema."""

    def __init__(self, document: Json, validator: jsonschema_rs.Validator, work: SchemaWork | None = None) -> None:
        self._document = document
        self._validator = validator
        self._work = work or SchemaWork({})
        self.is_quick = self._work.is_small()
        """Whether a small value may be checked in the event loop."""

    def problems(self, value: Json, root: str = "input") -> tuple[str, ...]:
        """Every mistake of the value, at most fifty, in the order of the document. Never raises."""
        seen = survey(value, root)
        if seen.problems:
            return _capped(seen.problems)
        cost = self._work.cost(value)
        if cost.steps > MOST_STEPS:
            return (f"{root}: cannot be checked: it is too large for a schema that applies so many others to it",)
        try:
            if self._validator.is_valid(value):
                return ()
        except ValueError as error:
            return (f"{root}: cannot be checked: {error}",)
        if cost.listed > MOST_LISTED and not self._work.stops_at_first:
            return (f"{root}: does not fit the schema; the value is too large to list its mistakes",)
        whole = seen.weight <= WHOLE_WEIGHT and cost.listed <= MOST_LISTED
        found = {mistake.text_at(root): None for mistake in self._mistakes(value, whole=whole)}
        return _capped(tuple(found))

    def _mistakes(self, value: Json, *, whole: bool) -> list[Mistake]:
        if whole:
            errors = list(itertools.islice(self._validator.iter_errors(value), MAX_COUNTED))
        else:
            errors = [_first_error(self._validator, value)]
        found = [mistake for error in errors for mistake in mistakes_of(error, value, self._document)]
        return sorted(found, key=Mistake.order)


def _first_error(validator: jsonschema_rs.Validator, value: Json) -> jsonschema_rs.ValidationError:
    try:
        validator.validate(value)
    except jsonschema_rs.ValidationError as error:
        return error
    raise AssertionError("the validator found a mistake and then none")


def _capped(problems: tuple[str, ...]) -> tuple[str, ...]:
    if len(problems) <= MAX_PROBLEMS:
        return problems
    return (*problems[:MAX_PROBLEMS], f"and {len(problems) - MAX_PROBLEMS} more")


def compile_schema(document: Json, where: str) -> Checker:
    """Compile a schema; raises `SchemaInvalid` with every mistake, each beginning with `where`."""
    problems = (
        survey(document, where).problems or _draft_problems(document, where) or _reference_problems(document, where)
    )
    if problems:
        raise SchemaInvalid(_capped(tuple(problems)))
    work = _bounded_work(document, where)
    try:
        return Checker(document, _validator(document), work)
    except jsonschema_rs.ValidationError as error:
        raise SchemaInvalid([f"{spell(where, error.instance_path)}: {error.message}"]) from error
    except ValueError as error:
        raise SchemaInvalid([f"{where}: {error}"]) from error


def _bounded_work(document: Json, where: str) -> SchemaWork:
    """Before the validator sees a schema: compiling it, and each check, may cost no more than this allows."""
    try:
        work = SchemaWork(document)
    except TooMuchWork as fault:
        raise SchemaInvalid([f"{where}: has too many references and anchors"]) from fault
    if (problem := work.problem()) is not None:
        path, told = problem
        raise SchemaInvalid([f"{spell(where, path)}: {told}"])
    return work


def _validator(document: Json) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(document, retriever=_refuse, validate_formats=True, mask="the value")


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is outside of this document")


def _draft_problems(document: Json, where: str) -> tuple[str, ...]:
    """What the schema's own draft says against it."""
    if isinstance(document, bool):
        return ()
    if not isinstance(document, dict):
        return (f"{where}: a JSON Schema is an object",)
    named = document.get("$schema", _DEFAULT_DRAFT)
    draft = named.rstrip("#") if isinstance(named, str) else None
    if draft not in _DRAFTS:
        return (f"{where}.$schema: this draft is unknown; use {_DEFAULT_DRAFT} or leave it out",)
    if jsonschema_rs.meta.is_valid(document):
        return ()
    return Checker({}, _validator({"$schema": named, "$ref": draft})).problems(document, where)


def _reference_problems(document: Json, where: str) -> tuple[str, ...]:
    outside = [
        f"{spell(where, path)}: {target!r} points outside of this document; put it under $defs and refer to #/$defs/…"
        for path, target in _references(document, ())
        if not target.startswith("#")
    ]
    return tuple(outside)


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
    """The schema that `node` stands for: local references are followed, a few times at most."""
    for _ in range(8):
        target = node.get("$ref") if isinstance(node, Mapping) else None
        if not isinstance(target, str) or not target.startswith("#"):
            return node
        node = _pointed(document, target[1:])
    return {}


def _pointed(document: Json, pointer: str) -> Json:
    if pointer and not pointer.startswith("/"):
        return {}
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(document, Mapping) or name not in document:
            return {}
        document = document[name]
    return document


def property_schema(schema: Mapping[str, Any] | None, name: str) -> Mapping[str, Any] | None:
    """What a schema says of one of its properties; None where it says nothing."""
    properties = schema.get("properties") if schema is not None else None
    found = resolve(schema, properties.get(name)) if isinstance(properties, Mapping) else None
    return found if isinstance(found, Mapping) else None
