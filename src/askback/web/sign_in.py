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
from starlette.types import Scope

from askback.web.page_context import PageContext
from askback.web.translations import NAMES

_OWN_FORM, _NO_FORM = "form-action 'self'", "form-action 'none'"
_WITH_ORIGIN = "same-origin"
"""With the default policy the browser would not send the origin of the form."""


class SignInPages:
    def __init__(self, context: PageContext) -> None:
        self._context = context

    def sign_in_form(self, scope: Scope, status: HTTPStatus, target: str) -> Response:
        """`target` is the page to open after the sign-in."""
        response = self._page(scope, "sign_in.html", _OWN_FORM, wrong=_wrong(Request(scope)), target=target)
        response.status_code = status
        response.headers["WWW-Authenticate"] = "Bearer"
        response.headers["Referrer-Policy"] = _WITH_ORIGIN
        return response

    def invalid_link_page(self, scope: Scope, status: HTTPStatus) -> Response:
        """Does not say why the link is invalid: that would reveal whether its run exists."""
        response = self._invalid(scope, status, "answer.invalid")
        response.headers["WWW-Authenticate"] = "Bearer"
        return response

    def invitation_page(self, scope: Scope, *, name: str, text: str) -> Response:
        return self._one_button(scope, "invited", name, {"invitation": text})

    def confirmation_page(self, scope: Scope, *, name: str, token: str) -> Response:
        return self._one_button(scope, "frame.confirm", name, {"token": token})

    def invalid_invitation_page(self, scope: Scope, status: HTTPStatus) -> Response:
        return self._invalid(scope, status, "invited.invalid")

    def to_page_host(self, scope: Scope, *, origin: str, code: str) -> Response:
        script = self._source("redirect.js")
        policy = f"script-src 'sha256-{_digest(script)}'; connect-src {origin}"
        return self._page(scope, "redirect.html", policy, origin=origin, code=code, script=Markup(script))

    def to_same_site(self, scope: Scope, address: str) -> Response:
        return self._page(scope, "signed_in.html", _NO_FORM, heading="frame.sign_in.almost", target=address)

    def signed_in(self, scope: Scope, target: str) -> Response:
        return self._page(scope, "signed_in.html", _NO_FORM, heading="frame.sign_in.signed_in", target=target)

    def _one_button(self, scope: Scope, what: str, name: str, sent: Mapping[str, str]) -> Response:
        """A page that signs `name` in with one press. `what` names its texts, and `sent` is what the form sends."""
        response = self._page(scope, "one_button.html", _OWN_FORM, what=what, name=name, sent=sent)
        response.headers["Referrer-Policy"] = _WITH_ORIGIN
        return response

    def _invalid(self, scope: Scope, status: HTTPStatus, what: str) -> Response:
        script = self._source("language.js")
        policy = f"script-src 'sha256-{_digest(script)}'; {_NO_FORM}"
        response = self._page(scope, "invalid_link.html", policy, what=what, script=Markup(script), languages=NAMES)
        response.status_code = status
        return response

    def _page(self, scope: Scope, template: str, policy: str, **values: Any) -> Response:
        style = self._source("sign_in.css")
        rest = "base-uri 'none'; frame-ancestors 'none'"
        policy = f"default-src 'none'; style-src 'sha256-{_digest(style)}'; {policy}; {rest}"
        texts = self._context.translations_for(Request(scope))
        text = self._context.templates.get_template(template).render(
            t=texts, language=texts.language, style=Markup(style), **values
        )
        return Response(text, HTTPStatus.OK, {"Content-Security-Policy": policy}, "text/html; charset=utf-8")

    def _source(self, name: str) -> str:
        templates = self._context.templates
        source, _, _ = templates.loader.get_source(templates, name)  # type: ignore[union-attr]
        return source


def _wrong(request: Request) -> str | None:
    """Which credential was invalid: a `wrong` token, or a `used` code."""
    if request.url.path != "/enter":
        return None
    if request.method == "POST" or "token" in request.query_params:
        return "wrong"
    return "used" if request.query_params.keys() & {"code", "step"} else None


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
