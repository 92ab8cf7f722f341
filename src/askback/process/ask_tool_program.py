"""A small MCP server with one tool, `put_question`, started by an engine: python ask_tool_program.py SOCKET.

With `--hook SOCKET` it is a hook of the engine instead, which decides whether a call of the tool is deferred; with `--gate
SOCKET` one that decides on the calls of all tools.

It speaks JSON-RPC on stdin and stdout, one message per line. Every question goes through the Unix socket to Askback, which
checks it. Askback answers at once, or holds the call until the user has answered; the tool then reports progress to the
engine. Standard library only, because it is started for every process of an engine.
"""

# No pathlib, contextlib or asyncio: importing them would take longer than everything else.
# ruff: noqa: PTH120, PTH119, SIM105
from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TOOL = "put_question"
PROTOCOL_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
CALL_BYTES = 64_000
"""Bytes of a call: as many as a question may have."""
MAX_BYTES = 256_000
"""Bytes of what Askback says to a call."""
_MAX_LINE = 16_000_000
_CHUNK = 1 << 16
_ANSWER_SEC = 20.0
_BEAT_SEC = 10.0
_CUT_SEC = 30.0
"""How long the engine is kept waiting for an answer that cannot come any more."""
HOOK = b"?"
"""What a line of the hook starts with."""
GATE = b"!"
"""What a line of the gate starts with."""
GATE_BYTES = 1_000_000
"""Bytes of a line of the gate. A larger call is denied."""
_BLOCKED = 2
"""The exit code with which every engine denies a call."""
_GATE_SEC = 40
DELIVERED = b"\n"
"""What this program sends to Askback when it has passed on an answer."""
_METHOD_NOT_FOUND, _INVALID_PARAMS = -32601, -32602

RECORDED = "The question is recorded. End your turn now: the answer will be your next message."
_UNREACHABLE = "The question could not be delivered. Ask with a JSON block at the end of your message instead."
_TOO_LARGE = f"The question is too large: a call may have {CALL_BYTES:,} bytes."

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
        "again. The result is the answer of the user, which may take a while, or says that the question is recorded: then "
        "end your turn, and the answer is the next message that you get. "
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


class AskTool:
    """Serves one engine until its stdin ends. Calls that Askback holds wait for their answers while others are served."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._held: list[_HeldCall] = []
        self._rest = b""
        self._beat_at = 0.0

    def serve(self) -> None:
        while True:
            watched: list[Any] = [0, *(each.link for each in self._held if not each.cut_at)]
            ready = select.select(watched, [], [], _BEAT_SEC if self._held else None)[0]
            for held in [each for each in self._held if each.link in ready]:
                self._take_answer(held)
            if 0 in ready and not self._read():
                return
            if self._held and time.monotonic() - self._beat_at >= _BEAT_SEC:
                self._beat()

    def _read(self) -> bool:
        """Read messages, and respond. False at the end of the input."""
        data = os.read(0, _CHUNK)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._receive(line)
        # A longer line is nothing that an engine sends.
        return bool(data) and len(self._rest) <= _MAX_LINE

    def _receive(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(message, dict) or not isinstance(message.get("method"), str):
            return
        given = message.get("params")
        params = given if isinstance(given, dict) else {}
        if "id" not in message:
            if message["method"] == "notifications/cancelled":
                # The engine does not wait for this call any more.
                for held in [each for each in self._held if each.request_id == params.get("requestId")]:
                    self._held.remove(held)
                    held.link.close()
            return
        if message["method"] == "tools/call" and params.get("name") == TOOL:
            self._call(message["id"], params)
        else:
            _write({"id": message["id"], **_response(message["method"], params)})

    # Calls.

    def _call(self, request_id: Any, params: dict[str, Any]) -> None:
        data = _encoded(params.get("arguments"))
        if len(data) > CALL_BYTES:
            _write_result(request_id, False, _TOO_LARGE)
            return
        try:
            link = _connect(self._path)
            link.sendall(data)
            answer = _line(link)
        except (OSError, ValueError):
            _write_result(request_id, False, _UNREACHABLE)
            return
        if answer.get("held") is True:
            meta = params.get("_meta")
            token = meta.get("progressToken") if isinstance(meta, dict) else None
            self._held.append(_HeldCall(link, request_id, token))
            self._beat_at = time.monotonic()
            return
        link.close()
        _write_result(request_id, answer.get("accepted") is True, str(answer.get("text", _UNREACHABLE)))

    def _take_answer(self, held: _HeldCall) -> None:
        try:
            answer = _line(held.link)
            accepted, text = answer["accepted"] is True, str(answer["text"])
        except (OSError, ValueError, KeyError):
            # Askback has ended, and its keeper is about to end this program. The engine must not continue meanwhile.
            held.cut_at = time.monotonic()
            return
        self._held.remove(held)
        _write_result(held.request_id, accepted, text)
        try:
            # The engine can read it, even if this program is killed now.
            held.link.sendall(DELIVERED)
        except OSError:
            pass
        held.link.close()

    def _beat(self) -> None:
        """Report progress, without which some engines give up a call."""
        self._beat_at = time.monotonic()
        for held in list(self._held):
            held.beats += 1
            if held.cut_at and self._beat_at - held.cut_at > _CUT_SEC:
                self._held.remove(held)
                held.link.close()
                _write_result(held.request_id, True, RECORDED)
            elif held.token is not None:
                params = {"progressToken": held.token, "progress": held.beats, "message": "waiting for the user"}
                _write({"method": "notifications/progress", "params": params})


class _HeldCall:
    """A call that waits for its answer."""

    def __init__(self, link: socket.socket, request_id: Any, token: Any) -> None:
        self.link = link
        self.request_id = request_id
        self.token = token
        self.beats = 0
        self.cut_at = 0.0
        """When the connection was cut; 0 while it stands."""


def _encoded(arguments: Any) -> bytes:
    # Escapes would make a text in Chinese twice as long. Half a character can only be sent as one.
    return json.dumps(arguments, ensure_ascii=False).encode(errors="backslashreplace") + b"\n"


def _connect(path: str) -> socket.socket:
    # The name alone: a path may be longer than an address of a socket.
    os.chdir(os.path.dirname(path))
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        link.settimeout(_ANSWER_SEC)
        link.connect(os.path.basename(path))
    except OSError:
        link.close()
        raise
    return link


def _line(link: socket.socket) -> dict[str, Any]:
    """One line from Askback. Raises `OSError` or `ValueError`."""
    data = b""
    while not data.endswith(b"\n") and len(data) <= MAX_BYTES:
        if not (more := link.recv(_CHUNK)):
            raise ConnectionError("it was closed")
        data += more
    answer = json.loads(data)
    if not isinstance(answer, dict):
        raise ValueError("not an object")
    return answer


def _response(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        wanted = params.get("protocolVersion")
        version = wanted if wanted in PROTOCOL_VERSIONS else PROTOCOL_VERSIONS[0]
        server = {"name": "askback", "version": "1"}
        return {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}}
    if method == "ping":
        return {"result": {}}
    if method == "tools/list":
        return {"result": {"tools": [DESCRIPTION]}}
    if method == "tools/call":
        return {"error": {"code": _INVALID_PARAMS, "message": f"the only tool is {TOOL}"}}
    return {"error": {"code": _METHOD_NOT_FOUND, "message": "method not found"}}


def _write_result(request_id: Any, accepted: bool, text: str) -> None:
    _write({"id": request_id, "result": {"content": [{"type": "text", "text": text}], "isError": not accepted}})


def _write(message: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    sys.stdout.buffer.flush()


def decide(path: str) -> None:
    """Tell Claude whether to defer the call that it describes on stdin. Without a decision, it makes the call."""
    try:
        data = HOOK + _encoded(json.loads(sys.stdin.buffer.read(_MAX_LINE))["tool_input"])
        if len(data) > CALL_BYTES:
            return
        link = _connect(path)
        link.sendall(data)
        defers = _line(link).get("defer") is True
    except (OSError, ValueError, KeyError, TypeError):
        return
    if defers:
        decision = {"hookEventName": "PreToolUse", "permissionDecision": "defer"}
        print(json.dumps({"hookSpecificOutput": decision}))


def guard(path: str) -> int:
    """Pass on what the engine wants to do, and print Askback's answer. Whatever fails, the call is denied."""
    # A signal ends the program, which denies the call as well.
    signal.alarm(_GATE_SEC)
    try:
        data = GATE + sys.stdin.buffer.read(GATE_BYTES).replace(b"\n", b" ") + b"\n"
        if len(data) > GATE_BYTES:
            print("The call is too large to be decided on.", file=sys.stderr)
            return _BLOCKED
        link = _connect(path)
        link.settimeout(_GATE_SEC)
        link.sendall(data)
        answer = _line(link)
        out, error, code = str(answer["out"]), str(answer["error"]), int(answer["code"])
    except (OSError, ValueError, KeyError, TypeError):
        print("The gate cannot be reached; no tool can be used.", file=sys.stderr)
        return _BLOCKED
    if error:
        print(error, file=sys.stderr)
    if out:
        print(out)
    return code


if __name__ == "__main__":
    if sys.argv[1] == "--gate":
        sys.exit(guard(sys.argv[2]))
    elif sys.argv[1] == "--hook":
        decide(sys.argv[2])
    else:
        AskTool(sys.argv[1]).serve()
