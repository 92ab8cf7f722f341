"""A double of Slack's API on this machine: takes messages within the limits of Block Kit, and signs clicks."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlencode

import httpx

from support.program import DEADLINE_SEC

TOKEN, SIGNING_SECRET, CHANNEL = "xoxb-of-the-test", "signing-secret-of-the-test", "C0000000001"


@dataclass(slots=True, kw_only=True)
class Slack:
    """`trouble` are errors for the next messages; then they are posted."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    updates: list[dict[str, Any]] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)
    incoming: list[dict[str, Any]] = field(default_factory=list)
    """What came to an incoming webhook."""
    problems: list[str] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def take_incoming(self, media_type: str | None, message: dict[str, Any]) -> tuple[int, str]:
        """An incoming webhook answers with a word of plain text."""
        problems = list(incoming_problems(message))
        if media_type != "application/json":
            problems.append(f"not JSON: {media_type}")
        self.problems += problems
        if problems:
            return 400, "invalid_blocks"
        self.incoming.append(message)
        return 200, "ok"

    def post_message(self, token: str | None, message: dict[str, Any]) -> dict[str, Any]:
        if token != f"Bearer {TOKEN}":
            return {"ok": False, "error": "invalid_auth"}
        if message.get("channel") != CHANNEL:
            return {"ok": False, "error": "channel_not_found"}
        if self.trouble:
            return {"ok": False, "error": self.trouble.pop(0)}
        if problems := list(block_problems(message)):
            return {"ok": False, "error": "invalid_blocks", "response_metadata": {"messages": problems}}
        self.messages.append(message)
        return {"ok": True, "channel": CHANNEL, "ts": f"{len(self.messages)}.000100"}

    def click(self, bridge: str, message: dict[str, Any], button: dict[str, Any], **changed: str) -> httpx.Response:
        """What Slack sends when a user clicks; `changed` are headers that a forger sends instead."""
        payload = {
            "type": "block_actions",
            "user": {"id": "U024BE7LH"},
            "message": {"text": message["text"], "blocks": message["blocks"]},
            "actions": [{"type": "button", **button}],
            "response_url": f"{self.url}/response",
        }
        body = urlencode({"payload": json.dumps(payload)}).encode()
        sent = changed.get("x-slack-request-timestamp", str(int(time.time())))
        digest = hmac.new(SIGNING_SECRET.encode(), f"v0:{sent}:".encode() + body, hashlib.sha256).hexdigest()
        kind = {"content-type": "application/x-www-form-urlencoded"}
        headers = {**kind, "x-slack-request-timestamp": sent, "x-slack-signature": f"v0={digest}", **changed}
        return httpx.post(f"{bridge}/slack", content=body, headers=headers, timeout=DEADLINE_SEC)


def block_problems(message: dict[str, Any]) -> Iterator[str]:
    """What Slack would refuse, as its reference of Block Kit says."""
    blocks = message.get("blocks", [])
    if not message.get("text") or not 1 <= len(blocks) <= 50:
        yield "text and 1 to 50 blocks are required"
    for block in blocks:
        match block:
            case {"type": "section", "text": text, **more} if not more.keys() - {"accessory"}:
                yield from _text_problems(text, 3000)
                yield from _button_problems(list(more.values()))
            case {"type": "context", "elements": elements} if 1 <= len(elements) <= 10:
                for text in elements:
                    yield from _text_problems(text, 3000)
            case {"type": "actions", "elements": elements} if 1 <= len(elements) <= 25:
                yield from _button_problems(elements)
            case _:
                yield f"not a valid block: {block}"
    names = [block["accessory"]["action_id"] for block in blocks if "accessory" in block]
    if len(set(names)) != len(names):
        yield "an action_id is not unique"


_CONTROL = re.compile(r"<([^<>|]*)(?:\|[^<>]*)?>")
_ENTITIES = re.compile(r"&(?!(?:amp|lt|gt);)")


def incoming_problems(message: dict[str, Any]) -> Iterator[str]:
    """What Slack would refuse, and what would mention somebody or hide where a link leads."""
    if message.keys() - {"text", "blocks"}:
        yield f"unexpected fields: {message.keys()}"
    if "blocks" in message:
        yield from block_problems(message)
    elif not message.get("text"):
        yield "no_text"
    texts = [message["text"]]
    for block in message.get("blocks", []):
        if block["type"] == "actions":
            continue
        texts += [each["text"] for each in (block.get("elements") or [block["text"]]) if each["type"] == "mrkdwn"]
    for text in texts:
        rest = _CONTROL.sub("", text)
        if "<" in rest or ">" in rest or _ENTITIES.search(text):
            yield f"not escaped: {text!r}"
        for control in _CONTROL.findall(text):
            if not control.startswith(("http://", "https://", "!date^")):
                yield f"a mention: {control}"


def _button_problems(elements: list[dict[str, Any]]) -> Iterator[str]:
    for button in elements:
        if button.get("type") != "button" or button["text"]["type"] != "plain_text":
            yield f"not a button with plain text: {button}"
        yield from _text_problems(button["text"], 75)
        for key, limit in (("action_id", 255), ("value", 2000), ("url", 3000)):
            if len(button.get(key, "")) > limit:
                yield f"{key} is longer than {limit}"
    names = [button.get("action_id") for button in elements]
    if len(set(names)) != len(names):
        yield "an action_id is not unique"


def _text_problems(text: dict[str, Any], limit: int) -> Iterator[str]:
    if text.get("type") not in ("plain_text", "mrkdwn") or not 1 <= len(text.get("text", "")) <= limit:
        yield f"not a text of 1 to {limit} characters: {text}"


@contextmanager
def slack() -> Iterator[Slack]:
    double = Slack()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self.path.startswith("/services/"):
                status, word = double.take_incoming(self.headers["content-type"], body)
                self.send_response(status)
                self.send_header("content-length", str(len(word)))
                self.end_headers()
                self.wfile.write(word.encode())
                return
            if self.path == "/api/chat.postMessage":
                answered = double.post_message(self.headers["authorization"], body)
            else:
                double.updates.append(body)
                answered = {"ok": True}
            encoded = json.dumps(answered).encode()
            self.send_response(200)
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
