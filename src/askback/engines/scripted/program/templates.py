"""Texts with places in them: `{{reply}}`, `{{input.days}}`, `{{parameter.language|English}}`, `{{values.plan}}`.

A text that is one place and nothing else becomes that value with its type. Lists may hold `$each` and values `$pick`.
The script's own `values` are templates too, filled where they are asked for.
"""

from __future__ import annotations

import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_PLACE = re.compile(r"\{\{\s*([a-z_]+(?:\.[A-Za-z0-9_-]+)*)\s*(?:\|([^}]*))?\}\}")
_MOST_REPEATED = 1_000


class TemplateError(Exception):
    """The script asks for something that is not there."""


def render(value: Any, facts: Mapping[str, Any]) -> Any:
    """The value with every place in it filled."""
    if isinstance(value, str):
        return _fill(value, facts)
    if isinstance(value, list):
        return [done for item in value for done in _items(item, facts)]
    if isinstance(value, dict) and "$pick" in value:
        return _pick(value, facts)
    if isinstance(value, dict):
        return {key: render(item, facts) for key, item in value.items()}
    return value


def render_text(value: Any, facts: Mapping[str, Any]) -> str:
    """As `render`, but as a text; a list is its lines."""
    done = render(value, facts)
    return "\n".join(map(as_text, done)) if isinstance(done, list) else as_text(done)


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _items(item: Any, facts: Mapping[str, Any]) -> list[Any]:
    """`{"$each": N or list, "item": template}` is as many items; anything else is one."""
    if not isinstance(item, dict) or "$each" not in item:
        return [render(item, facts)]
    over = render(item["$each"], facts)
    if isinstance(over, str) and over.isdecimal():
        over = int(over)
    if isinstance(over, int):
        over = list(range(1, min(over, _MOST_REPEATED) + 1))
    if not isinstance(over, list):
        raise TemplateError(f"$each needs a number or a list, not {as_text(over)[:80]}")
    return [render(item.get("item"), {**facts, "index": at, "item": one}) for at, one in enumerate(over, start=1)]


def _pick(value: dict[str, Any], facts: Mapping[str, Any]) -> Any:
    """`{"$pick": key, "from": {key: template, "*": template}}`, or from a list by number from 1, over and over."""
    key, choices = render(value["$pick"], facts), value.get("from")
    if (
        isinstance(choices, dict)
        and (choice := choices.get(as_text(key).strip().lower(), choices.get("*"))) is not None
    ):
        return render(choice, facts)
    if isinstance(choices, list) and choices and isinstance(key, int):
        return render(choices[(key - 1) % len(choices)], facts)
    raise TemplateError(f"$pick finds nothing for {as_text(key)[:80]}")


def _fill(text: str, facts: Mapping[str, Any]) -> Any:
    whole = _PLACE.fullmatch(text)
    if whole is not None:
        return _value(whole, facts)
    return _PLACE.sub(lambda place: as_text(_value(place, facts)), text)


def _value(place: re.Match[str], facts: Mapping[str, Any]) -> Any:
    names = place[1].split(".")
    value: Any = facts
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    if value is not None:
        return render(value, facts) if names[0] == "values" else value
    if place[2] is None:
        raise TemplateError(f"the script asks for {place[0]}, and there is none")
    return place[2].strip()
