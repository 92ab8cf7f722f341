"""What the double was sent, in one form for all protocols, and the list that tests read.

Knows no protocol and no socket.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    TEXT = "text"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One piece of a conversation. A call's `text` is its arguments as JSON; a result's is what the tool printed."""

    role: str
    text: str
    kind: Kind = Kind.TEXT
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request for an answer, as its protocol was read."""

    model: str
    streaming: bool
    system: str
    transcript: tuple[Entry, ...]
    tools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Parameters of each offered tool, by its name."""
    schema: Mapping[str, Any] | None = None
    """The JSON Schema that the answer must follow, if any; an empty one when only JSON is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request for an answer. `side` says what it is when it is no turn of a conversation."""

    protocol: str
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    asked: Asked
    side: str | None = None

    @property
    def transcript(self) -> tuple[Entry, ...]:
        return self.asked.transcript

    def said(self, role: str) -> tuple[str, ...]:
        """The texts of a role, each part by itself, without tool calls and results."""
        return tuple(each.text for each in self.transcript if each.role == role and each.kind is Kind.TEXT)

    @property
    def user_texts(self) -> tuple[str, ...]:
        return self.said("user")

    @property
    def assistant_texts(self) -> tuple[str, ...]:
        return self.said("assistant")

    @property
    def tool_results(self) -> tuple[str, ...]:
        return tuple(each.text for each in self.transcript if each.kind is Kind.TOOL_RESULT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """A request that asks for no answer: a list of models, a count of tokens, or something unknown."""

    method: str
    path: str
    status: int


class Record:
    """All that arrived, in order. Written by the threads of the server, read by the test."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._requests: list[Request] = []
        self._visits: list[Visit] = []

    def add(self, request: Request) -> None:
        with self._changed:
            self._requests.append(request)
            self._changed.notify_all()

    def add_visit(self, visit: Visit) -> None:
        with self._changed:
            self._visits.append(visit)
            self._changed.notify_all()

    @property
    def turns(self) -> tuple[Request, ...]:
        with self._changed:
            return tuple(each for each in self._requests if each.side is None)

    @property
    def side(self) -> tuple[Request, ...]:
        with self._changed:
            return tuple(each for each in self._requests if each.side is not None)

    @property
    def visits(self) -> tuple[Visit, ...]:
        with self._changed:
            return tuple(self._visits)

    def wait_until(self, holds: Callable[[], bool], timeout_sec: float) -> None:
        """Wait until something that was sent makes it hold."""
        with self._changed:
            if not self._changed.wait_for(holds, timeout_sec):
                raise TimeoutError(f"not within {timeout_sec} s; {len(self._requests)} requests came")
