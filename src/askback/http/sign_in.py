"""Signing in with a browser: a token, or a one-time code for it, is exchanged for a session cookie.

A sign-in at a loopback name continues at the name of the page, with a one-time code. The token itself is never sent
there, and no cookie is set for the loopback name unless the other name cannot be reached.
"""

from __future__ import annotations

import asyncio
import functools
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope

from askback.access.grants import Grant, Lookup, digest
from askback.access.sessions import Invitations, Sessions
from askback.core.access import Action
from askback.core.actors import Caller, Channel
from askback.http.addresses import Addresses, cookie
from askback.http.auth import ENTER, SignInPages, address_of, headers_of, host_of, query_of
from askback.http.bodies import declared_length
from askback.http.context import AuditTrail
from askback.http.quotas import RequestRate

CODE_SEC = 300.0
"""How long a code is valid: the user may have to read a notice first."""
_MAX_CODES = 100
_OLD_COOKIE = "askback_token"
"""Contained the token itself in earlier versions. A browser sends it to every port of this machine."""
_MAX_BODY_BYTES = 4096
_BODY_SEC = 5.0
_MAX_BODIES = 32
"""Read at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    token_digest: str
    hosts: frozenset[str]
    target: str
    """The path that the user requested."""
    expires_at: float
    invited: bool = False
    """Whether the session is that of an invited device."""


class Codes:
    """One-time codes, each for one token and certain host names."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._codes: dict[str, Code] = {}

    def make(self, token_digest: str, hosts: frozenset[str], target: str = "/", *, invited: bool = False) -> str:
        text = secrets.token_urlsafe(32)
        while len(self._codes) >= _MAX_CODES:
            del self._codes[next(iter(self._codes))]
        expires_at = self._clock() + CODE_SEC
        made = Code(token_digest=token_digest, hosts=hosts, target=target, expires_at=expires_at, invited=invited)
        self._codes[digest(text)] = made
        return text

    def find(self, text: str, host: str) -> Code | None:
        """The code, if it is valid at this host. It stays valid."""
        code = self._codes.get(digest(text))
        return None if code is None or host not in code.hosts or code.expires_at <= self._clock() else code

    def take(self, text: str, host: str) -> Code | None:
        """The code, if it is valid at this host. It is used up in any case."""
        code = self.find(text, host)
        self._codes.pop(digest(text), None)
        return code


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SignIn:
    find: Lookup
    holder: Lookup
    sessions: Sessions
    invitations: Invitations
    addresses: Addresses
    pages: SignInPages
    codes: Codes
    audit: AuditTrail
    rate: RequestRate
    forms: Forms = field(default_factory=lambda: Forms())

    async def __call__(self, scope: Scope, receive: Receive) -> Response | None:
        """Signs in with a valid token or code; None for anything else."""
        query = query_of(scope)
        if scope["method"] == "POST":
            form = await self.forms.read(scope, receive)
            if "invitation" in form:
                scope["sign_in_by"] = "invitation"
                used = await asyncio.to_thread(self.invitations.take, form["invitation"])
                grant = None if used is None else self.holder(used.token_digest)
                return None if grant is None else await self._admit(scope, grant, "/", invited=True)
            scope["sign_in_target"] = self.pages.target(form.get("next", ""))
            return await self._by_token(scope, _token_in(form.get("token", "")), scope["sign_in_target"])
        if "token" in query:
            return self._confirm(scope, query["token"]) or await self._by_token(scope, query["token"], "/")
        if "invitation" in query:
            # Asks first: messengers open links for a preview, which must not use the invitation up.
            text = query["invitation"]
            unused = self.invitations.find(text)
            return None if unused is None else self.pages.invitation_page(scope, name=unused.token, text=text)
        found = await self._by_code(scope, query["code"]) if "code" in query else None
        found = found or (self._step(scope, query["step"]) if "step" in query else None)
        if found is None and self._signed_in(scope) is not None:
            return RedirectResponse("/", HTTPStatus.SEE_OTHER)
        return found

    def _confirm(self, scope: Scope, token: str) -> Response | None:
        """A page that asks first, if another site may have opened this address, or if somebody else is signed in here."""
        grant = self.find(token)
        if grant is None:
            return None
        if not _is_from_elsewhere(scope):
            present = self._signed_in(scope)
            if present is None or present.token_digest == grant.token_digest:
                return None
        return self.pages.confirmation_page(scope, name=grant.name, token=token)

    def _signed_in(self, scope: Scope) -> Grant | None:
        """The grant of this browser's session, if it is signed in."""
        secret = self._cookie(scope)
        return None if secret is None else self.sessions.find(secret, host_of(headers_of(scope)))

    async def _by_token(self, scope: Scope, token: str, target: str) -> Response | None:
        grant = self.find(token)
        if grant is None:
            return None
        return self.rate.refusal(grant) or await self._admit(scope, grant, target)

    async def _admit(self, scope: Scope, grant: Grant, target: str, *, invited: bool = False) -> Response:
        """A session at this host name, or a step to the name of the page."""
        host = host_of(headers_of(scope))
        page_host = self.addresses.page_host(host, grant.token_digest)
        if page_host is None:
            return await self._entered(scope, grant, target, invited=invited)
        # Not the name of another token: its holder could receive the cookie at another port.
        usable = {page_host} | ({host} & self.addresses.hosts)
        code = self.codes.make(grant.token_digest, frozenset(usable), target, invited=invited)
        response = self.pages.to_page_host(scope, origin=f"http://{page_host}", code=code)
        if cookie(headers_of(scope).get("cookie", ""), _OLD_COOKIE) is not None:
            response.delete_cookie(_OLD_COOKIE, httponly=True, samesite="strict")
        return response

    async def _by_code(self, scope: Scope, text: str) -> Response | None:
        host = host_of(headers_of(scope))
        # A browser only sends its cookie with requests from this site. The cookie is needed to end its old session.
        if _is_from_elsewhere(scope) and "direct" not in query_of(scope) and self.codes.find(text, host) is not None:
            return self.pages.to_same_site(scope, f"{ENTER}?code={text}&direct=1")
        code = self.codes.take(text, host)
        grant = None if code is None else self.holder(code.token_digest)
        if code is None or grant is None:
            return None
        return await self._entered(scope, grant, code.target, invited=code.invited)

    def _step(self, scope: Scope, text: str) -> Response | None:
        """Redirect to the page's host name again: the user came back because it could not be reached."""
        host = host_of(headers_of(scope))
        code = self.codes.find(text, host)
        page_host = None if code is None else self.addresses.page_host(host, code.token_digest)
        if code is None or page_host is None or self.holder(code.token_digest) is None:
            return None
        return self.pages.to_page_host(scope, origin=f"http://{page_host}", code=text)

    async def _entered(self, scope: Scope, grant: Grant, target: str, *, invited: bool) -> Response:
        headers = headers_of(scope)
        host, agent = host_of(headers), headers.get("user-agent", "")
        make = functools.partial(self.sessions.make, host=host, user_agent=agent, instead_of=self._cookie(scope))
        made = await asyncio.to_thread(make, grant, invited=invited)
        by = Caller(name=grant.name, via=Channel.PAGE, address=address_of(scope))
        await self.audit.record(by, Action.SESSION_START, object=made.id)
        if made.displaced:
            await self.audit.record(by, Action.SESSION_END, object=", ".join(made.displaced))
        response = self.pages.signed_in(scope, target)
        # A phone ends its browser often, and forgets a cookie without an age.
        age = round(self.sessions.device.max_age.total_seconds()) if invited else None
        set_cookie(response, self.addresses, host, made.secret, max_age=age)
        return response

    def _cookie(self, scope: Scope) -> str | None:
        headers = headers_of(scope)
        return cookie(headers.get("cookie", ""), self.addresses.cookie_name(host_of(headers)))


def _is_from_elsewhere(scope: Scope) -> bool:
    """Whether a browser says that a page of another site or host name has led to this request."""
    return headers_of(scope).get("sec-fetch-site") in ("cross-site", "same-site")


def set_cookie(response: Response, addresses: Addresses, host: str, text: str, *, max_age: int | None = None) -> None:
    """Set the session cookie, for `max_age` seconds or until the browser ends. An empty text removes it."""
    response.set_cookie(
        addresses.cookie_name(host),
        text,
        max_age=max_age if text else 0,
        httponly=True,
        samesite="strict",
        secure=addresses.is_secure(host),
        path="/",
    )


class Forms:
    """Reads small forms of unauthenticated clients, within limits. If there are too many, the oldest is dropped."""

    def __init__(self, *, max_forms: int = _MAX_BODIES, seconds: float = _BODY_SEC) -> None:
        self._max_forms = max_forms
        self._seconds = seconds
        self._open: dict[asyncio.Timeout, None] = {}

    async def read(self, scope: Scope, receive: Receive) -> dict[str, str]:
        """The fields; none if the form is too large or too slow."""
        if declared_length(scope) > _MAX_BODY_BYTES:
            return {}
        try:
            async with asyncio.timeout(self._seconds) as limit:
                self._make_room()
                self._open[limit] = None
                try:
                    body = await _read(receive)
                finally:
                    self._open.pop(limit, None)
        except TimeoutError:
            return {}
        if len(body) > _MAX_BODY_BYTES:
            return {}
        return {name: values[0] for name, values in parse_qs(body.decode("latin-1")).items()}

    def _make_room(self) -> None:
        while len(self._open) >= self._max_forms:
            oldest = next(iter(self._open))
            del self._open[oldest]
            if not oldest.expired():
                oldest.reschedule(0)


async def _read(receive: Receive) -> bytes:
    body, more = b"", True
    while more and len(body) <= _MAX_BODY_BYTES:
        message = await receive()
        body += message.get("body", b"")
        more = bool(message.get("more_body")) and message["type"] == "http.request"
    return body


def _token_in(text: str) -> str:
    """The token in the pasted text: the text itself, or part of the URL that the server prints."""
    text = text.strip()
    try:
        link = urlsplit(text)
    except ValueError:
        return text
    if link.scheme not in ("http", "https") or link.path != ENTER:
        return text
    return parse_qs(link.query).get("token", [""])[0].strip()
