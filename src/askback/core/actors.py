"""Who changes something, and through which channel."""

from __future__ import annotations

from dataclasses import dataclass

from askback.core.values import OpenValue


class Channel(OpenValue):
    """The channel through which somebody reached Askback."""

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


_IN_WORDS: dict[str, str] = {
    Channel.API: "by API",
    Channel.PAGE: "on the page",
    Channel.LINK: "by link",
    Channel.CLI: "on the command line",
    Channel.TELEGRAM: "by Telegram",
    Channel.MCP: "by MCP",
    Channel.ACP: "by ACP",
}


_MOST_CHARACTERS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """`name` is that of the token, of the link's recipient, or of the user of the machine."""

    name: str
    via: Channel

    @property
    def plain(self) -> Actor:
        """The actor without what belongs only in the audit log."""
        return Actor(name=self.name, via=self.via)

    def __str__(self) -> str:
        """For people: `anna, by link`."""
        return in_words(self.name, self.via)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller(Actor):
    """Somebody who sent a request."""

    address: str | None = None
    """From where. Only for the audit log."""
    may_approve: bool = True
    """Whether it may approve tool calls, and not only answer questions."""
    link: str | None = None
    """With which link, and who created it. Only for the audit log."""


def in_words(name: str, via: str) -> str:
    """For people, on one line: `anna, by link`. A newer server may have other channels."""
    shown = " ".join(name.split())
    if len(shown) > _MOST_CHARACTERS:
        shown = shown[: _MOST_CHARACTERS - 1] + "…"
    return shown if via == Channel.ASKBACK else f"{shown}, {_IN_WORDS.get(via, f'by {via}')}"


ASKBACK = Actor(name="askback", via=Channel.ASKBACK)
