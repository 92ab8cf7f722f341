"""Links to one question, and labels for the host names of the page.

The holder of a link may read and answer its question, and nothing else. A link is signed, so that a forged one is
refused without reading a file. It is also stored with its run, so that it can be listed and revoked, and ends with the
token that created it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import logging
import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from askback.core.errors import Conflict, NotFound, RefusalCode, Unavailable
from askback.files.atomic import RecordFile

log = logging.getLogger(__name__)

MAX_PER_RUN = 100
_FILE_NAME = "links.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The content of a link."""

    run_id: str
    interaction_id: str
    expires_at: datetime
    recipient: str | None = None
    """Who the link is for. Of a link that was read: who answers with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLink:
    """A link as it is stored with its run."""

    id: str
    """Public; grants no access."""
    digest: str
    interaction_id: str
    token: str
    token_digest: str
    created_at: datetime
    expires_at: datetime
    recipient: str | None = None

    @property
    def answerer(self) -> str:
        """The name of the person who answers with it: of its recipient, otherwise of the token that created it."""
        return self.recipient or self.token


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Creates, reads and revokes links."""

    key: bytes
    clock: Callable[[], datetime]
    folder: Callable[[str], Path]
    """The folder of a run."""
    is_token: Callable[[str], bool]
    """Whether the token with this digest is valid."""

    def make(self, link: Link, *, token: str, token_digest: str) -> tuple[str, StoredLink]:
        """Create a link with this token. Writes a file: call it in a thread."""
        link_id = secrets.token_hex(4)
        fields = [link.run_id, link.interaction_id, int(link.expires_at.timestamp()), link_id]
        body = json.dumps(fields, separators=(",", ":")).encode()
        text = f"{_encoded(body)}.{_encoded(self._sign(body))}"
        kept = StoredLink(
            id=link_id,
            digest=_digest(text),
            interaction_id=link.interaction_id,
            token=token,
            token_digest=token_digest,
            created_at=self.clock(),
            expires_at=link.expires_at,
            recipient=link.recipient,
        )
        with self._file(link.run_id).changing() as links:
            self._make_room(links, link.interaction_id)
            links[kept.digest] = kept
        return text, kept

    def read(self, text: str) -> Link | None:
        """The content; None if the link is forged, expired or revoked, or its token is."""
        link = self._signed(text)
        if link is None or self.clock() >= link.expires_at:
            return None
        try:
            kept = self._file(link.run_id).read().get(_digest(text))
        except Unavailable as error:
            log.error("cannot read links: %s", error.message)
            return None
        valid = kept is not None and self.is_token(kept.token_digest)
        return replace(link, recipient=kept.answerer) if kept is not None and valid else None

    def all(self, run_id: str, interaction_id: str) -> list[StoredLink]:
        """The valid links to this question, oldest first."""
        found = [each for each in self._file(run_id).read().values() if each.interaction_id == interaction_id]
        valid = [each for each in found if each.expires_at > self.clock() and self.is_token(each.token_digest)]
        return sorted(valid, key=lambda each: each.created_at)

    def revoke(self, run_id: str, ids: Collection[str]) -> None:
        """Revoke all of these links, or none. Writes a file."""
        with self._file(run_id).changing() as links:
            found = {each.id: each.digest for each in links.values()}
            for link_id in ids:
                if link_id not in found:
                    raise NotFound(RefusalCode.LINK_NOT_FOUND, f"the question has no link {link_id!r}")
                del links[found[link_id]]

    def _make_room(self, links: dict[str, StoredLink], interaction_id: str) -> None:
        full = len(links) >= MAX_PER_RUN
        for each in list(links.values()):
            ended = each.expires_at <= self.clock() or not self.is_token(each.token_digest)
            if ended or (full and each.interaction_id != interaction_id):
                del links[each.digest]
        if len(links) >= MAX_PER_RUN:
            message = f"this question already has {MAX_PER_RUN} links; revoke some, or wait until they expire"
            raise Conflict(RefusalCode.STATE_UNSUITABLE, message)

    def _file(self, run_id: str) -> RecordFile[StoredLink]:
        return RecordFile(self.folder(run_id) / _FILE_NAME, StoredLink)

    def _signed(self, text: str) -> Link | None:
        body_text, _, signature = text.partition(".")
        try:
            body = _decoded(body_text)
            if not hmac.compare_digest(self._sign(body), _decoded(signature)):
                return None
            run_id, interaction_id, expires, _ = json.loads(body)
        except (binascii.Error, ValueError):
            return None
        return Link(run_id=run_id, interaction_id=interaction_id, expires_at=datetime.fromtimestamp(expires, UTC))

    def _sign(self, body: bytes) -> bytes:
        return hmac.new(self.key, b"askback answer link\0" + body, hashlib.sha256).digest()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    return base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)


_CHARACTERS = 26
"""130 bits in base32."""


class PageLabels:
    """The labels of valid tokens."""

    def __init__(self, key: bytes, *, digests: Callable[[], frozenset[str]], is_valid: Callable[[str], bool]) -> None:
        self._key = key
        self._digests = digests
        """Of all tokens, possibly including expired ones."""
        self._is_valid = is_valid
        self._cached: tuple[frozenset[str], dict[str, str]] = (frozenset(), {})
        """The digests at the last check, and the same by label."""

    def of(self, token_digest: str) -> str:
        mac = hmac.new(self._key, b"askback page name\0" + token_digest.encode(), hashlib.sha256).digest()
        return base64.b32encode(mac).decode().lower()[:_CHARACTERS]

    def has(self, label: str) -> bool:
        """Whether it is the label of a valid token."""
        token_digest = self._cached[1].get(label) or self._current().get(label)
        return token_digest is not None and self._is_valid(token_digest)

    def _current(self) -> dict[str, str]:
        """Computed again only if the tokens have changed: anybody can send unknown labels."""
        digests, by_label = self._cached
        if (found := self._digests()) != digests:
            by_label = {self.of(each): each for each in found}
            self._cached = (found, by_label)
        return by_label
