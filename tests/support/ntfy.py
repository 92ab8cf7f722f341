"""A double of an ntfy server on this machine: takes messages as JSON, within the documented limits."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

_MESSAGE_BYTES = 4096
_REQUEST_BYTES = 2 * _MESSAGE_BYTES
_TOPIC = re.compile(r"[-_A-Za-z0-9]{1,64}")
_KEYS = {
    "topic": str,
    "message": str,
    "title": str,
    "tags": list,
    "priority": int,
    "actions": list,
    "click": str,
}
_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}


@dataclass(slots=True, kw_only=True)
class Ntfy:
    messages: list[dict[str, Any]] = field(default_factory=list)
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    """Everything that the server of ntfy sees: paths, headers and bodies."""
    problems: list[str] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def take(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, Any]]:
        self.requests.append((path, headers, body))
        found = list(request_problems(path, body))
        if found:
            self.problems += found
            return 400, {"code": 40024, "http": 400, "error": found[0]}
        message = json.loads(body)
        self.messages.append(message)
        return 200, {"id": f"msg{len(self.messages)}", "event": "message", **message}


def request_problems(path: str, body: bytes) -> Iterator[str]:
    """What ntfy would refuse, or turn into an attached file."""
    if path != "/":
        yield f"JSON is published to the root, not to {path}"
    if len(body) > _REQUEST_BYTES:
        yield "the request is too large"
    message = json.loads(body.decode("utf-8", "strict"))
    for key, value in message.items():
        if key not in _KEYS or type(value) is not _KEYS[key]:
            yield f"invalid field {key}: {value!r}"
    if not _TOPIC.fullmatch(message.get("topic", "")):
        yield "invalid topic"
    if len(message.get("message", "").encode()) > _MESSAGE_BYTES:
        yield "the message would become an attachment"
    if not 1 <= message.get("priority", 3) <= 5:
        yield "invalid priority"
    if "click" in message and not _is_url(message["click"]):
        yield "click is not a URL"
    yield from _action_problems(message.get("actions", []))


def _action_problems(actions: list[dict[str, Any]]) -> Iterator[str]:
    if len(actions) > 3:
        yield "only 3 actions are allowed"
    for action in actions:
        if (
            action.get("action") not in ("view", "http")
            or not action.get("label")
            or not _is_url(action.get("url", ""))
        ):
            yield f"invalid action: {action}"
        if "\n" in action.get("label", ""):
            yield "a label has one line"
        extra = {"method", "headers", "body"} if action.get("action") == "http" else set()
        if action.keys() - {"action", "label", "url", "clear"} - extra:
            yield f"unknown keys of an action: {action}"
        if action.get("action") == "http" and action.get("method", "POST") not in _METHODS:
            yield "invalid method"


def _is_url(text: str) -> bool:
    parts = urlsplit(text)
    return parts.scheme in ("http", "https") and bool(parts.netloc) and text.isascii() and " " not in text


@contextmanager
def ntfy_server() -> Iterator[Ntfy]:
    double = Ntfy()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, answered = double.take(self.path, headers, body)
            encoded = json.dumps(answered).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(encoded)))
            self.end_headers()
            self.wfile.write(encoded)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        double.port = listening.server_address[1]
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        try:
            yield double
        finally:
            listening.shutdown()
            thread.join()
