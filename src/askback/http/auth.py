"""Authentication, the outermost layer. Without a valid token everything except `/healthz`, `/readyz` and the icons is 401, and
no body is read.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Protocol
from urllib.parse import parse_qs, unquote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from askback.access.failed_sign_ins import FailedSignIns
from askback.access.grants import Grant, Lookup, SessionLookup
from askback.background.pools import PARTY
from askback.core.access import MAIN, AccessScope
from askback.core.actors import Caller, Channel
from askback.core.errors import Unavailable
from askback.http.addresses import Addresses, cookie
from askback.http.problems import RequestCode, problem, refused
from askback.runs.links import ANSWER_PAGE, ANSWERS, Links
from askback.text.formatting import one_line

log = logging.getLogger(__name__)

ENTER = "/enter"
"""Creates a browser session from a token."""
REACHABLE = "/enter/reachable"
"""Responds to everybody, without content, so that a browser can test whether it reaches the server by a host name."""
ICONS = frozenset(f"/static/icon-{name}.png" for name in ("180", "192", "512", "maskable", "badge"))
"""The icons of the installed page: a phone fetches them without its cookies."""
MCP = "/mcp"
"""Where clients of the Model Context Protocol are served."""
VIA_HEADER = "askback-via"
_PROTOCOLS = frozenset({Channel.MCP, Channel.ACP})
DECIDED = "askback.decided"
"""The key of the ASGI scope of a request for which it is decided whether it has a grant."""
_OPEN = frozenset({"/healthz", "/readyz"}) | ICONS
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


USER_HEADER = "askback-user"
_MAX_USER_CHARS = 100
_BY_COMMAND = {Channel.API: Channel.CLI, Channel.ACP: Channel.ACP}
"""The channel of a command that says who typed it. `askback acp` is one that an editor has started."""


def actor_of(request: Request) -> Caller:
    """Who sent the request, through which channel, and from where.

    Commands send who typed them with the server's own token, which has no person. Of other tokens the header is ignored:
    nobody could name somebody else.
    """
    grant: Grant = request.scope["grant"]
    address = address_of(request.scope)
    if grant.link is not None:
        name = grant.link.holder or grant.name
        return Caller(name=name, via=Channel.LINK, address=address, link=grant.link.origin)
    via = _channel(grant, request.scope["path"], request.headers)
    if via in _BY_COMMAND and grant.name == MAIN and (user := unquote(request.headers.get(USER_HEADER, ""))):
        return Caller(name=one_line(user, _MAX_USER_CHARS), via=_BY_COMMAND[via], address=address)
    may_approve = grant.allows(AccessScope.APPROVE)
    return Caller(name=grant.name, via=via, address=address, may_approve=may_approve)


def _channel(grant: Grant, path: str, headers: Mapping[str, str]) -> Channel:
    """The channel of a caller with a token or a session. A program with a token may name the protocol that it serves."""
    if grant.session_id is not None:
        return Channel.PAGE
    named = headers.get(VIA_HEADER)
    return Channel(named) if named in _PROTOCOLS else Channel.MCP if path == MCP else Channel.API


def address_of(scope: Scope) -> str | None:
    """From where a request comes. Headers of proxies are ignored: anybody can send them."""
    client = scope.get("client")
    return None if client is None else str(client[0])


class Current(Protocol):
    """Waits until it is known which tokens, sessions and invitations are valid; see `fs.records.Records`."""

    async def __call__(self, *, exactly: bool = False) -> None: ...


Entrance = Callable[[Scope, Receive], Awaitable[Response | None]]
"""The response to a sign-in; None if the credentials are invalid."""


class SignInPages(Protocol):
    """The pages for a browser without a valid session. `web` implements them."""

    def wants_page(self, scope: Scope) -> bool:
        """Whether the request comes from a browser that shows pages."""
        ...

    def sign_in_page(self, scope: Scope, status: HTTPStatus) -> Response:
        """The sign-in page."""
        ...

    def invalid_link_page(self, scope: Scope, status: HTTPStatus) -> Response:
        """The page for an answer link that is not valid. The same for every reason."""
        ...

    def invitation_page(self, scope: Scope, *, name: str, text: str) -> Response:
        """Asks whether to sign this device in as that person. Nothing is used up by showing it."""
        ...

    def confirmation_page(self, scope: Scope, *, name: str, token: str) -> Response:
        """Asks whether to sign in with this token: another site may have opened the address."""
        ...

    def invalid_invitation_page(self, scope: Scope, status: HTTPStatus) -> Response:
        """The page for an invitation that is not valid. The same for every reason."""
        ...

    def to_page_host(self, scope: Scope, *, origin: str, code: str) -> Response:
        """Redirects to the page's host name, or stays at this one if the other cannot be reached."""
        ...

    def to_same_site(self, scope: Scope, address: str) -> Response:
        """Redirects to the same site, so that the next request comes from this site."""
        ...

    def target(self, text: str) -> str:
        """The text, if it is the path of a page; otherwise the path of the first page."""
        ...

    def signed_in(self, scope: Scope, target: str) -> Response:
        """Opens the page after the sign-in. Not an HTTP redirect: a browser would not send the new cookie."""
        ...


class Gate:
    """Admits requests with a valid token, session or link, for a known host name, and not from another site."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        find: Lookup,
        find_session: SessionLookup,
        links: Links,
        current: Current,
        addresses: Addresses,
        entrance: Entrance,
        failures: FailedSignIns,
        pages: SignInPages,
        record_use: Callable[[str, Channel], None],
    ) -> None:
        self._app = app
        self._find = find
        self._find_session = find_session
        self._links = links
        self._current = current
        self._addresses = addresses
        self._entrance = entrance
        self._failures = failures
        self._pages = pages
        self._record_use = record_use

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A connection may have the context of the one before.
        PARTY.set(())
        if scope["type"] == "lifespan" or (scope["type"] == "http" and scope["path"] in _OPEN):
            scope[DECIDED] = True
            await self._app(scope, receive, send)
        elif scope["type"] != "http":
            await _unauthorized()(scope, receive, send)
        else:
            try:
                answer = await self._answer(scope, receive)
            except Unavailable as error:
                answer = refused(error)
            await answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> ASGIApp:
        """Choose what responds: the application, or the gate itself."""
        headers = headers_of(scope)
        if (scope["path"], scope["method"]) == (REACHABLE, "GET"):
            return self._reachable(headers)
        if scope["path"] == ENTER and scope["method"] in ("GET", "POST"):
            if (reason := cross_site(self._addresses, scope["method"], headers)) is not None:
                return _forbidden(reason)
            await self._current(exactly=True)
            scope[DECIDED] = True
            return await self._entrance(scope, receive) or self._refused(scope, headers)
        grant = await self._admitted(scope, headers)
        scope[DECIDED] = True
        if grant is None:
            return self._refused(scope, headers)
        if (reason := cross_site(self._addresses, scope["method"], headers)) is not None:
            return _forbidden(reason)
        if grant.link is None:
            self._record_use(grant.token_digest, _channel(grant, scope["path"], headers))
        scope["grant"] = grant
        PARTY.set(grant.party)
        # A stream may last for days and a body for minutes, and the token may be revoked in that time.
        scope["still_valid"] = lambda: self._grant(scope, headers) is not None
        return self._app

    async def _admitted(self, scope: Scope, headers: Mapping[str, str]) -> Grant | None:
        """The grant, once it is known that it is still valid. What is unknown may just have been created elsewhere."""
        given = headers.get("authorization", "").partition(" ")[2].strip()
        if given and (own := self._grant(scope, headers)) is not None and own.name == MAIN:
            return own
        if self._credentials(scope, headers) is None:
            return None
        for exactly in (False, True):
            await self._current(exactly=exactly)
            if (held := _link_in(scope["path"])) is not None:
                await self._links.current(held, exactly=exactly)
            if (grant := self._grant(scope, headers)) is not None:
                return grant
        return None

    def _grant(self, scope: Scope, headers: Mapping[str, str]) -> Grant | None:
        if "authorization" in headers:
            kind, _, token = headers["authorization"].partition(" ")
            return self._find(token.strip()) if kind.lower() == "bearer" else None
        if (held := _link_in(scope["path"])) is not None:
            link = self._links.read(held)
            return None if link is None else Grant(name="link", scopes=frozenset(), link=link)
        secret = self._cookie(headers)
        return self._find_session(secret, host_of(headers)) if secret else None

    def _cookie(self, headers: Mapping[str, str]) -> str | None:
        return cookie(headers.get("cookie", ""), self._addresses.cookie_name(host_of(headers)))

    def _refused(self, scope: Scope, headers: Mapping[str, str]) -> Response:
        """401, or 429 after too many failed attempts. A request without credentials is not an attempt."""
        kind = self._credentials(scope, headers)
        wait = None if kind is None else self._failures.count((scope.get("client") or ("",))[0], kind)
        by_link = kind == "link"
        if self._pages.wants_page(scope):
            status = HTTPStatus.UNAUTHORIZED if wait is None else HTTPStatus.TOO_MANY_REQUESTS
            response = self._page_for(kind)(scope, status)
        else:
            response = _unauthorized(by_link=by_link) if wait is None else _too_many(by_link=by_link)
        if wait is not None:
            response.headers["Retry-After"] = str(wait)
        return response

    def _page_for(self, kind: str | None) -> Callable[[Scope, HTTPStatus], Response]:
        match kind:
            case "link":
                return self._pages.invalid_link_page
            case "invitation":
                return self._pages.invalid_invitation_page
            case _:
                return self._pages.sign_in_page

    def _credentials(self, scope: Scope, headers: Mapping[str, str]) -> str | None:
        """The kind of credentials in the request."""
        if scope["path"] == ENTER:
            if "invitation" in query_of(scope) or scope.get("sign_in_by") == "invitation":
                return "invitation"
            return "token" if scope["method"] == "POST" or query_of(scope).keys() & {"token", "code", "step"} else None
        if headers.get("authorization"):
            return "bearer"
        if _link_in(scope["path"]) is not None:
            return "link"
        return "cookie" if self._cookie(headers) else None

    def _reachable(self, headers: Mapping[str, str]) -> Response:
        """Respond to the page that checks whether this host name can be reached. Other origins cannot read the response."""
        origin = headers.get("origin", "").lower()
        host = origin.removeprefix("http://")
        if host == origin or not self._addresses.may_continue(host):
            return Response(status_code=HTTPStatus.NO_CONTENT)
        allowed = {"Access-Control-Allow-Origin": origin, "Cross-Origin-Resource-Policy": "cross-origin"}
        return Response(status_code=HTTPStatus.NO_CONTENT, headers=allowed)


def cross_site(addresses: Addresses, method: str, headers: Mapping[str, str]) -> str | None:
    """Why a request may come from another site: by DNS rebinding, or from a page of another origin."""
    if not addresses.accepts(host_of(headers)):
        return (
            "this server does not serve that host name; open the printed URL, or add the name to server.allowed_hosts"
        )
    if method in _SAFE:
        return None
    origin = headers.get("origin")
    if origin is not None and origin.lower().partition("://")[2] != host_of(headers):
        return "a write from another origin is refused"
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return "a write from another site is refused"
    return None


def headers_of(scope: Scope) -> dict[str, str]:
    """By lower-case name. Repeated headers are joined, as HTTP defines."""
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1"), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def host_of(headers: Mapping[str, str]) -> str:
    return headers.get("host", "").lower()


def query_of(scope: Scope) -> dict[str, str]:
    query: bytes = scope.get("query_string", b"")
    return {name: values[0] for name, values in parse_qs(query.decode("latin-1")).items()}


def _forbidden(reason: str) -> Response:
    return problem(HTTPStatus.FORBIDDEN, reason)


def check_still_valid(scope: Scope) -> None:
    """Raises 401, as for a request that was never valid, if what the request was admitted with has ended since."""
    is_valid: Callable[[], bool] | None = scope.get("still_valid")
    if is_valid is not None and not is_valid():
        by_link = scope["grant"].link is not None
        raise HTTPException(HTTPStatus.UNAUTHORIZED, _why_unauthorized(by_link=by_link), _CHALLENGE)


_CHALLENGE = {"WWW-Authenticate": "Bearer"}


def _why_unauthorized(*, by_link: bool) -> str:
    if by_link:
        return "the link is incomplete or no longer valid; ask for a new one"
    return "a valid token is required: Authorization: Bearer TOKEN"


def _unauthorized(*, by_link: bool = False) -> Response:
    return problem(HTTPStatus.UNAUTHORIZED, _why_unauthorized(by_link=by_link), headers=_CHALLENGE)


def _too_many(*, by_link: bool = False) -> Response:
    valid = "link" if by_link else "token"
    detail = f"too many failed sign-ins from this address; a valid {valid} is accepted at once"
    return problem(HTTPStatus.TOO_MANY_REQUESTS, detail, code=RequestCode.TOO_MANY_FAILED_SIGN_INS)


def _link_in(path: str) -> str | None:
    if path.startswith(ANSWERS):
        return path.removeprefix(ANSWERS).removesuffix("/file")
    return path.removeprefix(ANSWER_PAGE).partition("/")[0] if path.startswith(ANSWER_PAGE) else None
