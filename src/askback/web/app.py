"""The site: the table of all pages, static files, and what makes the page an app on a phone. Every other request goes to the API."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote, unquote

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route, compile_path
from starlette.types import ASGIApp, Receive, Scope, Send

from askback.access.sessions import DEVICE, Lifetime
from askback.core.access import AccessScope
from askback.core.errors import AskbackError
from askback.http.problems import retry_after, status_of
from askback.runs.links import ANSWERS
from askback.runs.service import Service
from askback.store.base import Store
from askback.web import dashboard, engines, files, new_run, pages, people, sign_in, skills, translations
from askback.web.page_context import ANSWER, READ, SUBMIT, Page, PageContext, environment
from askback.wire.server import Health, Worker

log = logging.getLogger(__name__)

_TARGET = re.compile(r"/(?:[A-Za-z0-9._~-][A-Za-z0-9._~%/-]*)?(?:\?[A-Za-z0-9._~%&=+:,/-]*)?")
"""A path on this site: it starts with exactly one slash, and nothing that a browser treats as one."""
_MAX_TARGET = 500
_API = ("/v1", "/healthz", "/readyz", "/metrics")


class Pages:
    def __init__(
        self,
        service: Service,
        clock: Callable[[], datetime],
        health: Callable[[], Awaitable[Health]],
        entries: Store,
        *,
        workers: Callable[[], Awaitable[Sequence[Worker]]] | None = None,
        device: Lifetime = DEVICE,
    ) -> None:
        self._context = PageContext(
            service=service,
            clock=clock,
            health=health,
            workers=workers,
            audit=entries,
            languages=translations.load(),
            templates=environment(),
            device=device,
        )

    def wants_page(self, scope: Scope) -> bool:
        """Whether the request is a browser's request for a page."""
        accepted = dict(scope["headers"]).get(b"accept", b"")
        looking = scope["method"] in ("GET", "HEAD") or scope["path"] == "/enter"
        # The API redirects a browser with an answer link to its page.
        has_pages = not _is_api(scope["path"]) or scope["path"].startswith(ANSWERS)
        return looking and b"text/html" in accepted and has_pages

    def sign_in_page(self, scope: Scope, status: HTTPStatus) -> Response:
        asked = f"{quote(scope['path'])}?{scope.get('query_string', b'').decode('latin-1')}".removesuffix("?")
        target = scope.get("sign_in_target") or self.target(asked)
        return sign_in.sign_in_page(self._context, Request(scope), status, target)

    def invalid_link_page(self, scope: Scope, status: HTTPStatus) -> Response:
        return sign_in.invalid_link_page(self._context, Request(scope), status)

    def invitation_page(self, scope: Scope, *, name: str, text: str) -> Response:
        return sign_in.invitation_page(self._context, Request(scope), name, text)

    def confirmation_page(self, scope: Scope, *, name: str, token: str) -> Response:
        return sign_in.confirmation_page(self._context, Request(scope), name, token)

    def invalid_invitation_page(self, scope: Scope, status: HTTPStatus) -> Response:
        return sign_in.invalid_invitation_page(self._context, Request(scope), status)

    def to_page_host(self, scope: Scope, *, origin: str, code: str) -> Response:
        return sign_in.to_page_host(self._context, Request(scope), origin, code)

    def to_same_site(self, scope: Scope, address: str) -> Response:
        return sign_in.to_same_site(self._context, Request(scope), address)

    def target(self, text: str) -> str:
        is_ours = len(text) <= _MAX_TARGET and _TARGET.fullmatch(text) is not None
        path = unquote(text.partition("?")[0])
        return text if is_ours and any(each.match(path) for each in _PATHS) else "/"

    def signed_in(self, scope: Scope, target: str) -> Response:
        return sign_in.signed_in(self._context, Request(scope), target)

    def around(self, api: ASGIApp) -> ASGIApp:
        """An application with the pages, and with the API for everything else."""
        routes = [*_static_routes(), *(_route(self._context, page) for page in PAGES)]
        on_error = functools.partial(_error_page, self._context)
        site = Starlette(routes=routes, exception_handlers={AskbackError: on_error, Exception: on_error})

        async def either(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD") or _is_api(scope["path"]):
                await api(scope, receive, send)
            elif any(route.matches(scope)[0] is Match.FULL for route in routes):
                await site(scope, receive, send)
            elif self.wants_page(scope):
                request = Request(scope, receive)
                await _problem(self._context, request, HTTPStatus.NOT_FOUND, None)(scope, receive, send)
            else:
                await api(scope, receive, send)

        return either


def _is_api(path: str) -> bool:
    return any(path == each or path.startswith(f"{each}/") for each in _API)


def _route(context: PageContext, page: Page) -> Route:
    async def show(request: Request) -> Response:
        if not page.is_for(request.scope["grant"]):
            return _problem(context, request, HTTPStatus.FORBIDDEN, None)
        return await page.show(context.seen_by(request.scope["grant"]), request)

    return Route(page.path, show)


def _static_routes() -> tuple[Route, ...]:
    """Static files, for a signed-in browser and below an answer link."""
    files = {path.name: _read(path) for path in sorted(_FOLDER.iterdir()) if path.suffix in _TYPES}

    async def show(request: Request) -> Response:
        file = files.get(request.path_params["name"])
        return file.response(request) if file is not None else Response(status_code=HTTPStatus.NOT_FOUND)

    return Route("/static/{name}", show), Route(f"{pages.PATH}/static/{{name}}", show)


_PROBLEMS = {
    HTTPStatus.NOT_FOUND: "missing",
    HTTPStatus.FORBIDDEN: "forbidden",
    HTTPStatus.SERVICE_UNAVAILABLE: "unavailable",
}


async def _error_page(context: PageContext, request: Request, error: Exception) -> Response:
    if isinstance(error, AskbackError):
        response = _problem(context, request, status_of(error.code), error.message, error.code)
        response.headers.update(retry_after(error) or {})
        return response
    log.error("a page failed with an unexpected error", extra={"path": request.url.path})
    return _problem(context, request, HTTPStatus.INTERNAL_SERVER_ERROR, None)


def _problem(
    context: PageContext, request: Request, status: HTTPStatus, message: str | None, code: str | None = None
) -> Response:
    kind = _PROBLEMS.get(status, "broken")
    return context.show(request, "problem.html", status, kind=kind, message=message, code=code)


_FOLDER = Path(__file__).parent / "static"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticFile:
    content: bytes
    media_type: str
    etag: str

    def response(self, request: Request) -> Response:
        headers = {"ETag": self.etag, "Cache-Control": "private, no-cache"}
        if request.headers.get("if-none-match") == self.etag:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        return Response(self.content, HTTPStatus.OK, headers, self.media_type)


def _read(path: Path) -> StaticFile:
    content = path.read_bytes()
    etag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
    return StaticFile(content=content, media_type=_TYPES[path.suffix], etag=etag)


_COLOUR, _BACKGROUND = "#5b57d9", "#f7f7f5"
_ICONS = (
    ("icon-192.png", "192x192", "any"),
    ("icon-512.png", "512x512", "any"),
    ("icon-maskable.png", "512x512", "maskable"),
)
_WORKER_TEXTS = ("asked", "reminder", "expiring", "test", "test.text", "offline", "offline.text", "again")
_WORKER_CSP = "default-src 'none'; connect-src 'self'"


async def manifest(context: PageContext, request: Request) -> Response:
    texts = context.translations_for(request)
    document = {
        "id": "/",
        "name": texts("frame.product"),
        "short_name": texts("frame.product"),
        "description": texts("push.app"),
        "lang": texts.language,
        "start_url": "/",
        "scope": "/",
        "display": "standalone",
        "theme_color": _COLOUR,
        "background_color": _BACKGROUND,
        "icons": [
            {"src": f"/static/{name}", "sizes": sizes, "type": "image/png", "purpose": purpose}
            for name, sizes, purpose in _ICONS
        ],
    }
    return Response(json.dumps(document, ensure_ascii=False), HTTPStatus.OK, _HEADERS, "application/manifest+json")


async def service_worker(context: PageContext, request: Request) -> Response:
    texts = context.translations_for(request)
    used = {key: texts(f"push.worker.{key}") for key in _WORKER_TEXTS}
    source = context.templates.get_template("service_worker.js").render(texts=used | {"lang": texts.language})
    headers = _HEADERS | {"Content-Security-Policy": _WORKER_CSP}
    return Response(source, HTTPStatus.OK, headers, "text/javascript; charset=utf-8")


_HEADERS = {"Cache-Control": "private, no-cache"}


PAGES = (
    Page(path="/", show=pages.inbox, scopes=(READ, ANSWER)),
    Page(path="/answered", show=pages.answered),
    Page(path="/runs", show=pages.runs),
    Page(path="/runs/{run_id}", show=pages.run),
    Page(path="/runs/{run_id}/actions", show=new_run.actions),
    Page(path="/runs/{run_id}/files", show=files.files),
    Page(path="/runs/{run_id}/preview", show=files.preview),
    Page(path="/runs/{run_id}/picture", show=files.picture),
    Page(path="/runs/{run_id}/changes", show=files.changes),
    Page(path="/new", show=new_run.new_run, scopes=(SUBMIT,)),
    Page(path="/skills", show=skills.skills, scopes=(READ, SUBMIT)),
    Page(path="/skills/{skill_id}", show=skills.skill),
    Page(path="/demo-skill.zip", show=skills.demo_skill),
    Page(path="/engines", show=engines.engines),
    Page(path="/dashboard", show=dashboard.dashboard),
    Page(path="/sessions", show=people.sessions, scopes=(READ, ANSWER, SUBMIT)),
    Page(path="/people", show=people.people, scopes=(AccessScope.ADMIN,)),
    Page(path="/audit", show=people.audit, scopes=(AccessScope.ADMIN,), whole_server=True),
    Page(path="/manifest.webmanifest", show=manifest, scopes=(READ, ANSWER, SUBMIT)),
    Page(path="/service-worker.js", show=service_worker, scopes=(READ, ANSWER)),
    Page(path=pages.PATH, show=pages.answer, by_link=True),
)
"""Every page of the site."""
_PATHS = tuple(compile_path(page.path)[0] for page in PAGES if not page.by_link)
