"""What a program that stays is sent: one JSON object a line on standard input, until that ends."""

from __future__ import annotations

import json
import os
import select
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_CHUNK = 1 << 16
_POLL_SEC = 0.004


class Input:
    """Waits for one kind of message at a time. What comes instead is passed over, and said so on standard error."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], None] | None = None
        """Done again and again while there is nothing to read."""
        self._lines: list[bytes] = []
        self._rest = b""

    def next(self, kind: str, message_id: str | None = None) -> dict[str, Any] | None:
        """The next message of that kind, and with that id, or None when there will be none."""
        while (line := self._line()) is not None:
            message = _read(line)
            if message.get("type") == kind and message.get("id") == message_id:
                return message
            print(f"passed over: this is no {kind}: {line[:200]!r}", file=sys.stderr, flush=True)
        return None

    def _line(self) -> bytes | None:
        parts = [self._rest]
        while not self._lines:
            self._wait()
            data = os.read(0, _CHUNK)
            if not data:
                return None
            parts.append(data)
            if b"\n" in data:
                *self._lines, last = b"".join(parts).split(b"\n")
                self._rest = last
        return self._lines.pop(0)

    def _wait(self) -> None:
        while self.meanwhile is not None and not select.select([0], [], [], _POLL_SEC)[0]:
            self.meanwhile()


def _read(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}
