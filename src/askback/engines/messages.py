"""Bounded buffers for the parsers: the newest messages of a turn are kept, and the rest is only counted.

The marker, questions and outputs are searched for in the kept messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

from askback.engines.base import Completed

MAX_TEXT = 8_000_000
"""The most characters of assistant messages that are kept per turn."""
MAX_MESSAGES = 5_000
MAX_ASKED = 100
"""The most questions that a program may have open at a time through its own protocol."""
MAX_ID = 200

_MAX_RECENT = 10_000
_PIECES_AT_ONCE = 4_096

V = TypeVar("V")


class Messages:
    """The newest assistant messages of one turn: at most `MAX_MESSAGES`, with `MAX_TEXT` characters in total."""

    def __init__(self, said: Iterable[str] = ()) -> None:
        self._kept: deque[str] = deque()
        self._size = 0
        self._left_out = 0
        self._shortened = False
        for text in said:
            self.add(text)

    def __bool__(self) -> bool:
        return bool(self._kept)

    @property
    def said(self) -> int:
        """How many messages there were, including those left out."""
        return self._left_out + len(self._kept)

    def add(self, text: str, *, shortened: bool = False) -> str:
        """Add a message and return the part that is kept: the end, if it is too long."""
        self._shortened = self._shortened or shortened or len(text) > MAX_TEXT
        text = text[-MAX_TEXT:]
        self._kept.append(text)
        self._size += len(text)
        while self._size > MAX_TEXT or len(self._kept) > MAX_MESSAGES:
            self._size -= len(self._kept.popleft())
            self._left_out += 1
        return text

    def completed(self, *, after: int = 0, session: str | None = None) -> Completed:
        """The result of a successful turn, with all messages but the first `after`."""
        left_out = max(0, self._left_out - after)
        messages = tuple(self._kept)[max(0, after - self._left_out) :]
        return Completed(messages=messages, left_out=left_out, shortened=self._shortened, session=session)


class Pieces:
    """A text that arrives in pieces of any size. Only its last `MAX_TEXT` characters are kept."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._chunks: deque[str] = deque()
        self._pieces: list[str] = []
        self._size = 0
        self.shortened = False

    def add(self, piece: str) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        # Joined from time to time: millions of two-character strings would take thirty times their text in memory.
        if len(self._pieces) >= _PIECES_AT_ONCE or self._size > MAX_TEXT:
            self._join()

    def _join(self) -> None:
        if self._pieces:
            self._chunks.append("".join(self._pieces))
            self._pieces = []
        while len(self._chunks) > 1 and self._size - len(self._chunks[0]) >= MAX_TEXT:
            self._size -= len(self._chunks.popleft())
            self.shortened = True

    @property
    def text(self) -> str:
        self._join()
        whole = "".join(self._chunks)
        self.shortened = self.shortened or len(whole) > MAX_TEXT
        return whole[-MAX_TEXT:]


class Recent(Generic[V]):
    """A bounded mapping from id to value, such as open tool calls. If it is full, the oldest entry is dropped."""

    def __init__(self) -> None:
        self._values: dict[str, V] = {}

    def __contains__(self, key: str) -> bool:
        return key[:MAX_ID] in self._values

    def get(self, key: str) -> V | None:
        return self._values.get(key[:MAX_ID])

    def put(self, key: str, value: V) -> None:
        self._values[key[:MAX_ID]] = value
        if len(self._values) > _MAX_RECENT:
            del self._values[next(iter(self._values))]

    def pop(self, key: str) -> V | None:
        return self._values.pop(key[:MAX_ID], None)
