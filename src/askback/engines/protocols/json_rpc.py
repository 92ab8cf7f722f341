"""JSON-RPC with one message per line: encodes messages, and matches responses to our requests.

Independent of any protocol's methods. Some programs omit the `jsonrpc` version field.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from askback.core.interactions import Json
from askback.engines.base import Send

METHOD_NOT_FOUND = -32601
VERSION: Mapping[str, Json] = {"jsonrpc": "2.0"}


class JsonRpcChannel:
    """The channel to a program. Every message starts with the fields of `header`."""

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
        error = {"code": METHOD_NOT_FOUND, "message": f"{method} is not supported"}
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
