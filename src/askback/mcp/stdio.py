"""The MCP server on stdio: a thin client of a server, so that runs outlive it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, TypeVar

from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server

from askback.client import AsyncClient, Unauthorized
from askback.client.calls import Call
from askback.mcp.caller import BY_MCP, MAX_LINKS, Caller, OpenForms, Remembered
from askback.mcp.server import make_server, state_security

T = TypeVar("T")
Find = Callable[[], tuple[str, str | None]]
"""The URL and the token of the server, looked up for every call: it may have been restarted elsewhere."""


async def serve_stdio(find: Find, *, skills_as_tools: bool) -> None:
    """Serve the client at the other end of stdin and stdout until it leaves."""
    clients, urls, forms = Clients(), Remembered[str](MAX_LINKS), OpenForms()

    def caller(ctx: ServerRequestContext[Any, Any]) -> Caller:
        url, token = find()
        identity = hashlib.sha256((token or "").encode("utf-8", "surrogateescape")).hexdigest()
        return Caller(client=clients.of(url, token), identity=identity, urls=urls, forms=forms)

    server = make_server(caller, skills_as_tools=skills_as_tools, security=state_security(None, None))
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())
    await clients.close()


class Clients:
    """One client for each server that was found, open until the end: an answer may come after its call has returned."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str | None], AsyncClient] = {}

    def of(self, url: str, token: str | None) -> AsyncClient:
        if (url, token) not in self._open:
            self._open[url, token] = _StdioClient(url, token, headers=BY_MCP)
        return self._open[url, token]

    async def close(self) -> None:
        for client in self._open.values():
            await client.close()


class _StdioClient(AsyncClient):
    """Replaces the advice of a 401: the user sets a variable or an option here, not a header."""

    async def _do(self, call: Call[T]) -> T:
        try:
            return await super()._do(call)
        except Unauthorized as error:
            message = "the server does not accept the token, or needs one: set ASKBACK_TOKEN, or pass --token"
            raise Unauthorized(error.status, error.code, message) from None
