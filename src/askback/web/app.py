"""The site: the table of all pages, static files, and what makes the page an app on a phone. Every other request goes to the API."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import re
from http import HTTPStatus
from pathlib import Path, PurePath
from urllib.parse import quote, unquote

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route, compile_path
from starlette.types import ASGIApp, Receive, Scope, Send

from askback.core.access import AccessScope
from askback.core.errors import AskbackError
from askback.http.problems import retry_after, status_of
from askback.runs.links import ANSWERS
from askback.web import dashboard, engines, files, new_run, pages, skills
from askback.web.page_context import ANSWER, READ, SUBMIT, Page, PageContext
from askback.web.sign_in import SignInPages

log = logging.getLogger(__name__)

_TARGET = re.compile(r"/(?:[A-Za-z0-9._~-][A-Za-z0-9._~%/-]*)?(?:\?[A-Za-z0-9._~%&=+:,/-]*)?")
"""A path on this site: it starts with exactly one slash, and nothing that a browser treats as one."""
_MAX_TARGET = 500
_API = ("/v1", "/healthz", "/readyz", "/metrics")


class Pages(SignInPages):
    def wants_page(self, scope: Scope) -> bool:
        """Whether the request is a browser's request for a page."""
        accepted = dict(scope["headers"]).get(b"accept", b"")
        looking = scope["method"] in ("GET", "HEAD") or scope["path"] == "/enter"
        # The API redirects a browser with an answer link to its page.
        has_pages = not _is_api(scope["path"]) or scope["path"].startswith(ANSWERS)
        return looking and b"text/html" in accepted and has_pages

    def sign_in_page(self, scope: Scope, status: HTTPStatus) -> Response:
        asked = f"{quote(scope['path'])}?{scope.get('query_string', b'').decode('latin-1')}".removesuffix("?")
        return self.sign_in_form(scope, status, scope.get("sign_in_target") or self.target(asked))

    def target(self, text: str) -> str:
        is_ours = len(text) <= _MAX_TARGET and _TARGET.fullmatch(text) is not None
        path = unquote(text.partition("?")[0])
        return text if is_ours and any(each.match(path) for each in _PATHS) else "/"

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
    files = {path.name: path.read_bytes() for path in _FOLDER.iterdir() if path.suffix in _TYPES}
    tags = {name: f'"{hashlib.sha256(content).hexdigest()[:20]}"' for name, content in files.items()}

    async def show(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in files:
            return Response(status_code=HTTPStatus.NOT_FOUND)
        headers = {"ETag": tags[name], "Cache-Control": "private, no-cache"}
        if request.headers.get("if-none-match") == tags[name]:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        return Response(files[name], HTTPStatus.OK, headers, _TYPES[PurePath(name).suffix])

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
    Page(path="/sessions", show=pages.sessions, scopes=(READ, ANSWER, SUBMIT)),
    Page(path="/people", show=pages.people, scopes=(AccessScope.ADMIN,)),
    Page(path="/audit", show=pages.audit, scopes=(AccessScope.ADMIN,), whole_server=True),
    Page(path="/manifest.webmanifest", show=manifest, scopes=(READ, ANSWER, SUBMIT)),
    Page(path="/service-worker.js", show=service_worker, scopes=(READ, ANSWER)),
    Page(path=pages.PATH, show=pages.answer, by_link=True),
)
"""Every page of the site."""
_PATHS = tuple(compile_path(page.path)[0] for page in PAGES if not page.by_link)
