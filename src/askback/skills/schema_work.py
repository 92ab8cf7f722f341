"""How much work a JSON Schema can cause, counted before the validator sees it. Pure, and linear in the schema.

Keywords such as `allOf` and `$ref` apply schemas to the same value (in place); `properties` and `items` apply them to
values inside it. A schema may refer to itself through values inside, because each step consumes a part of the value.
The validator expands everything that applies in place, so a few references that each occur twice can cause any amount
of work.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any
from urllib.parse import unquote

from askback.core.interactions import Json
from askback.core.values import at_pointer

MAX_IN_PLACE = 10_000
"""Schemas that may apply to one value. The validator needs about 5 KB for each one that the value does not match."""
MAX_STEPS = 10_000_000
"""Schemas that may apply to a value and all values inside it, in total; about 15 ns each."""
MAX_LISTED = 100_000_000
"""Bytes that the validator may need to list the errors of a value."""
_ERROR_BYTES = 5_000
_QUOTED_BYTES = 16
_FEW = 500
_MAX_LOOKUPS = 1_000_000
"""Nodes that are visited to resolve all references of a document."""

_LISTS = ("allOf", "anyOf", "oneOf")
_SINGLE = ("not", "if", "then", "else")
_NAMED = ("dependentSchemas", "dependencies")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ANY_PROPERTY = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_ANY_ITEM = ("items", "additionalItems", "unevaluatedItems", "contains")

Node = Mapping[str, Any]
Path = tuple[str | int, ...]


class TooMuchWork(Exception):
    """Counting itself would take too long."""


@dataclass(slots=True)
class _Schema:
    """One subschema, with the indexes of the subschemas that it applies."""

    in_place: list[int] = field(default_factory=list)
    any_property: list[int] = field(default_factory=list)
    any_item: list[int] = field(default_factory=list)
    properties: dict[str, int] = field(default_factory=dict)
    items: list[int] = field(default_factory=list)
    weight: int = 1
    """Itself, each `true` and `false` that it applies in place, and the names that it requires."""
    patterns: int = 0
    quoted: int = 0
    """Characters of `enum` and `const`, which the validator copies into each error."""
    chooses: bool = False
    """It has `anyOf` or `oneOf`, whose error contains every error of every alternative."""
    tracks: bool = False
    """It has `unevaluated…`, for which the validator compiles everything that applies in place a second time."""

    def applied(self) -> list[int]:
        placed = [index for index in self.items if index >= 0]
        return [*self.in_place, *self.any_property, *self.any_item, *self.properties.values(), *placed]


class _References:
    """The targets of references. Where the drafts differ, every target that one of them allows."""

    def __init__(self, document: Node) -> None:
        self._document = document
        self._roots: list[Node] = [document]
        self._anchors: dict[str, list[Node]] = {}
        self._lookups = 0
        for _, node in _mappings(document):
            self._register(node)

    def _register(self, node: Node) -> None:
        for word in ("$anchor", "$dynamicAnchor"):
            if isinstance(node.get(word), str):
                self._anchors.setdefault(node[word], []).append(node)
        for word in ("$id", "id"):
            name = node.get(word)
            if isinstance(name, str) and node is not self._document:
                self._roots.append(node)
                if "#" in name:
                    self._anchors.setdefault(name.partition("#")[2], []).append(node)

    def targets(self, reference: str) -> list[Node]:
        fragment = unquote(reference.partition("#")[2])
        anchored = self._anchors.get(fragment, ())
        self._lookups += len(self._roots) + len(anchored)
        if self._lookups > _MAX_LOOKUPS:
            raise TooMuchWork
        found = {id(node): node for node in anchored}
        if not fragment or fragment.startswith("/"):
            for root in self._roots:
                node = at_pointer(root, fragment)
                if isinstance(node, Mapping):
                    found[id(node)] = node
        return list(found.values())


def _light(node: Node) -> int:
    """What a schema checks besides its subschemas: lists of required names, and `true` and `false` in place."""
    named = [value for word in (*_NAMED, "dependentRequired") if isinstance(value := node.get(word), Mapping)]
    lists = [node.get("required"), *(inner for each in named for inner in each.values())]
    found = sum(len(each) for each in lists if isinstance(each, list))
    for word in _LISTS:
        if isinstance(branches := node.get(word), list):
            found += sum(isinstance(each, bool) for each in branches)
    return found


def _mappings(document: Json) -> Iterator[tuple[Path, Node]]:
    """Every object in the document, with its path; parents first."""
    left: list[tuple[Path, Json]] = [((), document)]
    while left:
        path, item = left.pop()
        if isinstance(item, Mapping):
            yield path, item
            left.extend(((*path, name), inner) for name, inner in item.items())
        elif isinstance(item, list):
            left.extend(((*path, place), inner) for place, inner in enumerate(item))


class SchemaWork:
    """The graph of a document's subschemas. Raises `TooMuchWork` if the graph itself is too large."""

    def __init__(self, document: Json) -> None:
        self._schemas: list[_Schema] = []
        self._indexes: dict[int, int] = {}
        self._left: list[Node] = []
        self._document = document
        if isinstance(document, Mapping):
            self._references = _References(document)
            self._index(document)
            while self._left:
                self._read(self._left.pop())
        self._order, self._endless = self._sorted(lambda schema: schema.in_place)
        self.stops_at_first = not any(schema.chooses for schema in self._schemas)
        """The validator can return one error without listing all: there are no alternatives."""
        self._rank = {index: rank for rank, index in enumerate(self._order)}

    def _index(self, node: Node) -> int:
        if id(node) not in self._indexes:
            self._indexes[id(node)] = len(self._schemas)
            self._schemas.append(_Schema())
            self._left.append(node)
        return self._indexes[id(node)]

    def _all(self, values: Any) -> list[int]:
        """The schemas among the values. `true` and `false` cost next to nothing."""
        return [self._index(value) for value in values if isinstance(value, Mapping)]

    def _read(self, node: Node) -> None:
        schema = self._schemas[self._index(node)]
        schema.weight += _light(node)
        schema.quoted = sum(len(json.dumps(node[word])) for word in ("enum", "const") if word in node)
        for word, value in node.items():
            if word in _REFERENCES and isinstance(value, str):
                # A schema that only refers to itself causes no work.
                schema.in_place += self._all(each for each in self._references.targets(value) if each is not node)
            elif word in _LISTS and isinstance(value, list):
                schema.in_place += self._all(value)
                schema.chooses = schema.chooses or word != "allOf"
            elif word in _SINGLE:
                schema.in_place += self._all([value])
            elif word in _NAMED and isinstance(value, Mapping):
                schema.in_place += self._all(value.values())
            else:
                self._read_inside(schema, word, value)

    def _read_inside(self, schema: _Schema, word: str, value: Any) -> None:
        schema.tracks = schema.tracks or word in ("unevaluatedProperties", "unevaluatedItems")
        if word == "properties" and isinstance(value, Mapping):
            schema.properties = {name: self._index(each) for name, each in value.items() if isinstance(each, Mapping)}
        elif word == "patternProperties" and isinstance(value, Mapping):
            schema.any_property += self._all(value.values())
            schema.patterns = len(value)
        elif word in _ANY_PROPERTY:
            schema.any_property += self._all([value])
        elif word in ("items", "prefixItems") and isinstance(value, list):
            schema.items += [self._index(each) if isinstance(each, Mapping) else -1 for each in value]
        elif word in _ANY_ITEM:
            schema.any_item += self._all([value])

    def _sorted(self, edges: Callable[[_Schema], Iterable[int]]) -> tuple[list[int], list[int]]:
        """Topological order: every schema before those that it applies; and those that are in or behind a cycle."""
        waiting = [0] * len(self._schemas)
        for schema in self._schemas:
            for index in edges(schema):
                waiting[index] += 1
        ready = [index for index, count in enumerate(waiting) if not count]
        order: list[int] = []
        while ready:
            order.append(ready.pop())
            for index in edges(self._schemas[order[-1]]):
                waiting[index] -= 1
                if not waiting[index]:
                    ready.append(index)
        return order, [index for index, count in enumerate(waiting) if count]

    def is_small(self) -> bool:
        """Whether a small value is validated quickly: few schemas, even with all references expanded."""
        order, endless = self._sorted(_Schema.applied)
        total = [schema.weight + schema.patterns for schema in self._schemas]
        for index in reversed(order):
            total[index] += sum(total[each] for each in self._schemas[index].applied())
            if total[index] > _FEW:
                return False
        return not endless

    def _first_too_wide(self) -> int | None:
        """The first schema, inner ones first, that expands to too many schemas for one value."""
        plain = [schema.weight for schema in self._schemas]
        compiled = [*plain]
        for index in reversed(self._order):
            schema = self._schemas[index]
            plain[index] += sum(plain[each] for each in schema.in_place)
            compiled[index] += sum(compiled[each] for each in schema.in_place)
            if schema.tracks:
                compiled[index] += plain[index]
            if compiled[index] > MAX_IN_PLACE:
                return index
        return None

    def problem(self) -> tuple[Path, str] | None:
        """The path and the reason if the schema is refused."""
        if self._endless:
            return self._path(self._endless[0]), "applies itself to the same value in an endless loop"
        wide = self._first_too_wide()
        if wide is None:
            return None
        message = f"expands to more than {MAX_IN_PLACE:,} schemas for one value; use fewer nested references"
        return self._path(wide), message

    def _path(self, index: int) -> Path:
        wanted = next(key for key, each in self._indexes.items() if each == index)
        return next(path for path, node in _mappings(self._document) if id(node) == wanted)

    def cost(self, value: Json) -> Cost:
        """Follow the schema through the value. Stops above `MAX_STEPS`; the cost is then that of a part."""
        walk = Cost(self._schemas, self._rank)
        with suppress(TooMuchWork):
            walk.weigh(value, ((0, 1),) if self._schemas else ())
        return walk


Counts = tuple[tuple[int, int], ...]
"""Pairs of a schema and how often it applies."""


class _Applied:
    """What applies to one value: the given schemas, and those that they apply in place."""

    def __init__(self, schemas: list[_Schema], counts: dict[int, int]) -> None:
        self.steps = sum(schemas[index].weight * count for index, count in counts.items())
        self.patterns = sum(schemas[index].patterns * count for index, count in counts.items())
        self.quoted = sum(schemas[index].quoted * count for index, count in counts.items())
        self.built = len(counts)
        self.any_property: dict[int, int] = {}
        self.any_item: dict[int, int] = {}
        self._inside: dict[str | int, dict[int, int]] = {}
        self._known: dict[str | int, Counts] = {}
        for index, count in counts.items():
            self._add_schema(schemas[index], count)
        self.every = {True: tuple(self.any_property.items()), False: tuple(self.any_item.items())}

    def _add_schema(self, schema: _Schema, count: int) -> None:
        for inner in schema.any_property:
            _add(self.any_property, inner, count)
        for inner in schema.any_item:
            _add(self.any_item, inner, count)
        inside: list[tuple[str | int, int]] = [*schema.properties.items(), *enumerate(schema.items)]
        for name, inner in inside:
            self.built += 1
            if inner >= 0:
                _add(self._inside.setdefault(name, {}), inner, count)

    def at(self, name: str | int) -> Counts:
        """What applies to the property of this name, or to the item at this index."""
        if name not in self._inside:
            return self.every[isinstance(name, str)]
        if name not in self._known:
            both = dict(self.any_property if isinstance(name, str) else self.any_item)
            for index, count in self._inside[name].items():
                _add(both, index, count)
            self._known[name] = tuple(both.items())
        return self._known[name]


class Cost:
    """One walk through a value. A set of schemas is expanded once, and counted wherever it applies.

    `steps` and `listed` are upper bounds: schemas applied, and bytes that a list of the value's errors takes.
    """

    def __init__(self, schemas: list[_Schema], rank: Mapping[int, int]) -> None:
        self._schemas = schemas
        self._rank = rank
        self._seen: dict[Counts, _Applied] = {}
        self.steps = 0
        self.listed = 0

    def weigh(self, value: Json, counts: Counts) -> int:
        """Count what applies to the value. Returns its size, roughly in bytes."""
        applied = self._seen.get(counts)
        if applied is None:
            applied = self._seen[counts] = _Applied(self._schemas, self._expanded(counts))
            self._count(applied.built)
        size = 8
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, Mapping):
            self._count(applied.patterns * len(value))
            size += sum(len(name) + self.weigh(each, applied.at(name)) for name, each in value.items())
        elif isinstance(value, list):
            size += sum(self.weigh(each, applied.at(place)) for place, each in enumerate(value))
        self._count(applied.steps)
        self.listed += applied.steps * (_ERROR_BYTES + size) + applied.quoted * _QUOTED_BYTES
        return size

    def _count(self, steps: int) -> None:
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise TooMuchWork

    def _expanded(self, counts: Counts) -> dict[int, int]:
        """Add the schemas that apply in place, each one after all that apply it."""
        applied = dict(counts)
        heap = [(self._rank[index], index) for index in applied]
        heapify(heap)
        while heap:
            _, index = heappop(heap)
            for inner in self._schemas[index].in_place:
                if inner not in applied:
                    heappush(heap, (self._rank[inner], inner))
                _add(applied, inner, applied[index])
        return applied


def _add(counts: dict[int, int], index: int, count: int) -> None:
    counts[index] = counts.get(index, 0) + count
