"""Which parts of a value are secret by its JSON Schema: those with `"format": "password"` or `"writeOnly": true`. Pure.

A mark counts wherever it is: in a nested object, a list, an alternative, a pattern, or behind a reference. A property
with a mark anywhere inside is secret. A mark that belongs to no known property makes the whole value secret, and so
does a reference that cannot be followed. The cost is linear in the size of the schema, even with cyclic references.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from askback.core.values import referenced

_UNKNOWN_TARGETS = ("$dynamicRef", "$recursiveRef")
_NO_VALUES = ("$defs", "definitions")
"""Definitions count where they are referred to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrecy:
    """What must not be shown of a value: all of it, or the properties with these names."""

    whole: bool = False
    fields: frozenset[str] = frozenset()

    @classmethod
    def by(cls, schema: Any) -> Secrecy:
        return _Document(schema).secrecy() if isinstance(schema, Mapping) else cls()

    @property
    def any(self) -> bool:
        return self.whole or bool(self.fields)

    def covers(self, other: Secrecy) -> bool:
        """Whether it hides at least what the other one hides."""
        return self.whole or (not other.whole and other.fields <= self.fields)

    def shown(self, value: Any) -> Any:
        """The value with null for everything secret."""
        if not self._has_visible_parts(value):
            return None
        return {**value, **dict.fromkeys(hidden)} if (hidden := self._hidden_in(value)) else value

    def hidden(self, value: Any) -> Any:
        """What is secret in the value: all of it, or its secret properties; None if nothing is."""
        return (self._hidden_in(value) or None) if self._has_visible_parts(value) else value

    def _has_visible_parts(self, value: Any) -> bool:
        """False also for a value that is no object though the schema has secret properties: it may be one of them."""
        return not self.whole and (not self.fields or isinstance(value, Mapping))

    def _hidden_in(self, value: Any) -> dict[str, Any]:
        return {name: each for name, each in value.items() if name in self.fields} if self.fields else {}


class _Document:
    """A schema, with its objects and lists as the nodes of a graph. An edge leads to a part, or along a reference."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._nodes = list(_nodes(root))
        # Below an `$id`, a reference starts elsewhere.
        self._is_one = not any(
            isinstance(node, Mapping) and isinstance(node.get("$id"), str) for node in self._nodes if node is not root
        )
        self._secret = self._leading_to_marks()

    def secrecy(self) -> Secrecy:
        fields: set[str] = set()
        for form in self._forms():
            separate: tuple[str, ...] = ("$ref", *_NO_VALUES)
            if isinstance(properties := form.get("properties"), Mapping):
                fields |= {name for name, each in properties.items() if id(each) in self._secret}
                separate = (*separate, "properties")
            if isinstance(form.get("allOf"), list):
                separate = (*separate, "allOf")
            rest = (each for word, each in form.items() if word not in separate)
            if self._is_marked(form) or any(id(each) in self._secret for each in rest):
                return Secrecy(whole=True)
        return Secrecy(fields=frozenset(fields))

    def _forms(self) -> Iterator[Mapping[str, Any]]:
        """The schemas that all apply to the whole value."""
        seen: set[int] = set()
        pending: list[Any] = [self._root]
        while pending:
            form = pending.pop()
            if id(form) in seen or not isinstance(form, Mapping):
                continue
            seen.add(id(form))
            yield form
            parts = form.get("allOf")
            pending += [*(parts if isinstance(parts, list) else ()), self._target(form)]

    def _leading_to_marks(self) -> set[int]:
        """The ids of the nodes from which a mark can be reached."""
        sources: dict[int, list[int]] = {}
        for node in self._nodes:
            for part in (*_parts(node), self._target(node)):
                sources.setdefault(id(part), []).append(id(node))
        found: set[int] = set()
        pending = [id(node) for node in self._nodes if self._is_marked(node)]
        while pending:
            if (node_id := pending.pop()) not in found:
                found.add(node_id)
                pending += sources.get(node_id, ())
        return found

    def _is_marked(self, node: Any) -> bool:
        if not isinstance(node, Mapping):
            return False
        if node.get("format") == "password" or node.get("writeOnly") is True:
            return True
        is_lost = isinstance(node.get("$ref"), str) and self._target(node) is None
        return is_lost or any(isinstance(node.get(word), str) for word in _UNKNOWN_TARGETS)

    def _target(self, node: Any) -> Any:
        """What the reference of a node leads to; None if it has none, or if that is unknown."""
        reference = node.get("$ref") if isinstance(node, Mapping) else None
        return referenced(self._root, reference) if isinstance(reference, str) and self._is_one else None


def _nodes(root: Any) -> Iterator[Any]:
    seen: set[int] = set()
    pending = [root]
    while pending:
        node = pending.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            pending += _parts(node)


def _parts(node: Any) -> list[Any]:
    parts = node.values() if isinstance(node, Mapping) else node
    return [each for each in parts if isinstance(each, Mapping | list | tuple)]
