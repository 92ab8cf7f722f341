"""Push subscriptions: the devices that are notified of questions. Each is bound to a token, and to the session that added it.

What the token may see is looked up for every push.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from askback.access.grants import Grant, Issued
from askback.core.access import AccessScope
from askback.core.errors import Conflict, NotFound, RefusalCode, Unavailable
from askback.core.runs import Run
from askback.fs.records import Records
from askback.notifications.channels.base import Failed, Refused
from askback.notifications.channels.push import PushChannel
from askback.notifications.channels.webhook import WebhookSender

if TYPE_CHECKING:
    from askback.notifications.channels.push_encryption import Recipient

SCOPES = (AccessScope.READ, AccessScope.ANSWER)
"""A token with one of these may see questions."""
MAX_PER_TOKEN = 20
_ACCURACY = timedelta(minutes=1)
"""Of the time of the last push: writing it for each push would cost more than the push."""
_ID_CHARACTERS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    digest: str
    """Of the endpoint, which is a secret of the browser and its push service."""
    endpoint: str = field(repr=False)
    p256dh: str
    auth: str = field(repr=False)
    token_digest: str
    session_id: str | None
    """None if a program added it with the token itself."""
    device: str
    created_at: datetime
    last_success_at: datetime | None = None

    @property
    def id(self) -> str:
        """Public; grants no access."""
        return self.digest[:_ID_CHARACTERS]

    @property
    def service(self) -> str:
        return urlsplit(self.endpoint).netloc

    @property
    def recipient(self) -> Recipient:
        from askback.notifications.channels.push_encryption import Recipient

        return Recipient.of(self.p256dh, self.auth)


class Subscriptions(Issued[Subscription]):
    noun, missing = "subscription", RefusalCode.SUBSCRIPTION_NOT_FOUND
    collection, record = "push-subscriptions", Subscription

    def __init__(
        self,
        records: Records,
        clock: Callable[[], datetime],
        *,
        holder: Callable[[str], Grant | None],
        is_session: Callable[[str], bool],
    ) -> None:
        super().__init__(records, clock, holder)
        self._is_session = is_session

    def of(self, token_digest: str) -> list[Subscription]:
        """The valid subscriptions of a token, newest first."""
        return [each for each in reversed(self.all()) if each.token_digest == token_digest]

    def find(self, subscription_id: str, token_digest: str) -> Subscription:
        for each in self.of(token_digest):
            if each.id == subscription_id:
                return each
        raise NotFound(self.missing, f"there is no {self.noun} {subscription_id!r}")

    def add(self, made: Subscription) -> None:
        """Add or replace a subscription. Blocking."""
        with self._stored.changing() as stored:
            self._prune(stored)
            old = stored.get(made.digest)
            # Only the browser itself knows the secret. Another caller must not take its subscription over.
            if old is not None and not hmac.compare_digest(old.auth.encode(), made.auth.encode()):
                raise Conflict(RefusalCode.STATE_UNSUITABLE, "this endpoint belongs to another subscription")
            others = [each for each in stored.values() if each.token_digest == made.token_digest and each is not old]
            if len(others) >= MAX_PER_TOKEN:
                message = f"this token already has {MAX_PER_TOKEN} devices; remove one first"
                raise Conflict(RefusalCode.STATE_UNSUITABLE, message)
            same_token = old is not None and old.token_digest == made.token_digest
            stored[made.digest] = replace(made, last_success_at=old.last_success_at) if old and same_token else made

    # What the sender of pushes needs.

    def endpoints(self) -> Sequence[str]:
        return sorted(each.endpoint for each in self._stored.read().values())

    def owners(self) -> Mapping[str, str]:
        try:
            stored = self._stored.read().values()
            grants = [(each.endpoint, self._holder(each.token_digest)) for each in stored]
        except Unavailable:
            return {}
        return {endpoint: grant.name for endpoint, grant in grants if grant is not None}

    def recipient(self, endpoint: str, run: Run) -> Recipient:
        stored = self._stored.read().get(digest(endpoint))
        if stored is None or not self._is_valid(stored):
            raise Refused("the token or the session of this device has ended")
        grant = self._holder(stored.token_digest)
        if grant is None or not grant.labels.items() <= run.labels.items():
            raise Refused("the token of this device may not see the run")
        return stored.recipient

    def has_ended(self, endpoint: str) -> bool:
        stored = self._stored.read().get(digest(endpoint))
        return stored is None or not self._is_valid(stored)

    def succeeded(self, endpoint: str) -> None:
        now, stored = self._clock(), self._stored.read().get(digest(endpoint))
        if stored is None or (stored.last_success_at is not None and now - stored.last_success_at < _ACCURACY):
            return
        with self._stored.changing() as changed:
            if stored.digest in changed:
                changed[stored.digest] = replace(changed[stored.digest], last_success_at=now)

    def end(self, endpoint: str) -> None:
        with self._stored.changing() as stored:
            stored.pop(digest(endpoint), None)

    def _is_valid(self, subscription: Subscription) -> bool:
        """Raises `Unavailable` if the tokens or sessions cannot be read: then no device may be removed."""
        grant = self._holder(subscription.token_digest)
        if grant is None or not grant.allows(*SCOPES):
            return False
        return subscription.session_id is None or self._is_session(subscription.session_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """What the routes need: the subscriptions, the channel that uses them, and who must know of a change."""

    subscriptions: Subscriptions
    channel: PushChannel
    changed: Callable[[], Awaitable[None]]
    """Called after a subscription was added or removed."""
    allow_private: bool
    clock: Callable[[], datetime]

    async def test(self, subscription: Subscription) -> str | None:
        """Send a test push at once. Returns why it was not accepted."""
        request = self.channel.test_request(subscription.endpoint, subscription.recipient, self.clock())
        try:
            async with WebhookSender(allow_private=self.allow_private) as sender:
                response = await sender.post(subscription.endpoint, request.headers, request.body)
        except (Refused, Failed) as error:
            return str(error)
        return None if 200 <= response.status < 300 else f"the push service returned {response.status}"


def digest(endpoint: str) -> str:
    return hashlib.sha256(endpoint.encode()).hexdigest()
