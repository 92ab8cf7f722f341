"""What every protocol of the double has in common: an answer of the model, and how a dialect reads and writes.

Knows no protocol by name, no script and no socket.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from double.record import Asked

Json = dict[str, Any]
_numbers = itertools.count(1)
_PIECES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """What an answer claims to have cost. `prompt` includes `cached`; `output` does not include what was thought."""

    prompt: int = 120
    cached: int = 20
    output: int = 30

    @property
    def total(self) -> int:
        return self.prompt + self.output


TOKENS = Tokens()


def new_id(kind: str) -> str:
    return f"{kind}_{next(_numbers):08d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    name: str
    arguments: Mapping[str, Any]
    id: str = field(default_factory=lambda: new_id("call"))

    @property
    def arguments_json(self) -> str:
        return json.dumps(self.arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer of the model: a text, calls of tools, or a text and then calls."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    tokens: Tokens = TOKENS
    id: str = field(default_factory=lambda: new_id("answer"))

    @property
    def pieces(self) -> tuple[str, ...]:
        """The text as a stream brings it, in a few pieces."""
        if not self.text:
            return ()
        size = max(1, -(-len(self.text) // _PIECES))
        return tuple(self.text[at : at + size] for at in range(0, len(self.text), size))


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One protocol. `read` takes path and body; `frames` begins with the frames that come before any text."""

    name: str
    read: Callable[[str, Json], Asked]
    whole: Callable[[Answer, Asked], Json]
    frames: Callable[[Answer, Asked], Iterator[bytes]]
    refusal: Callable[[int, str], Json]


def frame(data: Json | str, event: str | None = None) -> bytes:
    """One server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data)
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {text}\n\n".encode()


def plain_text(content: object) -> str:
    """The text of a content that may be a string, a list of parts, or something else, which is shown as JSON."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(plain_text(part) for part in content)
    if isinstance(content, dict) and isinstance(content.get("text"), str):
        return str(content["text"])
    return json.dumps(content)


def texts(content: object) -> Iterator[str]:
    """Every text part of a content by itself: a CLI puts its own remarks next to the user's text, as parts."""
    parts = content if isinstance(content, list) else [content]
    for part in parts:
        if part is not None:
            yield plain_text(part)
