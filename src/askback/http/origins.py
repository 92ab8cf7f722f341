"""Pages of other origins that may call the API (CORS). Off unless the settings name origins, and never with cookies.

A request of a named origin is treated like one of a program: it needs a token, and what identifies a browser is removed
before the gate sees it. All other requests pass unchanged.
"""

from __future__ import annotations

from http import HTTPStatus

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from askback.http.auth import headers_of

_API = "/v1/"
_OF_BROWSERS = (b"cookie", b"origin", b"referer")
_EXPOSED = b"ETag, Location, Retry-After, Content-Disposition"
_PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, POST, DELETE",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, Idempotency-Key, If-None-Match, Last-Event-ID, traceparent",
    "Access-Control-Max-Age": "600",
}


class Origins:
    def __init__(self, app: ASGIApp, allowed: frozenset[str]) -> None:
        self._app = app
        self._allowed = allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = self._allowed_origin(scope)
        if origin is None:
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [
                    (b"access-control-allow-origin", origin.encode("latin-1")),
                    (b"access-control-expose-headers", _EXPOSED),
                    (b"vary", b"Origin"),
                ]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        if scope["method"] == "OPTIONS" and "access-control-request-method" in headers_of(scope):
            preflight = Response(status_code=HTTPStatus.NO_CONTENT, headers=_PREFLIGHT)
            await preflight(scope, receive, with_headers)
            return
        kept = [pair for pair in scope["headers"] if not _is_of_browsers(pair[0])]
        await self._app({**scope, "headers": kept}, receive, with_headers)

    def _allowed_origin(self, scope: Scope) -> str | None:
        if not self._allowed or scope["type"] != "http" or not scope["path"].startswith(_API):
            return None
        origin = headers_of(scope).get("origin")
        return origin if origin in self._allowed else None


def _is_of_browsers(name: bytes) -> bool:
    return name in _OF_BROWSERS or name.startswith(b"sec-fetch-")
