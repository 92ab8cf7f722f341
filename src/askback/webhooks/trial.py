"""Test messages: whether the channels of the settings work, and what is wrong otherwise."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from askback.core.webhooks import Webhook
from askback.text.formatting import rfc3339
from askback.webhooks.delivery import DeliveryPolicy, Senders
from askback.webhooks.mail_sender import MailResponse
from askback.webhooks.messages import message
from askback.webhooks.messages.notice import Notice
from askback.webhooks.sender import Failed, Refused

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


async def try_webhooks(
    policy: DeliveryPolicy, webhooks: Sequence[Webhook], now: datetime, *, url: str | None = None
) -> Sequence[Trial]:
    """Send one message to each webhook, without retries. `url` is where a tap on the message leads."""
    async with Senders(policy) as senders:
        return await asyncio.gather(*(_try(senders, policy, webhook, now, url) for webhook in webhooks))


async def _try(senders: Senders, policy: DeliveryPolicy, webhook: Webhook, now: datetime, url: str | None) -> Trial:
    document = {"type": "webhook.test", "timestamp": rfc3339(now), "data": {"message": _TEXT}}
    notice = Notice(title=_TITLE, text=_TEXT, run_url=url)
    message_id = f"msg_test_{secrets.token_hex(8)}"
    try:
        sent = message(webhook, message_id, now, document=document, notice=notice, style=policy.style)
        response = await senders.send(sent)
    except (Refused, Failed) as error:
        return Trial(webhook=webhook, status=None, error=str(error))
    status = response.status
    if 200 <= status < 300:
        return Trial(webhook=webhook, status=status, error=None)
    said = f" {response.text}" if isinstance(response, MailResponse) else ""
    return Trial(webhook=webhook, status=status, error=f"the receiver returned {status}{said}".rstrip())
