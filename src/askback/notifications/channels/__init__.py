"""The channels: webhooks, ntfy, Slack, e-mail, web push, Telegram. Each kind is one module, or one package.

A channel composes a message, sends it and judges the response. It does not know what is due or when to retry. Start with
`base`. A new kind is a module here, a line in `open_channels`, and a `WebhookKind`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import ChainMap
from collections.abc import AsyncIterator, Mapping, MutableMapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import partial

from askback.core.webhooks import Webhook, WebhookKind
from askback.notifications.channels import ntfy, slack
from askback.notifications.channels.base import Channel, DueMessage, Failed, Message, Refused, Response
from askback.notifications.channels.email import EmailChannel, MailSender, MailServer
from askback.notifications.channels.webhook import HttpChannel, WebhookSender, standard_request
from askback.notifications.notice import Notice
from askback.text.formatting import rfc3339

RETRIES_SEC = (5.0, 30.0, 120.0, 600.0, 3600.0, 3 * 3600.0, 6 * 3600.0, 12 * 3600.0)
"""The delay after each failed attempt, about 22 hours in all."""
_TEST_TITLE = "Test message"
_TEST_TEXT = "Askback can reach you here. The questions of your runs will arrive like this message."


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryPolicy:
    webhooks: tuple[Webhook, ...] = ()
    allow_private: bool = False
    link: str | None = None
    """The URL of a run for people, with `{run}` for its id."""
    retries_sec: Sequence[float] = RETRIES_SEC
    answer_buttons: bool = False
    """Whether a button may answer at once. The service that carries the message could then answer, too."""
    zone: tzinfo = UTC
    """In which deadlines are shown."""
    mail_server: MailServer | None = None
    mail_sender: str | None = None
    """The address that e-mails come from."""

    def run_url(self, run_id: str) -> str | None:
        return None if self.link is None else self.link.replace("{run}", run_id)


class _Missing(Channel):
    """A kind that this instance cannot send, but another one may."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    async def notify(self, due: DueMessage) -> Response:
        raise Failed(self._reason)

    async def send(self, message: Message) -> Response:
        raise Failed(self._reason)


@asynccontextmanager
async def open_channels(
    policy: DeliveryPolicy, further: MutableMapping[WebhookKind, Channel] | None = None
) -> AsyncIterator[Mapping[WebhookKind, Channel]]:
    """The channel of every kind. Those in `further` are used first, also if they are added later."""
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(WebhookSender(allow_private=policy.allow_private))
        mail = None
        if policy.mail_server is not None:
            mail = await stack.enter_async_context(MailSender(server=policy.mail_server))
        own: dict[WebhookKind, Channel] = {
            WebhookKind.STANDARD: HttpChannel(http, standard_request),
            WebhookKind.NTFY: HttpChannel(
                http, partial(ntfy.request, answer_buttons=policy.answer_buttons), ntfy.digest_request
            ),
            WebhookKind.SLACK: HttpChannel(http, slack.request, slack.digest_request),
            WebhookKind.EMAIL: EmailChannel(mail, policy.mail_sender),
            WebhookKind.TELEGRAM: _Missing("this server has no telegram.token; another server has to send it"),
            WebhookKind.PUSH: _Missing("this program sends no pushes"),
        }
        yield ChainMap({} if further is None else further, own)


# Test messages: whether the channels of the settings work, and what is wrong otherwise.


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
            notice=Notice(title=_TEST_TITLE, text=_TEST_TEXT, run_url=url),
            document={"type": "webhook.test", "timestamp": rfc3339(now), "data": {"message": _TEST_TEXT}},
        )
        try:
            response = await channel.send(message)
        except (Refused, Failed) as error:
            return Trial(webhook=webhook, status=None, error=str(error))
        return Trial(webhook=webhook, status=response.status, error=response.problem)

    async with open_channels(policy, channels) as opened:
        return await asyncio.gather(*(attempt(opened[webhook.kind], webhook) for webhook in webhooks))
