"""What a browser without a valid token sees: how to get in. One file without scripts; nothing else can be fetched there."""

from __future__ import annotations

import base64
import hashlib
from http import HTTPStatus

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from askback.web.desk import Desk


def doorstep(desk: Desk, request: Request) -> Response:
    """The answer to a request for a page from somebody who is not known."""
    style, _, _ = desk.templates.loader.get_source(desk.templates, "doorstep.css")  # type: ignore[union-attr]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    speech = desk.speech(request)
    text = desk.templates.get_template("doorstep.html").render(
        t=speech,
        language=speech.language,
        style=Markup(style),
        again=request.url.path if request.url.path != "/enter" else None,
    )
    headers = {"Content-Security-Policy": policy, "WWW-Authenticate": "Bearer"}
    return Response(text, HTTPStatus.UNAUTHORIZED, headers, "text/html; charset=utf-8")
