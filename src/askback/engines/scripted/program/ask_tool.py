"""A client of the ask tool: it starts the MCP server and calls `put_question`."""

from __future__ import annotations

import json
import subprocess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_VERSION = "2025-06-18"
_GONE = {"text": "the tool has ended"}


class AskTool:
    """The server runs until the program ends."""

    def __init__(self, command: Sequence[str]) -> None:
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._calls = 0
        self._request(
            "initialize", {"protocolVersion": _VERSION, "capabilities": {}, "clientInfo": {"name": "scripted"}}
        )
        self._send({"method": "notifications/initialized"})

    def call(self, arguments: Any, *, kill: bool = False) -> tuple[bool, str]:
        """Whether the question was recorded or answered, and what the tool says. `kill`: the server is killed during the call."""
        params = {"name": "put_question", "arguments": arguments, "_meta": {"progressToken": self._calls}}
        if kill:
            self._send({"id": 0, "method": "tools/call", "params": params})
            self._server.kill()
            self._server.wait()
            return False, _GONE["text"]
        result = self._request("tools/call", params).get("result", {})
        return result.get("isError") is False, str(result.get("content", [_GONE])[0].get("text", ""))

    def _request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._calls += 1
        self._send({"id": self._calls, "method": method, "params": params})
        assert self._server.stdout is not None
        for line in self._server.stdout:
            answer: dict[str, Any] = json.loads(line)
            if answer.get("id") == self._calls:
                return answer
        return {}

    def _send(self, message: dict[str, Any]) -> None:
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._server.stdin.flush()
