"""Single requests of the newer MCP protocol over HTTP, for what no client library sends."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

from support.server import Server

TASKS = "io.modelcontextprotocol/tasks"
_VERSION = "2026-07-28"
_PREFIX = "io.modelcontextprotocol"
_NAMED_BY = {"tools/call": "name", "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId"}
BOTH: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "extensions": {TASKS: {}}}
"""Tasks, and a user who can be asked by form and by page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Requests of one client."""

    server: Server
    token: str | None = None
    declares: dict[str, Any] = field(default_factory=lambda: BOTH)

    def declaring(self, **declares: Any) -> Requests:
        return replace(self, declares=declares)

    def with_token(self, token: str) -> Requests:
        return replace(self, token=token)

    def send(self, method: str, headers: dict[str, str] | None = None, /, **params: Any) -> httpx.Response:
        about = {f"{_PREFIX}/protocolVersion": _VERSION, f"{_PREFIX}/clientCapabilities": self.declares}
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": about}}
        routing = {"mcp-protocol-version": _VERSION, "mcp-method": method}
        if (name := _NAMED_BY.get(method)) is not None:
            routing["mcp-name"] = str(params[name])
        accept = {"accept": "application/json, text/event-stream"}
        sent = {**accept, **routing, "authorization": f"Bearer {self.token or self.server.token}", **(headers or {})}
        return httpx.post(f"{self.server.url}/mcp", json=message, headers=sent, timeout=120)

    def result(self, method: str, /, **params: Any) -> dict[str, Any]:
        answer = self.send(method, **params).json()
        assert "result" in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def error(self, method: str, /, **params: Any) -> dict[str, Any]:
        answer = self.send(method, **params).json()
        assert "error" in answer, answer
        error: dict[str, Any] = answer["error"]
        return error

    def start(self, skill: str, **arguments: Any) -> dict[str, Any]:
        """The result of a call that starts a new run."""
        call = {"skill": skill, "engine": "scripted", "idempotency_key": uuid.uuid4().hex, **arguments}
        return self.result("tools/call", name="run_skill", arguments=call)

    def task(self, skill: str) -> str:
        created = self.start(skill)
        assert created["resultType"] == "task", created
        return str(created["taskId"])

    def settled(self, task_id: str) -> dict[str, Any]:
        """The task when its run asks or is over."""
        with self.server.client() as api:
            api.wait(task_id, timeout_sec=120)
        return self.result("tasks/get", taskId=task_id)
