"""Invitations: links that sign one device in, once, as the person of a token. Only their digests are stored."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from askback.access.grants import Grant, digest
from askback.background.outages import OUTAGES
from askback.core.errors import Conflict, NotFound, RefusalCode, Unavailable
from askback.fs.records import Records

log = logging.getLogger(__name__)

MAX_INVITATIONS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """A stored invitation that was not used yet."""

    id: str
    """Public; grants no access."""
    digest: str
    token: str
    token_digest: str
    created_at: datetime
    expires_at: datetime


class Invitations:
    """The unused invitations. Each ends when it is used, revoked or expired, or with its token."""

    def __init__(self, records: Records, clock: Callable[[], datetime], holder: Callable[[str], Grant | None]) -> None:
        self._stored = records.collection("invitations", Invitation)
        self._clock = clock
        self._holder = holder

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
            for each in list(invitations.values()):
                if not self._is_valid(each):
                    del invitations[each.digest]
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

    def all(self) -> list[Invitation]:
        """The valid invitations, oldest first."""
        valid = [each for each in self._stored.read().values() if self._is_valid(each)]
        return sorted(valid, key=lambda each: each.created_at)

    def revoke(self, invitation_id: str) -> None:
        """Blocks."""
        with self._stored.changing() as invitations:
            found = next((each for each in invitations.values() if each.id == invitation_id), None)
            if found is None:
                raise NotFound(RefusalCode.INVITATION_NOT_FOUND, f"there is no unused invitation {invitation_id!r}")
            del invitations[found.digest]

    def _is_valid(self, invitation: Invitation) -> bool:
        return self._clock() < invitation.expires_at and self._holder(invitation.token_digest) is not None
