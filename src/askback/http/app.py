"""The ASGI application: the routes, and the middleware that every request passes."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from askback.access.failed_sign_ins import FailedSignIns
from askback.access.grants import TokenDirectory
from askback.http import openapi, problems
from askback.http.auth import Current, Gate, SignInPages
from askback.http.bodies import BodyCap
from askback.http.context import Context, json_response
from askback.http.origins import Origins
from askback.http.quotas import RateCap, RequestRate
from askback.http.routes import audit as audit_routes
from askback.http.routes import catalog, files, questions, runs, statistics
from askback.http.routes import push as push_routes
from askback.http.routes import sessions as session_routes
from askback.http.routes import tokens as token_routes
from askback.http.routing import route
from askback.http.sign_in import Codes, SignIn

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
    catalog.server_router,
    statistics.router,
    session_routes.router,
    push_routes.router,
    token_routes.router,
    audit_routes.router,
)
_OPERATIONS = [operation for router in _ROUTERS for operation in router.operations]


@functools.cache
def openapi_document() -> Any:
    return msgspec.json.decode(msgspec.json.encode(openapi.document(_OPERATIONS)))


def api(context: Context, faces: Mapping[str, ASGIApp] = {}) -> Starlette:
    """The routes, without authentication. `faces` are applications for other protocols, by their paths."""

    async def openapi_json(request: Request) -> Response:
        return json_response(openapi_document())

    app = Starlette(
        routes=[
            *map(route, _OPERATIONS),
            Route("/v1/openapi.json", openapi_json),
            *(Route(path, face) for path, face in faces.items()),
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
        note_use=context.token_uses.note,
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
