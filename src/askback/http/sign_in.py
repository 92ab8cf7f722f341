"""Signing in with a browser: a token, or a code that stands for one, becomes a session with its cookie.

Somebody who comes by a loopback name is led to the name of the page with a one-time code. The token itself never goes
there, and no cookie is set for the loopback name unless the other name cannot be reached.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import parse_qs

from starlette.requests import cookie_parser
from starlette.responses import Response
from starlette.types import Receive, Scope

from askback.http.addresses import Addresses
from askback.http.auth import Doorstep, Grant, Lookup, digest, headers_of, host_of, query_of
from askback.http.sessions import Sessions

CODE_SEC = 300.0
"""How long a code may be used: somebody may have to read a notice first."""
_MOST_CODES = 100
_OLD_COOKIE = "askback_token"
"""Held the token itself in earlier versions; a browser that still has it sends it to every port of this machine."""
_MOST_BODY_BYTES = 4096
_BODY_SEC = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Code:
    token_digest: str
    hosts: frozenset[str]
    expires_at: float


class Codes:
    """One-time codes, each for one holder of a token and for the names that it can be used at."""

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

    async def __call__(self, scope: Scope, receive: Receive) -> Response | None:
        """Signs in who shows a valid token or code; None for everybody else."""
        host, query = host_of(headers_of(scope)), query_of(scope)
        if scope["method"] == "GET" and "code" in query:
            token_digest = self.codes.take(query["code"], host)
            grant = None if token_digest is None else self.holder(token_digest)
            return None if grant is None else await self._entered(scope, grant, host)
        token = query.get("token", "") if scope["method"] == "GET" else await _posted_token(receive)
        grant = self.find(token)
        if grant is None:
            return None
        page_host = self.addresses.page_host(host, grant.token_digest)
        if page_host is None:
            return await self._entered(scope, grant, host)
        # Nobody can stay at the name of another token: its holder could receive the cookie at another port.
        usable = {page_host} | ({host} & self.addresses.hosts)
        code = self.codes.make(grant.token_digest, frozenset(usable))
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


async def _posted_token(receive: Receive) -> str:
    """The field `token` of a small form. Nothing is known of its sender, so little is read, and not for long."""
    body, more = b"", True
    try:
        async with asyncio.timeout(_BODY_SEC):
            while more and len(body) <= _MOST_BODY_BYTES:
                message = await receive()
                body += message.get("body", b"")
                more = bool(message.get("more_body")) and message["type"] == "http.request"
    except TimeoutError:
        return ""
    if len(body) > _MOST_BODY_BYTES:
        return ""
    return parse_qs(body.decode("latin-1")).get("token", [""])[0]
