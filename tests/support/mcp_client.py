"""The client of the official SDK, on each transport and in each era."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from support.program import ASKBACK
from support.server import Server

LIMIT_SEC = 180
Elicited = Callable[[Any, Any], Awaitable[types.ElicitResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """A way to the server."""

    server: Server
    transport: str
    mode: str
    token: str | None = None

    def with_token(self, token: str) -> Door:
        return replace(self, token=token)

    @asynccontextmanager
    async def opened(self, elicited: Elicited | None = None) -> AsyncIterator[Client]:
        token = self.token or self.server.token
        async with asyncio.timeout(LIMIT_SEC):
            if self.transport == "stdio":
                env = {"ASKBACK_URL": self.server.url, "ASKBACK_TOKEN": token}
                program = StdioServerParameters(
                    command=ASKBACK[0], args=[*ASKBACK[1:], "mcp", "--skill-tools"], env=env
                )
                async with Client(program, mode=self.mode, elicitation_callback=elicited) as client:
                    yield client
                return
            headers = {"Authorization": f"Bearer {token}"}
            async with httpx2.AsyncClient(headers=headers, timeout=LIMIT_SEC) as http:
                way = streamable_http_client(f"{self.server.url}/mcp", http_client=http)
                async with Client(way, mode=self.mode, elicitation_callback=elicited) as client:
                    yield client


def key() -> str:
    """An idempotency key of this test alone."""
    return uuid.uuid4().hex


async def called(client: Client, tool: str, /, **arguments: Any) -> dict[str, Any]:
    """The structured result of a call that succeeds."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    document: dict[str, Any] = result.structured_content
    return document


async def started(client: Client, skill: str, **more: Any) -> dict[str, Any]:
    return await called(client, "run_skill", **{"skill": skill, "engine": "scripted", "idempotency_key": key()} | more)


async def refusal(client: Client, tool: str, /, **arguments: Any) -> str:
    """The text of a result that is an error."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result
    first = result.content[0]
    assert isinstance(first, types.TextContent)
    return first.text


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(LIMIT_SEC):
            await test()

    asyncio.run(within())
