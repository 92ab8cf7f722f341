"""What a client keeps of a response. It is bounded: a server that is broken or hostile can send without end.

Downloads are not kept but written to a file, and have no limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from askback.client.errors import AnswerUnreadable

MAX_BYTES = 64_000_000
"""Bytes of a response in JSON, and of one event of a stream. A server sends much less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A response that is complete."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Body:
    """The body of a response, while it arrives."""

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, chunk: bytes) -> None:
        """Raises `AnswerUnreadable` if it is too long."""
        self._data += chunk
        check_size(len(self._data))

    @property
    def content(self) -> bytes:
        return bytes(self._data)


def check_size(size: int) -> None:
    if size > MAX_BYTES:
        raise AnswerUnreadable(f"the server sent a response of more than {MAX_BYTES:,} bytes; it was not read further")
