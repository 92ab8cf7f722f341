"""Who changes something, and by which way."""

from __future__ import annotations

from dataclasses import dataclass

from askback.core.open_values import OpenValue


class Via(OpenValue):
    """The way by which somebody reached Askback."""

    API = "api"
    PAGE = "page"
    LINK = "link"
    """A link to one question."""
    CLI = "cli"
    """A command on the machine of the data folder."""
    TELEGRAM = "telegram"
    MCP = "mcp"
    """A client of the Model Context Protocol."""
    ACP = "acp"
    """An editor that speaks the Agent Client Protocol."""
    ASKBACK = "askback"
    """Askback itself, for example because a deadline has passed."""


_WAYS: dict[str, str] = {
    Via.API: "by API",
    Via.PAGE: "on the page",
    Via.LINK: "by link",
    Via.CLI: "on the command line",
    Via.TELEGRAM: "by Telegram",
    Via.MCP: "by MCP",
    Via.ACP: "by ACP",
}


_MOST_CHARACTERS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """`name` is that of the token, of the link's recipient, or of the user of the machine."""

    name: str
    via: Via

    @property
    def plain(self) -> Actor:
        """Without what only the audit log may have."""
        return Actor(name=self.name, via=self.via)

    def __str__(self) -> str:
        """For people: `anna, by link`."""
        return in_words(self.name, self.via)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller(Actor):
    """Somebody who sent a request."""

    address: str | None = None
    """From where. Only for the audit log."""
    link: str | None = None
    """With which link, and who created it. Only for the audit log."""


def in_words(name: str, via: str) -> str:
    """For people, on one line: `anna, by link`. A newer server may have other ways."""
    shown = " ".join(name.split())
    if len(shown) > _MOST_CHARACTERS:
        shown = shown[: _MOST_CHARACTERS - 1] + "…"
    return shown if via == Via.ASKBACK else f"{shown}, {_WAYS.get(via, f'by {via}')}"


ASKBACK = Actor(name="askback", via=Via.ASKBACK)
