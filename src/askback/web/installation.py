"""What makes the page an app on a phone: the web app manifest and the service worker.

Both are relative to the host name that they are fetched from, so an installed app stays at its origin.
"""

from __future__ import annotations

import json
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response

from askback.web.page_context import ANSWER, READ, SUBMIT, Page, PageContext

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
    Page(path="/manifest.webmanifest", show=manifest, scopes=(READ, ANSWER, SUBMIT)),
    Page(path="/service-worker.js", show=service_worker, scopes=(READ, ANSWER)),
)
