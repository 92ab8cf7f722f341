"""Links to one question.

The holder of a link may read and answer its question, and nothing else. A link is signed, so that a forged one is
refused without a look at what is stored. It is also stored with its run, so that it can be listed and revoked. A link that a caller
created ends with the caller's token. A link in a notification belongs to its recipient.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import logging
import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from askback.core.errors import AskbackError, Conflict, NotFound, RefusalCode, Unavailable
from askback.core.runs import Run
from askback.fs.records import Collection as RecordCollection
from askback.store.base import Store

log = logging.getLogger(__name__)

ANSWERS = "/v1/answers/"
"""Where the holder of a link answers its question, without a token."""
ANSWER_PAGE = "/answers/"
"""The page for the same, with its static files below it."""
AFTERWARDS = timedelta(days=7)
"""How long after its question was closed a link tells how it ended, unless the link itself ends before."""
MAX_PER_RUN = 100
_LONGEST = timedelta(days=3650)
"""Of a link to a question without a deadline. The link ends when the question is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The content of a link."""

    run_id: str
    interaction_id: str
    expires_at: datetime
    holder: str = ""
    """Who answers with it: its recipient, or the token that created it."""
    id: str = ""
    """Public; grants no access."""
    creator: str | None = None
    """The token that created it. None: the server, for a recipient in its settings."""

    @property
    def origin(self) -> str:
        """For the audit log. No token has a name with a space."""
        return f"link {self.id}, created by {self.creator or 'the server'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Creator:
    """The token that created a run. It may answer questions."""

    token: str
    token_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipient:
    """Who gets a notification."""

    name: str
    key: str
    """The same for every notification of this recipient, and different from that of every other one."""
    creator: Creator | None = None
    """The token that named the recipient. The link ends with it. None: the settings name the recipient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLink:
    """A link as it is stored with its run."""

    id: str
    """Public; grants no access."""
    digest: str
    interaction_id: str
    token: str | None
    """The token that created it. None if the settings name its recipient."""
    token_digest: str
    created_at: datetime
    expires_at: datetime
    recipient: str | None = None
    """Who it is for. None: for the token that created it."""
    revoked: bool = False
    """Only of a link with a recipient: the next notification of the same recipient must not create it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Creates, reads and revokes links."""

    key: bytes
    clock: Callable[[], datetime]
    stored: Callable[[str], RecordCollection[StoredLink]]
    """The links of a run."""
    is_token: Callable[[str], bool]
    """Whether the token with this digest is valid."""

    def make(self, link: Link, *, token: str, token_digest: str) -> tuple[str, StoredLink]:
        """Create a link with this token. Blocks: call it in a thread."""
        link_id = secrets.token_hex(4)
        text = self._text(link, link_id)
        with self.stored(link.run_id).changing() as links:
            return text, self._add(
                links, link, link_id, Creator(token=token, token_digest=token_digest), link.holder or None
            )

    def make_for(self, link: Link, recipient: Recipient) -> str | None:
        """The link of this recipient to this question: the same for every call. None if it was revoked. Blocks."""
        fields = json.dumps([link.run_id, link.interaction_id, recipient.key]).encode()
        link_id = hmac.new(self.key, b"askback link of a recipient\0" + fields, hashlib.sha256).hexdigest()[:8]
        text = self._text(link, link_id)
        with self.stored(link.run_id).changing() as links:
            if (stored := links.get(_digest(text))) is not None:
                return None if stored.revoked else text
            self._add(links, link, link_id, recipient.creator, recipient.name)
        return text

    def _add(
        self, links: dict[str, StoredLink], link: Link, link_id: str, creator: Creator | None, recipient: str | None
    ) -> StoredLink:
        self._make_room(links, link.interaction_id)
        digest = _digest(self._text(link, link_id))
        links[digest] = StoredLink(
            id=link_id,
            digest=digest,
            interaction_id=link.interaction_id,
            token=None if creator is None else creator.token,
            token_digest="" if creator is None else creator.token_digest,
            created_at=self.clock(),
            expires_at=link.expires_at,
            recipient=recipient,
        )
        return links[digest]

    async def current(self, text: str, *, exactly: bool = False) -> None:
        """Wait until `read` knows what is stored of this link, without blocking."""
        link = self._signed(text)
        if link is not None:
            await self.stored(link.run_id).current(exactly=exactly)

    def read(self, text: str) -> Link | None:
        """The content; None if the link is forged, expired or revoked, or its token is."""
        link = self._signed(text)
        if link is None or self.clock() >= link.expires_at:
            return None
        try:
            stored = self.stored(link.run_id).read().get(_digest(text))
            if stored is None or not self._is_valid(stored):
                return None
        except Unavailable as error:
            log.error("cannot read links: %s", error.message)
            return None
        return replace(link, holder=stored.recipient or stored.token or "", id=stored.id, creator=stored.token)

    def all(self, run_id: str, interaction_id: str) -> list[StoredLink]:
        """The valid links to this question, oldest first. Blocks."""
        found = [each for each in self.stored(run_id).read().values() if each.interaction_id == interaction_id]
        return sorted(filter(self._is_valid, found), key=lambda each: each.created_at)

    def revoke(self, run_id: str, ids: Collection[str]) -> None:
        """Revoke all of these links, or none. Blocks."""
        with self.stored(run_id).changing() as links:
            found = {each.id: each for each in links.values() if not each.revoked}
            for link_id in ids:
                if link_id not in found:
                    raise NotFound(RefusalCode.LINK_NOT_FOUND, f"the question has no link {link_id!r}")
                link = found[link_id]
                if link.recipient is None:
                    del links[link.digest]
                else:
                    links[link.digest] = replace(link, revoked=True)

    def _make_room(self, links: dict[str, StoredLink], interaction_id: str) -> None:
        full = len(links) >= MAX_PER_RUN
        for each in list(links.values()):
            ended = each.expires_at <= self.clock() or not (each.revoked or self._is_valid(each))
            if ended or (full and each.interaction_id != interaction_id):
                del links[each.digest]
        if len(links) >= MAX_PER_RUN:
            message = f"this question already has {MAX_PER_RUN} links; revoke some, or wait until they expire"
            raise Conflict(RefusalCode.STATE_UNSUITABLE, message)

    def _is_valid(self, link: StoredLink) -> bool:
        if link.revoked or link.expires_at <= self.clock():
            return False
        return link.token is None or self.is_token(link.token_digest)

    def _text(self, link: Link, link_id: str) -> str:
        fields = [link.run_id, link.interaction_id, int(link.expires_at.timestamp()), link_id]
        body = json.dumps(fields, separators=(",", ":")).encode()
        return f"{_encoded(body)}.{_encoded(self._sign(body))}"

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


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLinks:
    """Makes the links in notifications. Each leads to one question, and is valid while the question is pending."""

    links: Links
    store: Store
    public_url: str
    creator: Callable[[Run], Creator | None]
    """The token that created the run, if it is still valid and may answer questions."""

    async def answer_link(self, run: Run, recipient: Recipient) -> str | None:
        """The URL of the page for the pending question of this run. The same for every call with the same recipient.

        None if the question is closed, or if the link was revoked.
        """
        asked = run.pending_interaction
        try:
            pending = (await self.store.get(run.id)).pending_interaction
            if asked is None or pending is None or pending.interaction_id != asked.interaction_id:
                return None
            # After the deadline it still tells how the question ended. A link contains whole seconds: rounded up.
            ends_at = (run.wait_deadline_at or asked.asked_at + _LONGEST) + AFTERWARDS
            expires_at = ends_at + timedelta(microseconds=-ends_at.microsecond % 1_000_000)
            link = Link(run_id=run.id, interaction_id=asked.interaction_id, expires_at=expires_at)
            text = await asyncio.to_thread(self.links.make_for, link, recipient)
        except (AskbackError, OSError) as error:
            log.warning("a notification of run %s has no link: %s", run.id, error)
            return None
        return None if text is None else self.public_url + ANSWER_PAGE + text


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    return base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
