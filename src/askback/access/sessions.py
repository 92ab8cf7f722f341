"""Browser sessions, and invitations: links that sign one device in, once, as the person of a token.

A session is created with a token or an invitation, bound to one host name, and ended with its token. Only digests are stored.

A session is not a token: its secret is not accepted as a bearer token.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from askback.access.grants import Grant, Issued, digest
from askback.background.outages import OUTAGES
from askback.core.errors import Conflict, RefusalCode, Unavailable
from askback.fs.records import Records

log = logging.getLogger(__name__)

IDLE = timedelta(days=7)
MAX_AGE = timedelta(days=30)
MAX_PER_TOKEN = 100
"""Beyond this, the least recently used session of the same token ends. Those of other tokens are never affected."""

_BROWSERS = (("Edg", "Edge"), ("OPR", "Opera"), ("Firefox", "Firefox"), ("Chrome", "Chrome"), ("Safari", "Safari"))
_SYSTEMS = (
    ("Windows", "Windows"),
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetime:
    """When a session ends: some time after its last use, and at the latest some time after it was created."""

    idle: timedelta
    max_age: timedelta


DEVICE = Lifetime(idle=timedelta(days=90), max_age=timedelta(days=365))
"""Of the session of an invited device, unless the settings say otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    id: str
    """Public; grants no access."""
    digest: str
    token: str
    token_digest: str
    host: str
    browser: str
    created_at: datetime
    last_seen_at: datetime
    expires_at: datetime
    """The latest end; an idle session ends earlier."""
    idle_sec: float | None = None
    """How long the session of an invited device may be idle. None: a browser that signed in with a token."""

    @property
    def invited(self) -> bool:
        return self.idle_sec is not None

    @property
    def ends_at(self) -> datetime:
        idle = IDLE if self.idle_sec is None else timedelta(seconds=self.idle_sec)
        return min(self.expires_at, self.last_seen_at + idle)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSession:
    id: str
    secret: str
    displaced: tuple[str, ...]
    """The ids of the sessions of the same token that ended because there were too many."""


class Sessions(Issued[Session]):
    """The sessions. A running server sees a change in a file at its next request, one in a database within seconds."""

    noun, missing = "session", RefusalCode.SESSION_NOT_FOUND
    collection, record = "sessions", Session

    def __init__(
        self,
        records: Records,
        clock: Callable[[], datetime],
        holder: Callable[[str], Grant | None],
        device: Lifetime = DEVICE,
    ) -> None:
        super().__init__(records, clock, holder)
        self.device = device
        """How long the session of an invited device lasts."""
        self._seen: dict[str, datetime] = {}
        """When sessions were last used, if not yet written."""

    def find(self, text: str, host: str) -> Grant | None:
        """The grant of the session with this secret, if it is valid for this host."""
        try:
            session = self._stored.read().get(digest(text))
            if session is None or session.host != host or not self._is_valid(session):
                return None
            grant = self._holder(session.token_digest)
        except Unavailable as error:
            OUTAGES.failed(log, "cannot read browser sessions", error)
            return None
        if grant is not None:
            self._seen[session.digest] = self._clock()
        return None if grant is None else replace(grant, session_id=session.id)

    def all(self) -> list[Session]:
        """The valid sessions, most recently used first."""
        held = [self._current(each) for each in super().all() if self._holder(each.token_digest) is not None]
        return sorted(held, key=lambda each: each.last_seen_at, reverse=True)

    def has(self, session_id: str) -> bool:
        """Whether the session with this public id is valid. Raises `Unavailable` if that cannot be read."""
        return any(each.id == session_id for each in self.all())

    def make(
        self, grant: Grant, *, host: str, user_agent: str, instead_of: str | None = None, invited: bool = False
    ) -> NewSession:
        """Create a session. Blocks: call it in a thread.

        `instead_of` is the browser's previous secret at this host; that session ends. `invited`: it lasts as long as a
        device may.
        """
        text, now = secrets.token_urlsafe(32), self._clock()
        made = Session(
            id=secrets.token_hex(4),
            digest=digest(text),
            token=grant.name,
            token_digest=grant.token_digest,
            host=host,
            browser=browser(user_agent),
            created_at=now,
            last_seen_at=now,
            expires_at=now + (self.device.max_age if invited else MAX_AGE),
            idle_sec=self.device.idle.total_seconds() if invited else None,
        )
        with self._stored.changing() as sessions:
            old = None if instead_of is None else sessions.get(digest(instead_of))
            if old is not None and old.host == host:
                del sessions[old.digest]
            self._prune(sessions)
            displaced = self._make_room(sessions, grant.token_digest)
            sessions[made.digest] = made
        return NewSession(id=made.id, secret=text, displaced=displaced)

    def flush(self) -> None:
        if self._seen:
            with self._stored.changing() as sessions:
                self._prune(sessions)
                sessions.update({key: self._current(each) for key, each in sessions.items()})
                self._seen.clear()

    def _make_room(self, sessions: dict[str, Session], token_digest: str) -> tuple[str, ...]:
        own = [self._current(each) for each in sessions.values() if each.token_digest == token_digest]
        excess = sorted(own, key=lambda each: each.last_seen_at)[: max(0, len(own) - MAX_PER_TOKEN + 1)]
        for each in excess:
            del sessions[each.digest]
        return tuple(each.id for each in excess)

    def _current(self, session: Session) -> Session:
        seen = self._seen.get(session.digest, session.last_seen_at)
        return replace(session, last_seen_at=max(seen, session.last_seen_at))

    def _is_valid(self, session: Session) -> bool:
        return self._clock() < self._current(session).ends_at


def browser(user_agent: str) -> str:
    """For example `Firefox, Linux`; for other programs, their name."""
    name = next((name for mark, name in _BROWSERS if f"{mark}/" in user_agent), None)
    system = next((name for mark, name in _SYSTEMS if mark in user_agent), None)
    if name is None:
        named = re.match(r"[A-Za-z0-9._-]{1,40}", user_agent)
        name = named[0] if named else None
    return ", ".join(part for part in (name, system) if part)


MAX_INVITATIONS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    id: str
    """Public; grants no access."""
    digest: str
    token: str
    token_digest: str
    created_at: datetime
    expires_at: datetime


class Invitations(Issued[Invitation]):
    """The unused invitations. Each ends when it is used, revoked or expired, or with its token."""

    noun, missing = "unused invitation", RefusalCode.INVITATION_NOT_FOUND
    collection, record = "invitations", Invitation

    def make(self, *, token: str, token_digest: str, lasts: timedelta) -> tuple[str, Invitation]:
        """Create an invitation; its text is only available here. Blocks: call it in a thread."""
        text, now = secrets.token_urlsafe(32), self._clock()
        made = Invitation(
            id=secrets.token_hex(4),
            digest=digest(text),
            token=token,
            token_digest=token_digest,
            created_at=now,
            expires_at=(now + lasts).replace(microsecond=0),
        )
        with self._stored.changing() as invitations:
            self._prune(invitations)
            if len(invitations) >= MAX_INVITATIONS:
                message = f"there are {MAX_INVITATIONS} unused invitations; revoke some, or wait until they expire"
                raise Conflict(RefusalCode.STATE_UNSUITABLE, message)
            invitations[made.digest] = made
        return text, made

    def find(self, text: str) -> Invitation | None:
        """The invitation, if it is valid. It stays valid."""
        try:
            found = self._stored.read().get(digest(text))
            return found if found is not None and self._is_valid(found) else None
        except Unavailable as error:
            OUTAGES.failed(log, "cannot read invitations", error)
            return None

    def take(self, text: str) -> Invitation | None:
        """The invitation, if it is valid, for the first caller alone. Blocks."""
        if self.find(text) is None:
            return None
        with self._stored.changing() as invitations:
            found = invitations.pop(digest(text), None)
        return found if found is not None and self._is_valid(found) else None

    def _is_valid(self, invitation: Invitation) -> bool:
        return self._clock() < invitation.expires_at and self._holder(invitation.token_digest) is not None
