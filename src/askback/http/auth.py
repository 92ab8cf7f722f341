"""Who may come in: the outermost layer. Without a valid token everything but `/healthz` is 401, before a body is read."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from typing import Protocol
from urllib.parse import parse_qs

from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from askback.http.links import Link, Links
from askback.http.problems import problem

COOKIE = "askback_token"
ENTER = "/enter"
"""The address that turns a token into a cookie, for the page."""
ANSWERS = "/v1/answers/"
"""Where the holder of a link to one question answers it, without a token."""
ANSWER_PAGE = "/answers/"
"""Where the same is to be found as a page, with what the page is made of below it."""
_OPEN = frozenset({"/healthz"})
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class AccessScope(StrEnum):
    """What a token allows; `admin` allows everything."""

    SUBMIT = "submit"
    ANSWER = "answer"
    READ = "read"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Who a request is from."""

    name: str
    scopes: frozenset[AccessScope]
    by_cookie: bool = False
    link: Link | None = None

    def allows(self, *scopes: AccessScope) -> bool:
        """Whether it has one of these."""
        return AccessScope.ADMIN in self.scopes or not self.scopes.isdisjoint(scopes)


Lookup = Callable[[str], "Grant | None"]
"""Tells whom the sha256 of a token belongs to, if anybody, now."""


class Doorstep(Protocol):
    """What a person sees who comes with a browser and without a valid token."""

    def wants_page(self, scope: Scope) -> bool:
        """Whether this is such a person."""
        ...

    def doorstep(self, scope: Scope) -> Response:
        """How to get in."""
        ...


def digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class MainToken:
    """The server's own token, which allows everything; further ones are looked up by their digest."""

    token: str
    further: Callable[[str], Grant | None]

    def __call__(self, given: str) -> Grant | None:
        if not given:
            return None
        if hmac.compare_digest(digest(given), digest(self.token)):
            return Grant(name="main", scopes=frozenset({AccessScope.ADMIN}))
        return self.further(digest(given))


class Gate:
    """Lets in who has a token, from an address that is ours, and no page of a stranger."""

    def __init__(self, app: ASGIApp, *, find: Lookup, hosts: frozenset[str], links: Links, doorstep: Doorstep) -> None:
        self._app = app
        self._find = find
        self._hosts = hosts
        self._links = links
        self._doorstep = doorstep

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or (scope["type"] == "http" and scope["path"] in _OPEN):
            await self._app(scope, receive, send)
            return
        headers = _headers(scope)
        grant = self._grant(scope, headers)
        if grant is None:
            await self._unauthorized(scope)(scope, receive, send)
        elif (reason := self._stranger(scope["method"], headers)) is not None:
            await problem(HTTPStatus.FORBIDDEN, reason)(scope, receive, send)
        elif _enters(scope):
            await self._enter(scope)(scope, receive, send)
        else:
            scope["grant"] = grant
            await self._app(scope, receive, send)

    def _grant(self, scope: Scope, headers: Mapping[str, str]) -> Grant | None:
        if scope["type"] != "http":
            return None
        if "authorization" in headers:
            kind, _, token = headers["authorization"].partition(" ")
            return self._find(token.strip()) if kind.lower() == "bearer" else None
        if (held := _link_in(scope["path"])) is not None:
            link = self._links.read(held)
            return None if link is None else Grant(name="link", scopes=frozenset(), link=link)
        if _enters(scope):
            return self._find(_query_token(scope))
        cookie = _cookie(headers.get("cookie", ""))
        grant = self._find(cookie) if cookie else None
        return None if grant is None else Grant(name=grant.name, scopes=grant.scopes, by_cookie=True)

    def _unauthorized(self, scope: Scope) -> Response:
        if scope["type"] == "http" and self._doorstep.wants_page(scope):
            return self._doorstep.doorstep(scope)
        return _unauthorized()

    def _stranger(self, method: str, headers: Mapping[str, str]) -> str | None:
        """A page of another site can make a browser send things; a name that leads here can be anybody's."""
        if headers.get("host", "").lower() not in self._hosts:
            return "this server does not answer to that Host; name it in server.allowed_hosts"
        if method in _SAFE:
            return None
        origin = headers.get("origin")
        if origin is not None and origin.lower().partition("://")[2] not in self._hosts:
            return "a write from another origin is refused"
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return "a write from another site is refused"
        return None

    def _enter(self, scope: Scope) -> RedirectResponse:
        response = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        response.set_cookie(COOKIE, _query_token(scope), httponly=True, samesite="strict", path="/")
        response.headers["Referrer-Policy"] = "no-referrer"
        return response


def _headers(scope: Scope) -> dict[str, str]:
    """By their names; one that stands there twice is joined, as HTTP has it, so that no half of it counts."""
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1"), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def _unauthorized() -> Response:
    detail = "a valid token is needed: Authorization: Bearer TOKEN"
    return problem(HTTPStatus.UNAUTHORIZED, detail, headers={"WWW-Authenticate": "Bearer"})


def _link_in(path: str) -> str | None:
    if path.startswith(ANSWERS):
        return path.removeprefix(ANSWERS)
    return path.removeprefix(ANSWER_PAGE).partition("/")[0] if path.startswith(ANSWER_PAGE) else None


def _enters(scope: Scope) -> bool:
    return (scope["path"], scope["method"]) == (ENTER, "GET")


def _query_token(scope: Scope) -> str:
    query: bytes = scope.get("query_string", b"")
    return parse_qs(query.decode("latin-1")).get("token", [""])[0]


def _cookie(header: str) -> str | None:
    try:
        found = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return None
    return found.value if found is not None else None
