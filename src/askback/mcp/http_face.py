"""The MCP server at `/mcp`: the SDK's application, whose tools call our own API in this process, as the same caller."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.context import ServerRequestContext
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import ASGIApp, Receive, Scope, Send

from askback.client import AsyncClient
from askback.mcp.caller import BY_MCP, AnswerUrls, Caller
from askback.mcp.server import make_server, state_security


class HttpFace:
    """Answers the requests at `/mcp`. The gate before it has decided who the caller is."""

    def __init__(
        self, api: ASGIApp, *, key: bytes, skills_as_tools: bool, max_bytes: int, identity: Callable[[Scope], str]
    ) -> None:
        self._api = api
        self._identity = identity
        self._urls = AnswerUrls()
        sealing = hmac.new(key, b"mcp request state", hashlib.sha256).digest()
        security = state_security(sealing, lambda ctx: identity(_scope(ctx)))
        self._manager = StreamableHTTPSessionManager(
            make_server(self._caller, skills_as_tools=skills_as_tools, security=security),
            # The gate has checked the host and the origin.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            max_request_body_size=max_bytes,
        )

    def running(self) -> AbstractAsyncContextManager[None]:
        return self._manager.run()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A session belongs to the token that has opened it.
        user = AuthenticatedUser(AccessToken(token="", client_id=self._identity(scope), scopes=[]))
        await self._manager.handle_request({**scope, "user": user}, receive, send)

    def _caller(self, ctx: ServerRequestContext[Any, Any]) -> Caller:
        scope = _scope(ctx)
        host = dict(scope["headers"]).get(b"host", b"localhost").decode("latin-1")
        # It has no connection, so nothing has to be closed; an answer may come after the call has returned.
        client = AsyncClient(f"http://{host}", headers=BY_MCP, transport=_InProcess(self._api, scope))
        return Caller(client=client, identity=self._identity(scope), urls=self._urls)


def _scope(ctx: ServerRequestContext[Any, Any]) -> Scope:
    assert ctx.request is not None
    scope: Scope = ctx.request.scope
    return scope


class _InProcess(httpx.AsyncBaseTransport):
    """Calls the API as the caller of another request, as long as that caller's token is valid."""

    def __init__(self, api: ASGIApp, caller: Scope) -> None:
        self._caller = caller

        async def as_caller(scope: Scope, receive: Receive, send: Send) -> None:
            known = {key: caller[key] for key in ("grant", "still_valid", "client") if key in caller}
            await api({**scope, **known}, receive, send)

        self._asgi = httpx.ASGITransport(as_caller)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if not self._caller["still_valid"]():
            body = {"title": "Unauthorized", "status": 401, "code": "UNAUTHORIZED", "detail": "the token has ended"}
            return httpx.Response(401, json={"type": "about:blank", **body}, request=request)
        return await self._asgi.handle_async_request(request)
