"""What a worker serves: its health, whether it is ready, and its metrics. It has no API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from askback.access.failed_sign_ins import FailedSignIns
from askback.access.grants import Lookup
from askback.core.access import AccessScope
from askback.http import problems
from askback.http.app import SafeHeaders
from askback.http.auth import address_of
from askback.http.context import json_response
from askback.telemetry.metrics import CONTENT_TYPE, Metrics
from askback.wire.server import Health, Readiness

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
        _check_token(request, find, failures)
        return Response(metrics.text(), media_type=CONTENT_TYPE)

    routes = {"/healthz": get_health, "/readyz": get_readiness, "/metrics": get_metrics}
    app = Starlette(
        routes=[Route(path, endpoint, methods=["GET"]) for path, endpoint in routes.items()],
        exception_handlers=problems.HANDLERS,
    )
    return SafeHeaders(app)


def _check_token(request: Request, find: Lookup, failures: FailedSignIns) -> None:
    given = request.headers.get("authorization", "")
    grant = find(given[len(_SCHEME) :].strip()) if given.lower().startswith(_SCHEME) else None
    if grant is None:
        wait = failures.count(address_of(request.scope) or "", "token") if given else None
        if wait is not None:
            raise HTTPException(HTTPStatus.TOO_MANY_REQUESTS, "wait a while", {"Retry-After": str(wait)})
        raise HTTPException(
            HTTPStatus.UNAUTHORIZED, "send a token: Authorization: Bearer …", {"WWW-Authenticate": "Bearer"}
        )
    if grant.labels or not grant.allows(AccessScope.READ):
        raise HTTPException(HTTPStatus.FORBIDDEN, "the token needs the scope 'read', without labels")
