"""The messages of notifications: one module for each kind of receiver, and what they all say."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any, assert_never

from askback.core.webhooks import Webhook, WebhookKind
from askback.notifications.messages.http_request import HttpRequest
from askback.notifications.messages.mail import Mail, mail
from askback.notifications.messages.notice import Notice
from askback.notifications.messages.ntfy import ntfy
from askback.notifications.messages.slack import slack
from askback.notifications.messages.standard import standard
from askback.notifications.sender import Failed, Refused

Message = HttpRequest | Mail


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageStyle:
    """The settings for the content of messages."""

    answer_buttons: bool = False
    """Whether a button may answer at once. The service that carries the message could then answer, too."""
    sender: str | None = None
    """Of e-mails."""
    zone: tzinfo = UTC
    """In which deadlines are shown."""


def message(
    webhook: Webhook, message_id: str, now: datetime, *, document: Any, notice: Notice, style: MessageStyle
) -> Message:
    """The message for this webhook. `document` is for programs, and `notice` is for people. Raises `Refused`."""
    match webhook.kind:
        case WebhookKind.STANDARD:
            return standard(webhook, message_id, now, document)
        case WebhookKind.NTFY:
            return ntfy(webhook, notice, answer_buttons=style.answer_buttons)
        case WebhookKind.SLACK:
            return slack(webhook, notice)
        case WebhookKind.EMAIL:
            if style.sender is None:
                raise Refused("the settings have no notifications.email.sender")
            return mail(webhook, notice, message_id, style.sender, now)
        case WebhookKind.TELEGRAM:
            raise Failed("this server has no telegram.token; another server has to send it")
        case WebhookKind.PUSH:
            raise Refused("a push is encrypted for its device")
        case kind:
            assert_never(kind)
