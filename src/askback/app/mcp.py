"""The MCP server of a server: whether it can be served, and loading it with its first request."""

from __future__ import annotations

import asyncio
import logging
from contextlib import nullcontext
from http import HTTPStatus
from importlib import import_module
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from askback.background.loops import keep_trying
from askback.http.auth import MCP
from askback.http.bodies import BodyCap
from askback.http.context import Context
from askback.http.messages import METHOD, Messages
from askback.mcp import INSTALL, missing_package

if TYPE_CHECKING:
    from askback.mcp.http_face import HttpFace

log = logging.getLogger(__name__)

_VALID_SEC = 5.0
"""How often the sessions of revoked tokens are looked for."""


class McpFace:
    """Answers at `/mcp`. The SDK is loaded with the first request: it takes a second or two, and 50 MB."""

    def __init__(self, context: Context, api: ASGIApp, *, skill_tools: bool) -> None:
        self._context = context
        self._api = BodyCap(api, context.bodies)
        self._skill_tools = skill_tools
        self._messages = Messages(self._respond, context.pools.parsing)
        self._wanted = asyncio.Event()
        self._face: asyncio.Future[HttpFace] = asyncio.get_running_loop().create_future()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if missing_package():
            raise HTTPException(HTTPStatus.NOT_FOUND, f"this server does not speak MCP; {INSTALL}")
        await self._messages(scope, receive, send)

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._wanted.set()
        face = await asyncio.shield(self._face)
        streams, name = self._context.streams, scope["grant"].name
        with streams.reserve(name) if scope["method"] == "GET" else nullcontext():
            await streams.while_valid(face, scope, receive, send)

    async def serve(self) -> None:
        """Load the MCP server with its first request, and serve until canceled."""
        await self._wanted.wait()
        made: list[Any] = []

        async def load() -> bool:
            made.append(await asyncio.to_thread(import_module, "askback.mcp.http_face"))
            return True

        await keep_trying(load, log, "the MCP server cannot be loaded")
        face: HttpFace = made[0].HttpFace(
            self._api,
            key=self._context.links.key,
            skills_as_tools=self._skill_tools,
            max_bytes=self._context.bodies.bytes_for(MCP),
            identity=lambda scope: str(scope["grant"].token_digest),
            method=lambda scope: scope.get(METHOD),
        )

        async def end_invalid() -> None:
            await asyncio.sleep(_VALID_SEC)
            await face.sessions.end_invalid()

        async with face.running():
            self._face.set_result(face)
            await keep_trying(end_invalid, log, "sessions of revoked tokens cannot be ended")
