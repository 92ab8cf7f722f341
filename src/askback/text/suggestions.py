"""Suggestions for misspelled names."""

from __future__ import annotations

from collections.abc import Iterable

_LONGEST_COMPARED = 200
"""The time to compare two names grows with the square of their length."""


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name that is most similar, if any is similar enough."""
    if len(name) > _LONGEST_COMPARED:
        return None
    import difflib  # takes milliseconds, and most commands never need it

    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)), None)
