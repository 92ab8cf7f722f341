"""How notifications and digests are sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from askback.app.parts import Parts
from askback.app.telegram import chat_webhooks
from askback.core.webhooks import WebhookKind
from askback.notifications.delivery import DeliveryPolicy, Notifications
from askback.notifications.digest_ledger import DigestLedger
from askback.notifications.digest_times import DigestTimes
from askback.notifications.digests import Digests
from askback.notifications.mail_sender import MailServer
from askback.notifications.messages import MessageStyle
from askback.runs.links import AnswerLinks
from askback.settings.model import Settings, webhooks

if TYPE_CHECKING:
    from askback.notifications.telegram.bot import TelegramBot


def _answer_links(parts: Parts) -> AnswerLinks | None:
    from askback.app.links import make_answer_links

    return make_answer_links(parts.settings, parts.store, parts.records, parts.workspaces, parts.clock)


def make_notifications(parts: Parts, telegram: TelegramBot | None) -> Notifications:
    return Notifications(
        store=parts.store,
        policy=delivery_policy(parts.settings),
        clock=parts.clock,
        answer_links=_answer_links(parts),
        channels={} if telegram is None else {WebhookKind.TELEGRAM: telegram.channel},
    )


def make_digests(parts: Parts) -> Digests:
    digest = parts.settings.notifications.digest
    return Digests(
        store=parts.store,
        policy=delivery_policy(parts.settings),
        times=DigestTimes(at=digest.times, zone=digest.zone) if digest.at else None,
        ledger=DigestLedger(parts.records),
        clock=parts.clock,
        answer_links=_answer_links(parts),
    )


def delivery_policy(settings: Settings) -> DeliveryPolicy:
    notifications, email = settings.notifications, settings.notifications.email
    server = (
        None
        if email.url is None
        else MailServer(url=email.url, user=email.user, password=email.password, allow_plaintext=email.allow_plaintext)
    )
    return DeliveryPolicy(
        webhooks=(*webhooks(settings), *chat_webhooks(settings)),
        allow_private=notifications.allow_private,
        link=notifications.link,
        style=MessageStyle(
            answer_buttons=notifications.allow_answer_buttons, sender=email.sender, zone=notifications.zone
        ),
        mail_server=server,
    )
