"""The ASGI application: the routes, and the middleware that every request passes."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from askback.access.failed_sign_ins import FailedSignIns
from askback.access.grants import Lookup
from askback.access.tokens import TokenDirectory
from askback.core.access import AccessScope
from askback.http import openapi, problems
from askback.http.auth import Current, Gate, SignInPages, address_of, headers_of
from askback.http.bodies import BodyCap
from askback.http.context import Context, json_response
from askback.http.quotas import RateCap, RequestRate
from askback.http.routes import access, catalog, files, questions, runs, server
from askback.http.routing import route
from askback.http.sign_in import Codes, SignIn
from askback.telemetry.metrics import CONTENT_TYPE, Metrics
from askback.wire.server import Health, Readiness

SAFE_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
"""Headers of every response that does not set them itself."""
_ROUTERS = (
    runs.router,
    questions.router,
    files.router,
    runs.deliveries_router,
    catalog.skills_router,
    catalog.engines_router,
    server.router,
    access.sessions_router,
    access.push_router,
    access.router,
    server.audit_router,
)
_OPERATIONS = [operation for router in _ROUTERS for operation in router.operations]


@functools.cache
def openapi_document() -> Any:
    return msgspec.json.decode(msgspec.json.encode(openapi.document(_OPERATIONS)))


def api(context: Context, mounts: Mapping[str, ASGIApp] = {}) -> Starlette:
    """The routes, without authentication. `mounts` are applications for other protocols, by their paths."""

    async def openapi_json(request: Request) -> Response:
        return json_response(openapi_document())

    app = Starlette(
        routes=[
            *map(route, _OPERATIONS),
            Route("/v1/openapi.json", openapi_json),
            *(Route(path, mounted) for path, mounted in mounts.items()),
        ],
        exception_handlers=problems.HANDLERS,
    )
    app.router.redirect_slashes = False
    app.state.context = context
    return app


def application(
    site: ASGIApp,
    context: Context,
    *,
    pages: SignInPages,
    tokens: TokenDirectory,
    current: Current,
    failures: FailedSignIns,
    origins: Iterable[str] = (),
) -> ASGIApp:
    """The site behind the gate. The gate comes first, so the body of an unauthorized request is never read."""
    rate = RequestRate(context.quotas)
    entrance = SignIn(
        find=tokens,
        holder=tokens.admitted,
        sessions=context.sessions,
        invitations=context.invitations,
        addresses=context.addresses,
        pages=pages,
        codes=Codes(),
        audit=context.audit,
        rate=rate,
    )
    gate = Gate(
        RateCap(BodyCap(site, context.bodies), rate),
        find=tokens,
        find_session=context.sessions.find,
        links=context.links,
        current=current,
        addresses=context.addresses,
        entrance=entrance,
        failures=failures,
        pages=pages,
        record_use=context.token_uses.record,
    )
    return SafeHeaders(Origins(gate, frozenset(origins)))


class SafeHeaders:
    """Adds `SAFE_HEADERS` to every response, including refusals."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                added = [pair for pair in SAFE_HEADERS if pair[0] not in given]
                message["headers"] = [*message["headers"], *added]
            await send(message)

        await self._app(scope, receive, with_headers)


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
        is_api = scope["type"] == "http" and scope["path"].startswith(_API)
        origin = headers_of(scope).get("origin") if self._allowed and is_api else None
        if origin is None or origin not in self._allowed:
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
        kept = [
            (name, value)
            for name, value in scope["headers"]
            if name not in _OF_BROWSERS and not name.startswith(b"sec-fetch-")
        ]
        # Not a copy: the connection looks up in it whether the request has a token.
        scope["headers"] = kept
        await self._app(scope, receive, with_headers)


_SCHEME = "bearer "


def worker_application(
    *,
    health: Callable[[], Awaitable[Health]],
    readiness: Callable[[], Awaitable[Readiness]],
    metrics: Metrics,
    find: Lookup,
    failures: FailedSignIns,
) -> ASGIApp:
    """Metrics require a token with the scope `read`, as on a server. What is only in the store is left to the servers."""

    async def get_health(request: Request) -> Response:
        found = await health()
        return json_response(found, HTTPStatus.OK if found.status == "ok" else HTTPStatus.SERVICE_UNAVAILABLE)

    async def get_readiness(request: Request) -> Response:
        found = await readiness()
        return json_response(found, HTTPStatus.OK if found.ready else HTTPStatus.SERVICE_UNAVAILABLE)

    async def get_metrics(request: Request) -> Response:
        given = request.headers.get("authorization", "")
        grant = find(given[len(_SCHEME) :].strip()) if given.lower().startswith(_SCHEME) else None
        if grant is None:
            wait = failures.count(address_of(request.scope) or "", "token") if given else None
            if wait is not None:
                raise HTTPException(HTTPStatus.TOO_MANY_REQUESTS, "wait a while", {"Retry-After": str(wait)})
            challenge = {"WWW-Authenticate": "Bearer"}
            raise HTTPException(HTTPStatus.UNAUTHORIZED, "send a token: Authorization: Bearer …", challenge)
        if grant.labels or not grant.allows(AccessScope.READ):
            raise HTTPException(HTTPStatus.FORBIDDEN, "the token needs the scope 'read', without labels")
        return Response(metrics.text(), media_type=CONTENT_TYPE)

    routes = {"/healthz": get_health, "/readyz": get_readiness, "/metrics": get_metrics}
    app = Starlette(
        routes=[Route(path, endpoint, methods=["GET"]) for path, endpoint in routes.items()],
        exception_handlers=problems.HANDLERS,
    )
    return SafeHeaders(app)
