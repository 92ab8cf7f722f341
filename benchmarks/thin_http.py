"""The least that speaks HTTP to a server: a few connections that stay, one request at a time on each.

A benchmark shares its machine with what it measures, and a full client takes longer for a request than the server.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, token: str) -> None:
        self._reader = reader
        self._writer = writer
        self._head = f"Host: {host}\r\nAuthorization: Bearer {token}\r\n"

    async def get(self, path: str) -> Any:
        return json.loads(await self.get_text(path))

    async def get_text(self, path: str) -> bytes:
        return await self._ask("GET", path, b"")

    async def post(self, path: str, body: Any) -> Any:
        return json.loads(await self._ask("POST", path, json.dumps(body).encode()))

    async def _ask(self, method: str, path: str, body: bytes) -> bytes:
        content = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
        self._writer.write(f"{method} {path} HTTP/1.1\r\n{self._head}{content}\r\n".encode() + body)
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("\r\ncontent-length: ")[2].partition("\r\n")[0])
        answer = await self._reader.readexactly(length)
        if head.split()[1][0] != "2":
            raise RuntimeError(f"{method} {path}: {answer.decode()}")
        return answer


@asynccontextmanager
async def connections(url: str, token: str, count: int) -> AsyncIterator[list[Connection]]:
    address = urlsplit(url)
    async with AsyncExitStack() as stack:
        made = []
        for _ in range(count):
            reader, writer = await asyncio.open_connection(address.hostname, address.port)
            stack.callback(writer.close)
            made.append(Connection(reader, writer, address.netloc, token))
        yield made
