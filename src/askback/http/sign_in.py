"""Signing in with a browser: a token, or a code that stands for one, becomes a session with its cookie.

Somebody who comes by a loopback name is led to the name of the page with a one-time code. The token itself never goes
there, and no cookie is set for the loopback name unless the other name cannot be reached.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from starlette.requests import cookie_parser
from starlette.responses import Response
from starlette.types import Receive, Scope

from askback.http.addresses import Addresses
from askback.http.auth import Doorstep, Grant, Lookup, digest, headers_of, host_of, query_of
from askback.http.bodies import said_length
from askback.http.sessions import Sessions

CODE_SEC = 300.0
"""How long a code may be used: somebody may have to read a notice first."""
_MOST_CODES = 100
_OLD_COOKIE = "askback_token"
"""Held the token itself in earlier versions; a browser that still has it sends it to every port of this machine."""
_MOST_BODY_BYTES = 4096
_BODY_SEC = 5.0
_MOST_BODIES = 32
"""How many are read at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Code:
    token_digest: str
    hosts: frozenset[str]
    expires_at: float


class Codes:
    """One-time codes, each for one holder of a token and for the two names that it can be used at."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._codes: dict[str, _Code] = {}

    def make(self, token_digest: str, hosts: frozenset[str]) -> str:
        text = secrets.token_urlsafe(32)
        while len(self._codes) >= _MOST_CODES:
            del self._codes[next(iter(self._codes))]
        expires_at = self._clock() + CODE_SEC
        self._codes[digest(text)] = _Code(token_digest=token_digest, hosts=hosts, expires_at=expires_at)
        return text

    def take(self, text: str, host: str) -> str | None:
        """The digest of the token that it stands for. However it is used, it is used up."""
        code = self._codes.pop(digest(text), None)
        if code is None or host not in code.hosts or code.expires_at <= self._clock():
            return None
        return code.token_digest


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SignIn:
    """The address `/enter`."""

    find: Lookup
    holder: Lookup
    sessions: Sessions
    addresses: Addresses
    doorstep: Doorstep
    codes: Codes
    forms: Forms = field(default_factory=lambda: Forms())

    async def __call__(self, scope: Scope, receive: Receive) -> Response | None:
        """Signs in who shows a valid token or code; None for everybody else."""
        host, query = host_of(headers_of(scope)), query_of(scope)
        if scope["method"] == "GET" and "code" in query:
            token_digest = self.codes.take(query["code"], host)
            grant = None if token_digest is None else self.holder(token_digest)
            return None if grant is None else await self._entered(scope, grant, host)
        token = query.get("token", "") if scope["method"] == "GET" else await self.forms.token(scope, receive)
        grant = self.find(token)
        if grant is None:
            return None
        page_host = self.addresses.page_host(host)
        if page_host is None:
            return await self._entered(scope, grant, host)
        code = self.codes.make(grant.token_digest, frozenset({host, page_host}))
        response = self.doorstep.onward(scope, origin=f"http://{page_host}", code=code)
        if _OLD_COOKIE in cookie_parser(headers_of(scope).get("cookie", "")):
            response.delete_cookie(_OLD_COOKIE, httponly=True, samesite="strict")
        return response

    async def _entered(self, scope: Scope, grant: Grant, host: str) -> Response:
        agent = headers_of(scope).get("user-agent", "")
        text = await asyncio.to_thread(self.sessions.make, grant, host=host, user_agent=agent)
        response = self.doorstep.entered(scope)
        set_cookie(response, self.addresses, host, text)
        return response


def set_cookie(response: Response, addresses: Addresses, host: str, text: str) -> None:
    """The cookie of a session; an empty text removes it."""
    response.set_cookie(
        addresses.cookie_name(host),
        text,
        max_age=None if text else 0,
        httponly=True,
        samesite="strict",
        secure=addresses.is_secure(host),
        path="/",
    )


class Forms:
    """Reads the field `token` of small forms. Nothing is known of their senders, so little is read, and not for long.

    Of too many at a time the oldest is given up, so that slow senders do not keep others from signing in.
    """

    def __init__(self, *, most: int = _MOST_BODIES, seconds: float = _BODY_SEC) -> None:
        self._most = most
        self._seconds = seconds
        self._open: dict[asyncio.Timeout, None] = {}

    async def token(self, scope: Scope, receive: Receive) -> str:
        """Empty when the form is too large, too slow or has no such field."""
        if said_length(scope) > _MOST_BODY_BYTES:
            return ""
        try:
            async with asyncio.timeout(self._seconds) as limit:
                self._make_room()
                self._open[limit] = None
                try:
                    body = await _read(receive)
                finally:
                    self._open.pop(limit, None)
        except TimeoutError:
            return ""
        return parse_qs(body.decode("latin-1")).get("token", [""])[0] if len(body) <= _MOST_BODY_BYTES else ""

    def _make_room(self) -> None:
        while len(self._open) >= self._most:
            oldest = next(iter(self._open))
            del self._open[oldest]
            if not oldest.expired():
                oldest.reschedule(0)


async def _read(receive: Receive) -> bytes:
    body, more = b"", True
    while more and len(body) <= _MOST_BODY_BYTES:
        message = await receive()
        body += message.get("body", b"")
        more = bool(message.get("more_body")) and message["type"] == "http.request"
    return body
