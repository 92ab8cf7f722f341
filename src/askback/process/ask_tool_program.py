"""A small MCP server with one tool, `put_question`, started by an engine: python ask_tool_program.py SOCKET.

It speaks JSON-RPC on stdin and stdout, one message per line. Every question goes through the Unix socket to Askback, which
checks it. Standard library only, because it is started for every process of an engine.
"""

# No pathlib and no asyncio: importing them would take longer than everything else.
# ruff: noqa: PTH120, PTH119
from __future__ import annotations

import json
import os
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TOOL = "put_question"
PROTOCOL_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
MAX_BYTES = 256_000
"""Bytes of a question, and of what Askback says to it."""
_MAX_LINE = 16_000_000
_ANSWER_SEC = 20.0
_METHOD_NOT_FOUND, _INVALID_PARAMS = -32601, -32602

_UNREACHABLE = "The question could not be delivered. Ask with a JSON block at the end of your message instead."
_TOO_LARGE = f"The question is too large: a call may have {MAX_BYTES:,} bytes."

_TEXT = {"type": "string"}
_OPTIONS = {
    "type": "array",
    "description": "The answers to choose from: texts, or objects with `label` and `value`.",
    "items": {
        "anyOf": [
            _TEXT,
            {"type": "object", "properties": {"label": _TEXT, "value": _TEXT, "description": _TEXT}},
        ]
    },
}
_COMMON: dict[str, Any] = {
    "kind": {
        "type": "string",
        "description": "`text`, `choice`, `confirm`, or `secret` for an answer that stays hidden.",
    },
    "options": _OPTIONS,
    "default": {"description": "The answer if the user gives none."},
    "context": {"type": "string", "description": "What the user should know to answer."},
    "response_schema": {
        "type": "object",
        "description": "A JSON Schema of the answer: a scalar, or an object of scalars.",
    },
}
_PROMPT = {"type": "string", "description": "The question, in the language of the user."}
_FIELD = {
    "type": "object",
    "properties": {"id": _TEXT, "prompt": _PROMPT, "required": {"type": "boolean"}, **_COMMON},
    "required": ["id", "prompt"],
}
DESCRIPTION = {
    "name": TOOL,
    "title": "Ask the user",
    "description": (
        "Asks the user of this run a question. A malformed question is returned with what is wrong: correct it and call "
        "again. When the question is recorded, end your turn: the answer is the next message that you get. "
        "Put everything that you need to know into one call: several questions go into `questions`."
    ),
    "inputSchema": {
        "type": "object",
        "properties": {
            "interaction_id": {"type": "string", "description": "Your own id, new for each question."},
            "prompt": _PROMPT,
            **_COMMON,
            "questions": {"type": "array", "description": "Several questions, as one form.", "items": _FIELD},
        },
        "required": ["interaction_id", "prompt"],
    },
}


def main(path: str) -> int:
    # A longer line is nothing that an engine sends.
    while (line := sys.stdin.buffer.readline(_MAX_LINE)).endswith(b"\n"):
        answer = _answer(line, path)
        if answer is not None:
            sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
            sys.stdout.buffer.flush()
    return 0


def _answer(line: bytes, path: str) -> dict[str, Any] | None:
    """The response to a message; None if it needs none."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or "id" not in message or not isinstance(message.get("method"), str):
        return None
    params = message.get("params")
    result = _result(message["method"], params if isinstance(params, dict) else {}, path)
    return {"jsonrpc": "2.0", "id": message["id"], **result}


def _result(method: str, params: dict[str, Any], path: str) -> dict[str, Any]:
    if method == "initialize":
        wanted = params.get("protocolVersion")
        version = wanted if wanted in PROTOCOL_VERSIONS else PROTOCOL_VERSIONS[0]
        server = {"name": "askback", "version": "1"}
        return {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}}
    if method == "ping":
        return {"result": {}}
    if method == "tools/list":
        return {"result": {"tools": [DESCRIPTION]}}
    if method == "tools/call" and params.get("name") == TOOL:
        accepted, text = _put(params.get("arguments"), path)
        return {"result": {"content": [{"type": "text", "text": text}], "isError": not accepted}}
    if method == "tools/call":
        return {"error": {"code": _INVALID_PARAMS, "message": f"the only tool is {TOOL}"}}
    return {"error": {"code": _METHOD_NOT_FOUND, "message": "method not found"}}


def _put(arguments: Any, path: str) -> tuple[bool, str]:
    """Pass the question on. Returns whether it was accepted, and what to tell the model."""
    data = json.dumps(arguments).encode() + b"\n"
    if len(data) > MAX_BYTES:
        return False, _TOO_LARGE
    try:
        # The name alone: a path may be longer than an address of a socket.
        os.chdir(os.path.dirname(path))
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(_ANSWER_SEC)
            link.connect(os.path.basename(path))
            link.sendall(data)
            with link.makefile("rb") as received:
                answer = json.loads(received.readline(MAX_BYTES))
        return answer["accepted"] is True, str(answer["text"])
    except (OSError, ValueError, KeyError, TypeError):
        return False, _UNREACHABLE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
