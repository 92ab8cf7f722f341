"""The ASGI application: the routes, and around them the layers that every request passes."""

from __future__ import annotations

import functools
from typing import Protocol

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from askback.http import catalog, files, openapi, problems, questions, runs, session_routes
from askback.http.auth import Doorstep, Gate, MainToken
from askback.http.bodies import BodyCap
from askback.http.context import Context
from askback.http.failed_sign_ins import FailedSignIns
from askback.http.quotas import RequestRate
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
"""What every answer has, unless it says otherwise itself."""


def routes(context: Context | None = None) -> FastAPI:
    """The routes alone; without a context they can only be described."""
    app = FastAPI(
        docs_url=None,
        redoc_url=None,
        openapi_url="/v1/openapi.json",
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.context = context
    problems.install(app)
    for router in (
        runs.router,
        questions.router,
        files.router,
        runs.deliveries_router,
        catalog.router,
        session_routes.router,
    ):
        app.include_router(router)
    app.openapi = functools.cache(lambda: openapi.document(app))  # type: ignore[method-assign]
    return app


class Pages(Doorstep, Protocol):
    """The page for people, which stands beside the API."""

    def around(self, api: ASGIApp) -> ASGIApp:
        """The pages, with the API for everything that is none of them."""
        ...


def application(context: Context, pages: Pages, *, tokens: MainToken, failures: FailedSignIns) -> ASGIApp:
    """The routes behind the gate. The gate is outermost: nothing is read of a stranger's body."""
    site = pages.around(routes(context))
    capped = RequestRate(BodyCap(site, context.bodies), context.quotas)
    entrance = SignIn(
        find=tokens,
        holder=tokens.holder,
        sessions=context.sessions,
        addresses=context.addresses,
        doorstep=pages,
        codes=Codes(),
    )
    gate = Gate(
        capped,
        find=tokens,
        find_session=context.sessions.find,
        links=context.links,
        addresses=context.addresses,
        entrance=entrance,
        failures=failures,
        doorstep=pages,
    )
    return SafeHeaders(gate)


class SafeHeaders:
    """Headers that every answer has, also a refusal."""

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
