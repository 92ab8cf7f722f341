"""The pages of the sign-in, for browsers without a valid session or answer link.

Each page is a single file, because nothing else can be fetched without a session.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from askback.web.page_context import PageContext
from askback.web.translations import NAMES

_OWN_FORM = "form-action 'self'"
_WITH_ORIGIN = "same-origin"
"""With the default policy the browser would not send the origin of the form."""


def sign_in_page(context: PageContext, request: Request, status: HTTPStatus, target: str) -> Response:
    """The sign-in form. `target` is the page to open after the sign-in."""
    wrong = _wrong(request)
    values = {"wrong": wrong, "target": target}
    response = _page(context, request, "sign_in.html", _OWN_FORM, **values)
    response.status_code = status
    response.headers["WWW-Authenticate"] = "Bearer"
    response.headers["Referrer-Policy"] = _WITH_ORIGIN
    return response


def invalid_link_page(context: PageContext, request: Request, status: HTTPStatus) -> Response:
    """Does not say why the link is invalid: that would reveal whether its run exists."""
    response = _invalid(context, request, status, "answer.invalid")
    response.headers["WWW-Authenticate"] = "Bearer"
    return response


def invitation_page(context: PageContext, request: Request, name: str, text: str) -> Response:
    """One button, which signs this device in. Showing the page changes nothing: messengers open links for a preview."""
    return _one_button(context, request, "invited", name, {"invitation": text})


def confirmation_page(context: PageContext, request: Request, name: str, token: str) -> Response:
    """One button, which signs in with the token. Showing the page changes nothing: another site may have opened it."""
    return _one_button(context, request, "frame.confirm", name, {"token": token})


def invalid_invitation_page(context: PageContext, request: Request, status: HTTPStatus) -> Response:
    """Does not say why the invitation is invalid."""
    return _invalid(context, request, status, "invited.invalid")


def to_page_host(context: PageContext, request: Request, origin: str, code: str) -> Response:
    """Redirects to the page's own host name, if the browser can reach it; otherwise offers to stay at this address."""
    script = _source(context, "redirect.js")
    policy = f"script-src 'sha256-{_digest(script)}'; connect-src {origin}"
    return _page(context, request, "redirect.html", policy, origin=origin, code=code, script=Markup(script))


def to_same_site(context: PageContext, request: Request, address: str) -> Response:
    """Redirects to the same address, before the sign-in."""
    return _page(
        context, request, "signed_in.html", "form-action 'none'", heading="frame.sign_in.almost", target=address
    )


def signed_in(context: PageContext, request: Request, target: str) -> Response:
    """Redirects to the page, after the sign-in."""
    return _page(
        context, request, "signed_in.html", "form-action 'none'", heading="frame.sign_in.signed_in", target=target
    )


def _one_button(context: PageContext, request: Request, what: str, name: str, sent: Mapping[str, str]) -> Response:
    """A page that signs `name` in with one press. `what` names its texts, and `sent` is what the form sends."""
    response = _page(context, request, "one_button.html", _OWN_FORM, what=what, name=name, sent=sent)
    response.headers["Referrer-Policy"] = _WITH_ORIGIN
    return response


def _invalid(context: PageContext, request: Request, status: HTTPStatus, what: str) -> Response:
    script = _source(context, "language.js")
    policy = f"script-src 'sha256-{_digest(script)}'; form-action 'none'"
    response = _page(context, request, "invalid_link.html", policy, what=what, script=Markup(script), languages=NAMES)
    response.status_code = status
    return response


def _wrong(request: Request) -> str | None:
    """Which credential was invalid: a `wrong` token, or a `used` code."""
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
