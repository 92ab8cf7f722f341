"""Programs that print one JSON object per line: decode a line, get a field, store the end of stderr, speak JSON-RPC.

Pure, and independent of any program and its methods. No output of a program makes this raise.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Mapping
from typing import Any

from askback.core.interactions import Json
from askback.engines.base import Send
from askback.text.json_text import NotJson, clean, loads

_MAX_DETAIL = 4_000
_ESCAPE = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles and links
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # colours and movements
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def decode_line(line: bytes) -> dict[str, Any] | None:
    """The JSON object on a line, or None if the line is anything else."""
    text = line.decode("utf-8", "replace").lstrip("\ufeff").strip()
    if not text.startswith("{"):
        return None
    try:
        value = loads(text)
    except NotJson:
        return None
    return value if isinstance(value, dict) else None


def text_at(event: Mapping[str, Any], *path: str) -> str:
    """The string at a path of keys, or an empty one."""
    value = _at(event, path)
    return clean(value) if isinstance(value, str) else ""


def count_at(event: Mapping[str, Any], *path: str) -> int:
    """The count at a path of keys, or zero. Values of 2**53 and more do not count."""
    value = _at(event, path)
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
    return value if fits else 0


def count_or_none(event: Mapping[str, Any], *path: str) -> int | None:
    """The count at a path of keys; None if there is none."""
    return None if _at(event, path) is None else count_at(event, *path)


def amount_at(event: Mapping[str, Any], *path: str) -> float | None:
    """The amount of money at a path of keys; None if there is none."""
    value = _at(event, path)
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9
    return float(value) if fits else None


def object_at(event: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """The object at a path of keys, or an empty one."""
    value = _at(event, path)
    return value if isinstance(value, dict) else {}


def objects_at(event: Mapping[str, Any], *path: str) -> list[Mapping[str, Any]]:
    """The objects in the list at a path of keys; empty if there is no list."""
    value = _at(event, path)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def plain(text: str) -> str:
    """The text without terminal escape sequences and control characters."""
    return _CONTROL.sub("", _ESCAPE.sub("", text.replace("\r\n", "\n")))


def as_detail(text: str) -> str | None:
    """A program's output as the detail of an error: plain text, and only its end."""
    words = plain(clean(text)).strip()
    return (words if len(words) <= _MAX_DETAIL else "[…] " + words[-_MAX_DETAIL:]) or None


class Tail:
    """The last lines of a stream."""

    def __init__(self, max_bytes: int = 8_000) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._lines: deque[bytes] = deque()

    def add(self, line: bytes) -> None:
        self._lines.append(line[-self._max_bytes :])
        self._bytes += len(self._lines[-1]) + 1
        while self._bytes > self._max_bytes + 1:
            self._bytes -= len(self._lines.popleft()) + 1

    @property
    def text(self) -> str:
        return b"\n".join(self._lines).decode("utf-8", "replace")


# JSON-RPC, with one message per line.

_METHOD_NOT_FOUND = -32601
JSON_RPC_VERSION: Mapping[str, Json] = {"jsonrpc": "2.0"}
"""Some programs omit it."""


class JsonRpcChannel:
    """Encodes messages, and matches responses to our requests. Every message starts with the fields of `header`."""

    def __init__(self, header: Mapping[str, Json]) -> None:
        self._header = header
        self._last_id = 0
        self._waiting: dict[int, str] = {}

    def request(self, method: str, params: Mapping[str, Json]) -> Send:
        self._last_id += 1
        self._waiting[self._last_id] = method
        return self._message({"id": self._last_id, "method": method, "params": params})

    def notify(self, method: str, params: Mapping[str, Json] | None = None) -> Send:
        return self._message({"method": method} if params is None else {"method": method, "params": params})

    def answer(self, request_id: Json, result: Mapping[str, Json]) -> Send:
        return self._message({"id": request_id, "result": result})

    def refuse(self, request_id: Json, method: str) -> Send:
        """Refuse a request that is not supported, so that the program does not wait for it."""
        error = {"code": _METHOD_NOT_FOUND, "message": f"{method} is not supported"}
        return self._message({"id": request_id, "error": error})

    def answered(self, response: Mapping[str, Any]) -> str | None:
        """The method of the request that this response answers. Each request is answered once."""
        number = response.get("id")
        # Excludes `true`, which would equal the id 1.
        return self._waiting.pop(number, None) if type(number) is int else None

    def awaits(self, *methods: str) -> bool:
        """Whether a request with one of these methods, or any request if none is given, is unanswered."""
        return any(not methods or method in methods for method in self._waiting.values())

    def forget(self) -> None:
        """Stop waiting for responses; late ones are ignored."""
        self._waiting.clear()

    def _message(self, content: Mapping[str, Json]) -> Send:
        # Only ASCII: some programs also split lines at Unicode line separators.
        return Send(data=json.dumps({**self._header, **content}).encode() + b"\n")
