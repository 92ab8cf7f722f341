"""The search for words, with its limit. Everything that people can search uses it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MAX_CHARACTERS = 200
"""Of a search. The rest is ignored."""


def words_in(search: str) -> list[str]:
    """The words of a search, for `has_all`."""
    return search[:MAX_CHARACTERS].casefold().split()


def folded(texts: Iterable[str | None]) -> str:
    """The texts that are searched, as `has_all` expects them."""
    return "\n".join(text for text in texts if text).casefold()


def has_all(text: str, words: Sequence[str]) -> bool:
    return all(word in text for word in words)
