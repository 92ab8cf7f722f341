"""The least client of each protocol, to try the double without a CLI."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

Json = dict[str, Any]
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """How one protocol asks, and where the texts and calls stand in what comes back."""

    path: Callable[[bool], str]
    body: Callable[[list[Json], bool], Json]
    tools: Json
    talk: list[Json]
    """A user's word, a call, its result, an answer: as messages of this protocol."""
    user: Callable[[str], Json]
    whole_text: Callable[[Json], str]
    whole_call: Callable[[Json], tuple[str, Any]]
    stream_text: Callable[[Json], str]

    def ask(self, text: str, *, streaming: bool = False, tools: bool = True) -> tuple[str, Json]:
        body = self.body([self.user(text)], streaming)
        return self.path(streaming), body | (self.tools if tools else {})


def send(url: str, path: str, body: object, timeout_sec: float = 20.0) -> tuple[int, Mapping[str, str], bytes]:
    """POST a body and read the answer to its end."""
    door = http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout_sec)
    try:
        door.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = door.getresponse()
        return answer.status, dict(answer.headers), answer.read()
    finally:
        door.close()


def events(stream: bytes) -> Iterator[Json]:
    """The data of each server-sent event that is an object."""
    for line in stream.decode().splitlines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


_FUNCTION = {"name": "shell", "description": "runs a command", "parameters": SCHEMA}

CHAT = Client(
    path=lambda streaming: "/v1/chat/completions",
    body=lambda messages, streaming: {"model": "m", "messages": messages, "stream": streaming},
    tools={"tools": [{"type": "function", "function": _FUNCTION}]},
    user=lambda text: {"role": "user", "content": text},
    talk=[
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "list"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "shell", "arguments": '{"command": "ls"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "1", "content": "a b"},
        {"role": "assistant", "content": "two files"},
    ],
    whole_text=lambda body: body["choices"][0]["message"]["content"],
    whole_call=lambda body: (
        body["choices"][0]["message"]["tool_calls"][0]["function"]["name"],
        json.loads(body["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]),
    ),
    stream_text=lambda event: "".join(choice["delta"].get("content") or "" for choice in event["choices"]),
)

RESPONSES = Client(
    path=lambda streaming: "/v1/responses",
    body=lambda items, streaming: {"model": "m", "input": items, "stream": streaming},
    tools={"tools": [{"type": "function", **_FUNCTION}]},
    user=lambda text: {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]},
    talk=[
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "be brief"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "list"}]},
        {"type": "function_call", "call_id": "1", "name": "shell", "arguments": '{"command": "ls"}'},
        {"type": "function_call_output", "call_id": "1", "output": "a b"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "two files"}]},
    ],
    whole_text=lambda body: body["output"][0]["content"][0]["text"],
    whole_call=lambda body: (body["output"][0]["name"], json.loads(body["output"][0]["arguments"])),
    stream_text=lambda event: event["delta"] if event["type"] == "response.output_text.delta" else "",
)

GEMINI = Client(
    path=lambda streaming: (
        "/v1beta/models/m:streamGenerateContent?alt=sse" if streaming else "/v1beta/models/m:generateContent"
    ),
    body=lambda contents, streaming: {"contents": contents},
    tools={"tools": [{"functionDeclarations": [_FUNCTION]}]},
    user=lambda text: {"role": "user", "parts": [{"text": text}]},
    talk=[
        {"role": "user", "parts": [{"text": "list"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "shell", "args": {"command": "ls"}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "shell", "response": {"output": "a b"}}}]},
        {"role": "model", "parts": [{"text": "two files"}]},
    ],
    whole_text=lambda body: body["candidates"][0]["content"]["parts"][0]["text"],
    whole_call=lambda body: (
        body["candidates"][0]["content"]["parts"][0]["functionCall"]["name"],
        body["candidates"][0]["content"]["parts"][0]["functionCall"]["args"],
    ),
    stream_text=lambda event: "".join(part["text"] for part in event["candidates"][0]["content"]["parts"]),
)

MESSAGES = Client(
    path=lambda streaming: "/v1/messages?beta=true",
    body=lambda messages, streaming: {"model": "m", "max_tokens": 9, "messages": messages, "stream": streaming},
    tools={"tools": [{"name": "shell", "description": "runs a command", "input_schema": SCHEMA}]},
    user=lambda text: {"role": "user", "content": text},
    talk=[
        {"role": "user", "content": [{"type": "text", "text": "list"}]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "1", "name": "shell", "input": {"command": "ls"}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "a b"}]},
        {"role": "assistant", "content": "two files"},
    ],
    whole_text=lambda body: body["content"][0]["text"],
    whole_call=lambda body: (body["content"][0]["name"], body["content"][0]["input"]),
    stream_text=lambda event: event["delta"].get("text", "") if event["type"] == "content_block_delta" else "",
)

CLIENTS: Mapping[str, Client] = {"chat": CHAT, "gemini": GEMINI, "messages": MESSAGES, "responses": RESPONSES}
