"""The Telegram bot of the settings. Nothing of it is imported if there is none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from askback.core.webhooks import Webhook, WebhookKind
from askback.runs.service import Service
from askback.settings.model import Settings
from askback.store.base import Store

if TYPE_CHECKING:
    from askback.notifications.telegram.bot import TelegramBot
    from askback.notifications.telegram.people import Chat
    from askback.notifications.trial import TrialChannel

LOCK = "telegram.lock"


def chat_webhooks(settings: Settings) -> Sequence[Webhook]:
    """The entries of the chats in the outbox."""
    telegram = settings.telegram
    if telegram.token is None:
        return ()
    from askback.notifications.telegram.channel import webhook_of

    usual = settings.notifications.reminders.policy
    chats = [chat for chat in _chats(settings) if chat.notify]
    return [webhook_of(chat, telegram.api_url, telegram.states, usual) for chat in chats]


def make_bot(settings: Settings, service: Service, store: Store, clock: Callable[[], datetime]) -> TelegramBot | None:
    telegram = settings.telegram
    if telegram.token is None:
        return None
    from askback.notifications.telegram.answering import Answering
    from askback.notifications.telegram.api import BotApi
    from askback.notifications.telegram.bot import TelegramBot
    from askback.notifications.telegram.channel import TelegramChannel
    from askback.notifications.telegram.closing import Closing
    from askback.notifications.telegram.people import People
    from askback.notifications.telegram.texts import Texts

    api = BotApi(token=telegram.token, url=telegram.api_url)
    people, texts = People(_chats(settings)), Texts(telegram.language)
    closing = Closing(store=store, api=api, texts=texts)
    return TelegramBot(
        api=api,
        lock_path=settings.data_dir / "locks" / LOCK,
        closing=closing,
        channel=TelegramChannel(
            store=store, api=api, texts=texts, closing=closing, clock=clock, zone=settings.notifications.zone
        ),
        answering=Answering(service=service, store=store, api=api, people=people, texts=texts, clock=clock),
    )


@asynccontextmanager
async def trial_channels(settings: Settings) -> AsyncIterator[Mapping[WebhookKind, TrialChannel]]:
    """What sends test messages to the chats of the settings."""
    telegram = settings.telegram
    if telegram.token is None:
        yield {}
        return
    from askback.notifications.telegram.api import BotApi
    from askback.notifications.telegram.channel import TelegramTrial
    from askback.notifications.telegram.texts import Texts

    api = BotApi(token=telegram.token, url=telegram.api_url)
    try:
        yield {WebhookKind.TELEGRAM: TelegramTrial(api=api, texts=Texts(telegram.language))}
    finally:
        await api.close()


def _chats(settings: Settings) -> Sequence[Chat]:
    from askback.notifications.telegram.people import Chat

    return [
        Chat(id=each.id, name=each.name, notify=each.notify, labels=each.labels) for each in settings.telegram.chats
    ]
