"""A proxy on loopback for MCP clients that can send neither a token nor the arguments of our tools.

It adds the token, and turns a call of a tool of the client's own fixture server into a call of the skill of the same name.
"""

from __future__ import annotations

import http.client
import json
import threading
import uuid
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit

from askback.mcp.tools import skill_tool_name

LIMIT_SEC = 120
_BY_HOP = frozenset({"connection", "transfer-encoding", "content-length", "keep-alive", "authorization"})


def skill_of(tool: str) -> str:
    """The tool of ours that stands for a tool of the client's fixture server."""
    return skill_tool_name(tool.replace("_", "-"))


class Proxy:
    """Listens while it is open. `calls`: for each tool that is a skill, the arguments of its call beside the input."""

    def __init__(self, url: str, token: str, calls: Mapping[str, Mapping[str, Any]]) -> None:
        self.target = urlsplit(url)
        self.token = token
        self.calls = calls
        self.keys: dict[str, str] = {}
        owner = self

        class Handler(_Handler):
            proxy = owner

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(LIMIT_SEC)

    def rewritten(self, message: dict[str, Any]) -> dict[str, Any]:
        """The message for our server."""
        params = message.get("params") or {}
        if message.get("method") == "tools/call" and params.get("name") in self.calls:
            return {**message, "params": {**params, **self._call(params)}}
        return message

    def _call(self, params: dict[str, Any]) -> dict[str, Any]:
        name = params["name"]
        if "requestState" not in params:
            # Each call is a run of its own. A call that is repeated with an answer must have the same arguments.
            self.keys[name] = uuid.uuid4().hex
        more = {"engine": "scripted", "idempotency_key": self.keys.get(name, ""), **self.calls[name]}
        return {"name": skill_of(name), "arguments": {"input": params.get("arguments") or {}, **more}}


class _Handler(BaseHTTPRequestHandler):
    """One request of a client."""

    protocol_version = "HTTP/1.1"
    proxy: Proxy
    timeout = LIMIT_SEC

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            message = json.loads(body)
        except ValueError:
            message = None
        if isinstance(message, dict):
            body = json.dumps(self.proxy.rewritten(message)).encode()
        self._forward(body)

    def do_GET(self) -> None:
        self._forward(None)

    def do_DELETE(self) -> None:
        self._forward(None)

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def _forward(self, body: bytes | None) -> None:
        target = self.proxy.target
        assert target.hostname is not None
        server = http.client.HTTPConnection(target.hostname, target.port, timeout=LIMIT_SEC)
        self.close_connection = True
        try:
            server.request(self.command, self.path, body, self._headers())
            answer = server.getresponse()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _BY_HOP:
                    self.send_header(name, value)
            self.send_header("connection", "close")
            self.end_headers()
            while piece := answer.read1():
                self.wfile.write(piece)
                self.wfile.flush()
        except (OSError, ValueError, http.client.HTTPException):
            # The client or the server has gone, or a stream was silent for too long.
            return
        finally:
            server.close()

    def _headers(self) -> dict[str, str]:
        sent = {name: value for name, value in self.headers.items() if name.lower() not in _BY_HOP}
        for name, value in list(sent.items()):
            if name.lower() in ("host", "origin"):
                sent[name] = value.replace(self.proxy.host, self.proxy.target.netloc)
            elif name.lower() == "mcp-name" and value.strip() in self.proxy.calls:
                sent[name] = skill_of(value.strip())
        return {**sent, "authorization": f"Bearer {self.proxy.token}"}
