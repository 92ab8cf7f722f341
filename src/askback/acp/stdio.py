"""Messages of the protocol as lines on stdin and stdout. What is no message is refused, and the connection stays."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

MAX_LINE_BYTES = 16 * 1024 * 1024
PARSE_ERROR = -32700
INVALID_REQUEST = -32600


async def stdio_streams() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Stdin and stdout, as copies: the loop closes what it was given, and the program flushes its own at the end."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    source = os.fdopen(os.dup(sys.stdin.fileno()), "rb", buffering=0)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
    sink = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sink)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


class LineTransport:
    """One JSON object per line. The package's own transport ends at the first line that is not an object."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, message: dict[str, Any]) -> None:
        # A text may have half of a surrogate pair, which JSON can express and UTF-8 cannot.
        self._writer.write(json.dumps(message, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
        await self._writer.drain()

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None at the end of the input."""
        while (line := await self._line()) is not None:
            if not line.strip():
                continue
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                await self._refuse(None, PARSE_ERROR, "the line is not JSON")
                continue
            if problem := _problem(message):
                await self._refuse(message, INVALID_REQUEST, problem)
                continue
            return _without_meta(message)
        return None

    async def close(self) -> None:
        self._writer.close()

    async def _line(self) -> bytes | None:
        """The next line. Of one that is too long, the rest is dropped and an empty line returned."""
        too_long = False
        while True:
            try:
                line = await self._reader.readline()
            except ValueError:
                too_long = True
                continue
            if not line:
                return None
            if not too_long:
                return line
            await self._refuse(None, PARSE_ERROR, f"a line has at most {MAX_LINE_BYTES:,} bytes")
            return b"\n"

    async def _refuse(self, message: Any, code: int, problem: str) -> None:
        given = message.get("id") if isinstance(message, dict) else None
        known = given if isinstance(given, int | str) else None
        await self.send({"jsonrpc": "2.0", "id": known, "error": {"code": code, "message": problem}})


def _problem(message: Any) -> str | None:
    if not isinstance(message, dict):
        return "a message is one JSON object"
    if not isinstance(message.get("id"), int | str | None):
        return "the id of a message is a number or a text"
    if "method" in message:
        return None if isinstance(message["method"], str) else "the name of a method is a text"
    if "id" not in message:
        return "a message has a method or an id"
    return None if isinstance(message.get("error"), dict | None) else "the error of a response is an object"


def _without_meta(message: dict[str, Any]) -> dict[str, Any]:
    """Without `_meta`, which the package would pass on as if its keys were parameters."""
    params = message.get("params")
    if not isinstance(params, Mapping) or "_meta" not in params:
        return message
    return {**message, "params": {name: value for name, value in params.items() if name != "_meta"}}
