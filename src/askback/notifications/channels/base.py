"""What every channel is: it sends messages to the receivers of one kind, and says how each of them responded.

A response says whether the message was accepted and, if not, whether a retry can help. The outbox, digests and test messages
all rely on that, and know no status of HTTP or SMTP.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from typing import Any

from askback.core.runs import RunState
from askback.core.webhooks import Attempt, DueDelivery, Webhook
from askback.notifications.notice import Digest, Notice, reminder_prefix
from askback.wire.deliveries import Notification

_GONE = 410


class Refused(Exception):
    """The message cannot be sent, or must not be. A retry would not help."""


class Failed(Exception):
    """The attempt failed. The message does not contain the URL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """How the receiver responded. The message was accepted unless there is a `problem`."""

    status: int
    """Of HTTP or SMTP."""
    problem: str | None = None
    final: bool = False
    """Whether a retry would not help."""
    retry_after: str | None = None
    """The `Retry-After` header."""

    @classmethod
    def of_http(cls, status: int, *, retry_after: str | None = None, reason: str | None = None) -> Response:
        """`reason`: what the receiver says about a failure."""
        if 200 <= status < 300:
            return cls(status=status)
        if status == _GONE:
            return cls(status=status, problem=f"the receiver is gone ({status})", final=True)
        said = reason or ("redirects are not followed" if 300 <= status < 400 else None)
        problem = f"the receiver returned {status}" + (f": {said}" if said else "")
        return cls(status=status, problem=problem, retry_after=retry_after)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    webhook: Webhook
    id: str
    """The same for every attempt."""
    at: datetime
    notice: Notice
    """For people."""
    document: Any
    """For programs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DueMessage:
    """A delivery that is due. A link to the question is created only for a message that has one."""

    due: DueDelivery
    at: datetime
    answer_url: Callable[[], Awaitable[str | None]]
    """Creates a link to the question, for its recipient alone. None if there can be none."""
    run_url: str | None = None
    zone: tzinfo = UTC
    """In which deadlines are shown."""

    async def message(self) -> Message:
        delivery, run = self.due.delivery, self.due.run
        answer_url = await self.answer_url() if delivery.new is RunState.WAITING_USER else None
        notice = Notice.of(run, delivery.new, answer_url=answer_url, run_url=self.run_url, zone=self.zone)
        return Message(
            webhook=delivery.webhook,
            id=delivery.id,
            at=self.at,
            notice=replace(notice, title=reminder_prefix(self.due, self.at) + notice.title),
            document=Notification.of(self.due, answer_url=answer_url),
        )


class Channel:
    """Sends to the receivers of one kind. Everything that sends raises `Refused` or `Failed`."""

    async def notify(self, due: DueMessage) -> Response:
        return await self.send(await due.message())

    async def send(self, message: Message) -> Response:
        raise Refused(f"there are no messages of this form for the kind {message.webhook.kind}")

    async def send_digest(self, webhook: Webhook, digest: Digest, message_id: str) -> Response:
        """`message_id` is the same for every attempt."""
        raise Refused(f"there is no digest for the kind {webhook.kind}")

    # What a channel has whose receivers are not those of the settings.

    async def receivers(self) -> Sequence[Webhook]:
        """The further receivers that the channel knows itself."""
        return ()

    def owners(self) -> Mapping[str, str]:
        """The token that added each of these receivers, by the URL of the receiver."""
        return {}

    async def record_attempt(self, webhook: Webhook, attempt: Attempt) -> bool:
        """Called after each attempt. Returns whether the receivers have changed."""
        return False

    async def close(self) -> None:
        """Called when no more is sent."""
