"""What every page needs: the template environment, formats, the language, and permissions."""

from __future__ import annotations

import functools
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import nh3
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from askback.access.grants import Grant
from askback.access.sessions import DEVICE, Lifetime
from askback.background.pools import Pool
from askback.core.access import AccessScope
from askback.core.labels import INTERNAL, for_people
from askback.http.addresses import cookie
from askback.runs.service import Service
from askback.store.base import Store
from askback.text.formatting import rfc3339, units_of
from askback.web import translations
from askback.web.translations import Translations
from askback.wire.server import Health, Worker

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "manifest-src 'self'; worker-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
ANSWER, READ, SUBMIT = AccessScope.ANSWER, AccessScope.READ, AccessScope.SUBMIT
_FOLDER = Path(__file__).parent / "templates"
_FRAME = ("frame", "state", "refusal")
_HTML = "text/html; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PageContext:
    service: Service
    clock: Callable[[], datetime]
    health: Callable[[], Awaitable[Health]]
    """The response of `/healthz`."""
    workers: Callable[[], Awaitable[Sequence[Worker]]] | None = None
    """The response of `GET /v1/workers`, if there can be other programs than this server."""
    audit: Store
    languages: Mapping[str, Translations] = field(default_factory=translations.load)
    templates: Environment = field(default_factory=lambda: environment())
    device: Lifetime = DEVICE
    """How long an invited device stays signed in."""

    def seen_by(self, grant: Grant) -> PageContext:
        """What the caller may see. If its token is restricted to labels, other runs do not exist for any page."""
        return replace(self, service=self.service.restricted_to(grant.labels)) if grant.labels else self

    def translations_for(self, request: Request) -> Translations:
        given = request.headers
        language = cookie(given.get("cookie", ""), translations.COOKIE)
        chosen = translations.choose(language, given.get("accept-language", ""))
        return self.languages[chosen]

    def show(self, request: Request, template: str, status: HTTPStatus = HTTPStatus.OK, **values: Any) -> Response:
        texts, grant = self.translations_for(request), request.scope.get("grant")
        render = functools.partial(
            self.templates.get_template(template).render,
            t=texts,
            language=texts.language,
            languages=translations.NAMES,
            duration=lambda seconds: duration_text(seconds, texts),
            count=lambda number: count_text(number, texts),
            day=lambda when: day_text(when, texts),
            may=lambda *scopes: grant is not None and grant.allows(*scopes),
            script_texts=lambda *prefixes: as_script(texts.by_prefix(*_FRAME, *prefixes)),
            **values,
        )
        headers = {"Content-Security-Policy": CSP, "Content-Language": texts.language}
        if grant is None or status is not HTTPStatus.OK:
            # Always short, and no reason to refuse a stranger because others have long pages.
            return Response(_encoded(render), status, headers, _HTML)
        return _Rendered(render, self.service.pools.pages, headers)


class _Rendered(Response):
    """A page that is rendered when it is sent, in a thread: what it shows may be long."""

    def __init__(self, render: Callable[[], str], pool: Pool, headers: Mapping[str, str]) -> None:
        super().__init__(headers=headers, media_type=_HTML)
        self._render = render
        self._pool = pool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.body = await self._pool.run(_encoded, self._render)
        self.headers["Content-Length"] = str(len(self.body))
        await super().__call__(scope, receive, send)


def _encoded(render: Callable[[], str]) -> bytes:
    return render().encode(errors="replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One route. It requires one of the scopes or, with `by_link`, an answer link."""

    path: str
    show: Callable[[PageContext, Request], Awaitable[Response]]
    scopes: tuple[AccessScope, ...] = (READ,)
    by_link: bool = False
    whole_server: bool = False
    """Whether it shows something of all runs together, which is not for tokens that are restricted to labels."""

    def is_for(self, grant: Grant) -> bool:
        if self.whole_server and grant.labels:
            return False
        return grant.link is not None if self.by_link else grant.allows(*self.scopes)


def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(as_script=as_script, moment=moment, for_people=for_people, internal_labels=sorted(INTERNAL))
    return made


def address(path: str, given: Mapping[str, str | Sequence[str] | None]) -> str:
    """The path with a query of the values that are not empty."""
    query = urlencode({name: value for name, value in given.items() if value}, doseq=True)
    return f"{path}?{query}" if query else path


def as_script(document: Any) -> Markup:
    """JSON for a `<script>` block, escaped so that it cannot end the block."""
    text = json.dumps(document, ensure_ascii=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def moment(when: datetime) -> Markup:
    """A time, which the page's script formats."""
    return Markup('<time datetime="{0}" data-relative>{0}</time>').format(rfc3339(when))


def duration_text(seconds: float, t: Translations) -> str:
    """`850 ms`, `12 s`, `4 min 7 s`, `2 h 5 min`, `3 d 4 h`, with no line break within."""
    if seconds < 1:
        return _unbroken(t("frame.duration.ms", n=round(max(seconds, 0) * 1000)))
    largest = units_of(round(seconds))[:2]
    return _unbroken(" ".join(t(f"frame.duration.{unit}", n=count) for count, unit in largest if count))


def _unbroken(text: str) -> str:
    return text.replace(" ", "\u00a0")


def count_text(count: int, t: Translations) -> str:
    """`950`, `12.3k`, `1.2M`; in Chinese `1.2万`."""
    units = [pair.split(":") for pair in t("frame.units").split(",")]
    for size, unit in reversed([(int(size), unit) for size, unit in units]):
        if count >= size:
            amount = count / size
            return f"{amount:.0f}{unit}" if amount >= 100 else f"{amount:.1f}{unit}".replace(".0" + unit, unit)
    return str(count)


def day_text(day: date, t: Translations) -> str:
    """`1 Mar`."""
    return t("frame.date", day=day.day, month=t("frame.months").split(",")[day.month - 1])


MAX_CHARACTERS = 500_000
"""The rest is cut off, because a browser has to lay out everything."""
MAX_MARKDOWN = 200_000
"""A longer text is not rendered, because the parser needs a kilobyte for each character. It is shown as it is."""
MAX_RENDERED = 2_000_000
"""About how long the HTML may be: references can repeat a long address. A text with more is shown as it is."""
MAX_STEPS = 100_000
"""How many places of a text the parser may look at, some more than once: ordinary text has one for six characters.
Beyond this, the text is shown as it is. Brackets without end would take ten seconds."""

_TAGS = {
    *("p", "br", "hr", "blockquote", "pre", "code", "em", "strong", "s", "a", "ul", "ol", "li"),
    *("h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"),
}
_ATTRIBUTES: dict[str, set[str]] = {"*": set(), "a": {"href"}, "ol": {"start"}}
_SCHEMES = {"http", "https", "mailto"}


def rendered(text: str) -> Markup:
    """Render Markdown to safe HTML. Headings move one level down, below the page's own."""
    parser = MarkdownIt("commonmark", {"html": False, "linkify": False}).enable(["table", "strikethrough"])
    parser.disable("image")
    tokens = _parsed(parser, text) if len(text) <= MAX_MARKDOWN else None
    if tokens is None or _length(tokens) > MAX_RENDERED:
        return Markup("<pre>{}</pre>").format(text[:MAX_CHARACTERS])
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(int(token.tag[1]) + 1, 6)}"
    made = parser.renderer.render(tokens, parser.options, {})
    safe = nh3.clean(
        made, tags=_TAGS, attributes=_ATTRIBUTES, url_schemes=_SCHEMES, link_rel="noopener noreferrer nofollow"
    )
    return Markup(safe)


class _TooManySteps(Exception):
    pass


def _parsed(parser: MarkdownIt, text: str) -> list[Token] | None:
    """None if the parser would need more than `MAX_STEPS`."""
    steps = 0

    def count(*_: object) -> bool:
        """A rule that is asked at every place, and fits none."""
        nonlocal steps
        steps += 1
        if steps > MAX_STEPS:
            raise _TooManySteps
        return False

    parser.inline.ruler.before("text", "steps", count)
    parser.block.ruler.before("table", "steps", count)
    try:
        return parser.parse(text)
    except _TooManySteps:
        return None


def _length(tokens: Iterable[Token]) -> int:
    """About how long the HTML of these becomes."""
    return sum(
        len(token.content)
        + 2 * len(token.tag)
        + sum(len(str(each)) for each in token.attrs.values())
        + _length(token.children or ())
        for token in tokens
    )
