"""Who did something, as text of the page."""

from __future__ import annotations

from askback.core.actors import Channel
from askback.text.formatting import one_line
from askback.web.translations import Translations
from askback.wire.base import Actor

_MOST_CHARACTERS = 80


def who_text(actor: Actor, texts: Translations) -> str:
    """`anna, by link`. A newer version may have other channels."""
    name = one_line(actor.name, _MOST_CHARACTERS)
    if actor.via == Channel.ASKBACK:
        return name
    return texts("frame.who", way=texts.find(f"frame.via.{actor.via}") or actor.via, who=name)
