"""The search for words in pending questions: what is searched, and how words are given to a statement."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from askback.core.runs import Run
from askback.text.formatting import folded, has_all, words_in
from askback.text.json_text import clean


def words_of(text: str) -> str | None:
    """The words of a search as a statement expects them; None if there are none."""
    # PostgreSQL has no texts with U+0000, and none that are not valid.
    words = words_in(clean(text.replace("\0", " ")))
    return json.dumps(words) if words else None


def searched_text(run: Run) -> str | None:
    """What a search looks at: the skill, the summary, the prompts and the context of a pending question."""
    asked = run.pending_interaction
    if asked is None:
        return None
    prompts = (asked.prompt, *(field.prompt for field in asked.questions or ()))
    return folded((run.skill.id, run.summary, *prompts, *_texts(asked.context)))


def mentions(*values: Any) -> bool:
    """Whether the question of a run contains all words. The run and the words are JSON."""
    doc, words = values
    run = json.loads(doc)
    asked = run.get("pending_interaction") or {}
    prompts = (asked.get("prompt"), *(field["prompt"] for field in asked.get("questions") or ()))
    whole = folded((run["skill"]["id"], run.get("summary"), *prompts, *_texts(asked.get("context"))))
    return has_all(whole, json.loads(words))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif value is not None:
        yield str(value)
