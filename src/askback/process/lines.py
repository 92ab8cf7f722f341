"""Cutting a program's output into lines, with a cap on each. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its newline. `dropped` lines were longer than allowed; of them only the beginning is kept."""

    data: bytes
    dropped: bool = False


_KEPT_OF_DROPPED = 200


class LineFramer:
    """Feed it chunks as they are read; a line over the cap is discarded to its newline."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._dropping = False

    def feed(self, chunk: bytes) -> Iterator[Line]:
        *whole, rest = chunk.split(b"\n")
        for part in whole:
            self._take(part)
            yield self._flush()
        self._take(rest)

    def finish(self) -> Iterator[Line]:
        """What stands after the last newline counts as a line."""
        if self._buffer:
            yield self._flush()

    def _take(self, part: bytes) -> None:
        if self._dropping:
            return
        self._buffer += part
        if len(self._buffer) > self._limit:
            del self._buffer[_KEPT_OF_DROPPED:]
            self._dropping = True

    def _flush(self) -> Line:
        line = Line(bytes(self._buffer), self._dropping)
        self._buffer.clear()
        self._dropping = False
        return line
