"""Who changes something, and by which way."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Via(StrEnum):
    """The way by which somebody reached Askback."""

    API = "api"
    PAGE = "page"
    LINK = "link"
    """A link to one question."""
    CLI = "cli"
    """A command on the machine of the data folder."""
    TELEGRAM = "telegram"
    ASKBACK = "askback"
    """Askback itself, for example because a deadline has passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """`name` is that of the token, of the link's recipient, or of the user of the machine."""

    name: str
    via: Via


ASKBACK = Actor(name="askback", via=Via.ASKBACK)
