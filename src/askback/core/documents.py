"""JSON values of callers and engines: whether one is too large to be worked on where others wait."""

from __future__ import annotations

from typing import Any

_LARGE = 65_536
_PER_VALUE = 16


def is_large(*documents: Any) -> bool:
    """Whether they take about 64 KB or more as text. Costs no more than looking at that much."""
    weight, pending = 0, list(documents)
    while pending and weight < _LARGE:
        value = pending.pop()
        weight += _PER_VALUE
        if isinstance(value, str):
            weight += len(value)
        elif isinstance(value, dict):
            weight += _PER_VALUE * len(value)
            if weight < _LARGE:
                pending.extend(value)
                pending.extend(value.values())
        elif isinstance(value, list | tuple):
            weight += _PER_VALUE * len(value)
            if weight < _LARGE:
                pending.extend(value)
    return weight >= _LARGE
