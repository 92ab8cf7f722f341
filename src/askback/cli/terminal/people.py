"""Who did something, as text for a terminal. Names come from anywhere."""

from __future__ import annotations

from askback.core.actors import Actor, in_words
from askback.text.formatting import one_line
from askback.wire.base import Actor as ServedActor

_MOST_CHARACTERS = 120


def who(actor: Actor | ServedActor) -> str:
    """`anna, by link`."""
    return one_line(in_words(actor.name, actor.via), _MOST_CHARACTERS)
