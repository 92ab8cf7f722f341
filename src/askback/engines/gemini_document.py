"""The one JSON document that gemini prints in its form `json`, told as the events of its form `stream-json`.

On success the document is all of stdout; on failure it is the end of stderr, after whatever else stands there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from askback.engines.json_lines import count_at, decode_line, object_at

_COUNTS = {"prompt": "input_tokens", "candidates": "output_tokens", "cached": "cached", "total": "total_tokens"}
_LONGEST = 2_000_000
_MOST_LINES = 100_000


class Document:
    """A JSON object over many lines, from a bare brace to a bare brace, among other lines."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._size = 0

    def take(self, line: bytes) -> dict[str, Any] | None:
        """Take a line; the object, once it is whole."""
        line = line.rstrip()
        if line == b"{":
            self._lines, self._size = [line], 1
        elif self._lines:
            self._lines.append(line)
            self._size += len(line) + 1
            if self._size > _LONGEST or len(self._lines) > _MOST_LINES:
                # No document of ours: it is not kept until the end of the turn.
                self._lines = []
            elif line == b"}":
                whole, self._lines = b"\n".join(self._lines), []
                return decode_line(whole)
        return None


def events_of(document: Mapping[str, Any], *, may_succeed: bool) -> Iterator[dict[str, Any]]:
    """The events that say the same; none for an object that is something else."""
    error, response = object_at(document, "error"), document.get("response")
    if not error and not (may_succeed and isinstance(response, str)):
        return
    yield {"type": "init", "session_id": document.get("session_id")}
    if isinstance(response, str):
        yield {"type": "message", "role": "assistant", "content": response}
    warnings = document.get("warnings")
    for warning in warnings if isinstance(warnings, list) else []:
        yield {"type": "error", "severity": "warning", "message": warning}
    status = "error" if error else "success"
    yield {"type": "result", "status": status, "error": error, "stats": _stats(object_at(document, "stats", "models"))}


def _stats(models: Mapping[str, Any]) -> dict[str, int]:
    counts = [object_at(model, "tokens") for model in models.values() if isinstance(model, dict)]
    return {name: sum(count_at(each, key) for each in counts) for key, name in _COUNTS.items()}
