"""What a browser without a valid session sees: how to get in, and what follows the sign-in.

Each page is one file: nothing else can be fetched there.
"""

from __future__ import annotations

import base64
import hashlib
from http import HTTPStatus
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from askback.web.page_context import PageContext


def doorstep(context: PageContext, request: Request, status: HTTPStatus, target: str) -> Response:
    """The answer to a request for a page from somebody who is not known. `target` is where the sign-in leads."""
    wrong = _wrong(request)
    again = target if wrong == "used" else None if request.url.path == "/enter" else request.url.path
    values = {"again": again, "wrong": wrong, "target": target}
    response = _page(context, request, "sign_in.html", "form-action 'self'", **values)
    response.status_code = status
    response.headers["WWW-Authenticate"] = "Bearer"
    # With the usual policy a browser would not say which page the form is from.
    response.headers["Referrer-Policy"] = "same-origin"
    return response


def onward(context: PageContext, request: Request, origin: str, code: str) -> Response:
    """Leads on to the page at another name, if the browser can reach it; else asks whether to stay at this one."""
    script = _source(context, "redirect.js")
    policy = f"script-src 'sha256-{_digest(script)}'; connect-src {origin}"
    return _page(context, request, "redirect.html", policy, origin=origin, code=code, script=Markup(script))


def almost(context: PageContext, request: Request, address: str) -> Response:
    """Leads on to the same address; nobody is signed in yet."""
    return _page(
        context, request, "signed_in.html", "form-action 'none'", heading="frame.sign_in.almost", target=address
    )


def entered(context: PageContext, request: Request, target: str) -> Response:
    """Leads on to the page."""
    return _page(
        context, request, "signed_in.html", "form-action 'none'", heading="frame.sign_in.signed_in", target=target
    )


def _wrong(request: Request) -> str | None:
    """What was shown and is not valid."""
    if request.url.path != "/enter":
        return None
    if request.method == "POST" or "token" in request.query_params:
        return "wrong"
    return "used" if request.query_params.keys() & {"code", "step"} else None


def _page(context: PageContext, request: Request, template: str, policy: str, **values: Any) -> Response:
    style = _source(context, "sign_in.css")
    rest = "base-uri 'none'; frame-ancestors 'none'"
    policy = f"default-src 'none'; style-src 'sha256-{_digest(style)}'; {policy}; {rest}"
    texts = context.translations_for(request)
    text = context.templates.get_template(template).render(
        t=texts, language=texts.language, style=Markup(style), **values
    )
    return Response(text, HTTPStatus.OK, {"Content-Security-Policy": policy}, "text/html; charset=utf-8")


def _source(context: PageContext, name: str) -> str:
    source, _, _ = context.templates.loader.get_source(context.templates, name)  # type: ignore[union-attr]
    return source


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
