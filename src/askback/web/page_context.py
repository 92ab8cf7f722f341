"""What every page uses: the service, the translations and the templates. Knows no page and no authentication."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from askback.http.auth import AccessScope, Grant
from askback.service import Service
from askback.text.timestamps import rfc3339
from askback.web import translations
from askback.web.translations import Translations
from askback.wire.server import Health

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
ANSWER, READ, SUBMIT = AccessScope.ANSWER, AccessScope.READ, AccessScope.SUBMIT
_FOLDER = Path(__file__).parent / "templates"
_FRAME = ("frame", "state")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PageContext:
    service: Service
    clock: Callable[[], datetime]
    health: Callable[[], Awaitable[Health]]
    """The response of `/healthz`."""
    languages: Mapping[str, Translations]
    templates: Environment

    def translations_for(self, request: Request) -> Translations:
        chosen = translations.choose(
            request.cookies.get(translations.COOKIE), request.headers.get("accept-language", "")
        )
        return self.languages[chosen]

    def show(self, request: Request, template: str, status: HTTPStatus = HTTPStatus.OK, **values: Any) -> Response:
        texts, grant = self.translations_for(request), request.scope.get("grant")
        text = self.templates.get_template(template).render(
            t=texts,
            language=texts.language,
            languages=translations.NAMES,
            may=lambda *scopes: grant is not None and grant.allows(*scopes),
            script_texts=lambda *prefixes: as_script(texts.by_prefix(*_FRAME, *prefixes)),
            **values,
        )
        headers = {"Content-Security-Policy": CSP, "Content-Language": texts.language}
        return Response(text.encode(errors="replace"), status, headers, "text/html; charset=utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One route. It requires one of the scopes or, with `by_link`, an answer link."""

    path: str
    show: Callable[[PageContext, Request], Awaitable[Response]]
    scopes: tuple[AccessScope, ...] = (READ,)
    by_link: bool = False

    def is_for(self, grant: Grant) -> bool:
        return grant.link is not None if self.by_link else grant.allows(*self.scopes)


def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(as_script=as_script, moment=moment)
    return made


def as_script(document: Any) -> Markup:
    """JSON for a `<script>` block, escaped so that it cannot end the block."""
    text = json.dumps(document, ensure_ascii=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def moment(when: datetime) -> Markup:
    """A time, which the page's script formats."""
    return Markup('<time datetime="{0}" data-relative>{0}</time>').format(rfc3339(when))
