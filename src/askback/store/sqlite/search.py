"""The search for words in pending questions, as a function that SQL statements call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import apsw


def register(connection: apsw.Connection) -> None:
    connection.create_scalar_function("mentions", _mentions, 2, deterministic=True)


def words_of(text: str) -> str | None:
    """The words of a search as a statement expects them; None if there are none."""
    words = text.casefold().split()
    return json.dumps(words) if words else None


def _mentions(*values: Any) -> bool:
    """Whether the question of a run contains all words: in its skill, its summary, its prompts or its context."""
    doc, words = values
    run = json.loads(doc)
    asked = run.get("pending_interaction") or {}
    prompts = (asked.get("prompt"), *(field["prompt"] for field in asked.get("questions") or ()))
    texts = (run["skill"]["id"], run.get("summary"), *prompts, *_texts(asked.get("context")))
    whole = "\n".join(text for text in texts if text).casefold()
    return all(word in whole for word in json.loads(words))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif value is not None:
        yield str(value)
