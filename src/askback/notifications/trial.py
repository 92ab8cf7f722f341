"""Test messages: whether the channels of the settings work, and what is wrong otherwise."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from askback.core.webhooks import Webhook, WebhookKind
from askback.notifications.channels import DeliveryPolicy, open_channels
from askback.notifications.channels.base import Channel, Failed, Message, Refused
from askback.notifications.notice import Notice
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


async def send_trials(
    policy: DeliveryPolicy,
    webhooks: Sequence[Webhook],
    now: datetime,
    *,
    url: str | None = None,
    channels: MutableMapping[WebhookKind, Channel] | None = None,
) -> Sequence[Trial]:
    """Send one test message to each webhook, without retries. `url`: where a tap on it leads."""

    async def attempt(channel: Channel, webhook: Webhook) -> Trial:
        message = Message(
            webhook=webhook,
            id=f"msg_test_{secrets.token_hex(8)}",
            at=now,
            notice=Notice(title=_TITLE, text=_TEXT, run_url=url),
            document={"type": "webhook.test", "timestamp": rfc3339(now), "data": {"message": _TEXT}},
        )
        try:
            response = await channel.send(message)
        except (Refused, Failed) as error:
            return Trial(webhook=webhook, status=None, error=str(error))
        return Trial(webhook=webhook, status=response.status, error=response.problem)

    async with open_channels(policy, channels) as opened:
        return await asyncio.gather(*(attempt(opened[webhook.kind], webhook) for webhook in webhooks))
