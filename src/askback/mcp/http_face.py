"""The MCP server at `/mcp`: the SDK's application, whose tools call our own API in this process, as the same caller."""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import anyio
import httpx
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.context import ServerRequestContext
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import INVALID_REQUEST
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from askback.client import AsyncClient
from askback.mcp.caller import BY_MCP, MAX_LINKS, Caller, OpenForms, Remembered
from askback.mcp.server import make_server, state_security

_SESSION_ID = b"mcp-session-id"
_SDK_LOG = "mcp.server.streamable_http"
_SESSION_ENDED = (anyio.ClosedResourceError, anyio.BrokenResourceError)


def _is_worth_a_line(record: logging.LogRecord) -> bool:
    """Whether to log a record. A message that arrives while its session ends is not an error."""
    kind = record.exc_info[0] if record.exc_info else None
    return kind is None or not issubclass(kind, _SESSION_ENDED)


class HttpFace:
    """Answers the requests at `/mcp`. The gate before it has decided who the caller is."""

    def __init__(
        self,
        api: ASGIApp,
        *,
        key: bytes,
        skills_as_tools: bool,
        max_bytes: int,
        identity: Callable[[Scope], str],
        method: Callable[[Scope], str | None],
    ) -> None:
        self._api = api
        self._identity = identity
        self._method = method
        self._urls = Remembered[str](MAX_LINKS)
        self._forms = OpenForms()
        sealing = hmac.new(key, b"mcp request state", hashlib.sha256).digest()
        security = state_security(sealing, lambda ctx: identity(_scope(ctx)))
        self._manager = StreamableHTTPSessionManager(
            make_server(self._caller, skills_as_tools=skills_as_tools, security=security),
            # The gate has checked the host and the origin.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            max_request_body_size=max_bytes,
        )

        self.sessions = Sessions(self._end_session)
        logging.getLogger(_SDK_LOG).addFilter(_is_worth_a_line)

    def running(self) -> AbstractAsyncContextManager[None]:
        return self._manager.run()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        owner = self._identity(scope)
        # Of several headers, the SDK reads the first.
        session_id = Headers(scope=scope).get(_SESSION_ID.decode())
        if session_id is not None:
            await self._in_session(session_id, scope, receive, send)
        elif self._method(scope) != "initialize":
            await self._handle(owner, scope, receive, send)
        elif await self.sessions.make_room(owner):
            await self._open(scope, receive, send)
        else:
            refusal = {"code": INVALID_REQUEST, "message": "too many sessions are in use by this token; end one first"}
            body = {"jsonrpc": "2.0", "id": None, "error": refusal}
            await JSONResponse(body, HTTPStatus.TOO_MANY_REQUESTS)(scope, receive, send)

    async def _open(self, scope: Scope, receive: Receive, send: Send) -> None:
        owner = self._identity(scope)

        async def with_session(message: Message) -> None:
            is_open = message["type"] == "http.response.start" and message["status"] < HTTPStatus.BAD_REQUEST
            if is_open and (session_id := dict(message["headers"]).get(_SESSION_ID)):
                opening.close()
                self.sessions.add(session_id.decode("latin-1"), owner, scope["still_valid"])
            await send(message)

        with ExitStack() as opening:
            opening.enter_context(self.sessions.opening(owner))
            await self._handle(owner, scope, receive, with_session)

    async def _in_session(self, session_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        owner = self._identity(scope)

        async def with_session(message: Message) -> None:
            # No other response proves that it has ended: 404 is also the status of an unknown method.
            if scope["method"] == "DELETE" and message.get("status") == HTTPStatus.OK:
                self.sessions.forget(session_id, owner)
            await send(message)

        with self.sessions.using(session_id, owner):
            await self._handle(owner, scope, receive, with_session)

    async def _handle(self, owner: str, scope: Scope, receive: Receive, send: Send) -> None:
        # A session belongs to the token that has opened it.
        user = AuthenticatedUser(AccessToken(token="", client_id=owner, scopes=[]))
        # The SDK responds to a message of a session that has just ended, and then passes the message on to it.
        with suppress(*_SESSION_ENDED):
            await self._manager.handle_request({**scope, "user": user}, receive, send)

    async def _end_session(self, session_id: str, owner: str) -> None:
        """End a session with the request that its client would send, and ignore the response."""

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            pass

        headers = [(_SESSION_ID, session_id.encode("latin-1"))]
        scope = {"type": "http", "method": "DELETE", "path": "/mcp", "query_string": b"", "headers": headers}
        await self._handle(owner, scope, receive, send)

    def _caller(self, ctx: ServerRequestContext[Any, Any]) -> Caller:
        scope = _scope(ctx)
        host = dict(scope["headers"]).get(b"host", b"localhost").decode("latin-1")
        # It has no connection, so nothing has to be closed; an answer may come after the call has returned.
        client = AsyncClient(f"http://{host}", headers=BY_MCP, transport=_InProcess(self._api, scope))
        return Caller(client=client, identity=self._identity(scope), urls=self._urls, forms=self._forms)


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


MAX_PER_TOKEN = 64
"""The SDK keeps what a client has sent about itself, and has one limit for all callers together."""


@dataclass(slots=True, eq=False)
class _Session:
    id: str
    owner: str
    still_valid: Callable[[], bool]
    in_use: int = 0


@dataclass(slots=True, eq=False, repr=False)
class Sessions:
    """Stateful MCP sessions: limit per token, and eviction of the longest unused. `end` ends one in the SDK, by its id and owner."""

    end: Callable[[str, str], Awaitable[None]]
    max_per_token: int = MAX_PER_TOKEN
    _all: dict[str, _Session] = field(init=False, default_factory=dict)
    _opening: Counter[str] = field(init=False, default_factory=Counter)

    @property
    def count(self) -> int:
        return len(self._all)

    async def make_room(self, owner: str) -> bool:
        """Whether the owner may open one more. For it, the idle session that was unused for the longest time is ended."""
        while self._opening[owner] + sum(each.owner == owner for each in self._all.values()) >= self.max_per_token:
            idle = next((each for each in self._all.values() if each.owner == owner and not each.in_use), None)
            if idle is None:
                return False
            await self._end_one(idle)
        return True

    @contextmanager
    def opening(self, owner: str) -> Iterator[None]:
        self._opening[owner] += 1
        try:
            yield
        finally:
            self._opening[owner] -= 1
            if not self._opening[owner]:
                del self._opening[owner]

    def add(self, session_id: str, owner: str, still_valid: Callable[[], bool]) -> None:
        self._all[session_id] = _Session(session_id, owner, still_valid)

    @contextmanager
    def using(self, session_id: str, owner: str) -> Iterator[None]:
        """A session that handles a request is not idle. The session of another owner is not touched."""
        session = self._all.get(session_id)
        if session is None or session.owner != owner:
            yield
            return
        session.in_use += 1
        try:
            yield
        finally:
            session.in_use -= 1
            if self._all.pop(session_id, None) is not None:
                self._all[session_id] = session

    def forget(self, session_id: str, owner: str) -> None:
        if (session := self._all.get(session_id)) is not None and session.owner == owner:
            del self._all[session_id]

    async def end_invalid(self) -> None:
        """End the sessions whose token is no longer valid."""
        for session in [each for each in self._all.values() if not each.still_valid()]:
            await self._end_one(session)

    async def _end_one(self, session: _Session) -> None:
        self._all.pop(session.id, None)
        await self.end(session.id, session.owner)
