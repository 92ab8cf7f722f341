"""Test messages: whether the channels of the settings work, and what is wrong otherwise."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from askback.core.webhooks import Webhook, WebhookKind
from askback.notifications.delivery import DeliveryPolicy, Senders
from askback.notifications.mail_sender import MailResponse
from askback.notifications.messages import Message, message
from askback.notifications.messages.notice import Notice
from askback.notifications.sender import Failed, Refused, Response
from askback.text.formatting import rfc3339

_TITLE = "Test message"
_TEXT = "Askback can reach you here. The questions of your runs will arrive like this message."


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The result of one test message. `status` is that of HTTP or SMTP, if the receiver responded."""

    webhook: Webhook
    status: int | None
    error: str | None

    @property
    def ok(self) -> bool:
        return self.error is None


class TrialChannel(Protocol):
    """Sends the test messages of one kind in another way than a POST request to their address."""

    async def send_test(self, webhook: Webhook) -> Response:
        """Raises `Refused` or `Failed`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """Test messages to webhooks, without retries."""

    policy: DeliveryPolicy
    now: datetime
    url: str | None = None
    """Where a tap on a message leads."""
    channels: Mapping[WebhookKind, TrialChannel] = field(default_factory=dict)

    async def send(self, webhooks: Sequence[Webhook]) -> Sequence[Trial]:
        """Send one message to each webhook."""
        async with Senders(self.policy) as senders:
            return await asyncio.gather(*(self._try(senders, webhook) for webhook in webhooks))

    async def _try(self, senders: Senders, webhook: Webhook) -> Trial:
        try:
            if (channel := self.channels.get(webhook.kind)) is not None:
                response: Response | MailResponse = await channel.send_test(webhook)
            else:
                response = await senders.send(self._message(webhook))
        except (Refused, Failed) as error:
            return Trial(webhook=webhook, status=None, error=str(error))
        return Trial(webhook=webhook, status=response.status, error=_problem(response))

    def _message(self, webhook: Webhook) -> Message:
        document = {"type": "webhook.test", "timestamp": rfc3339(self.now), "data": {"message": _TEXT}}
        notice = Notice(title=_TITLE, text=_TEXT, run_url=self.url)
        message_id = f"msg_test_{secrets.token_hex(8)}"
        return message(webhook, message_id, self.now, document=document, notice=notice, style=self.policy.style)


def _problem(response: Response | MailResponse) -> str | None:
    if 200 <= response.status < 300:
        return None
    if isinstance(response, MailResponse):
        return response.problem
    said = f": {response.reason}" if response.reason else ""
    return f"the receiver returned {response.status}{said}"
