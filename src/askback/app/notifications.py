"""What sends notifications and digests: the channels of the settings, links to questions, and the Telegram bot.

Nothing of the bot is imported if there is none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, MutableMapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from askback.access.tokens import TokenDirectory, Tokens
from askback.core.access import MAIN, AccessScope
from askback.core.interactions import APPROVAL
from askback.core.runs import Run
from askback.core.webhooks import Webhook, WebhookKind
from askback.fs.records import Records
from askback.notifications.channels import DeliveryPolicy
from askback.notifications.channels.email import MailServer
from askback.runs.links import AnswerLinks, Creator, Links, StoredLink
from askback.runs.service import Service
from askback.settings.model import Settings, webhooks
from askback.store.base import Store
from askback.workspace.workspaces import Workspaces

if TYPE_CHECKING:
    from askback.notifications.channels.base import Channel
    from askback.notifications.channels.telegram.answering import Chat
    from askback.notifications.channels.telegram.bot import TelegramBot

_BOT_LOCK = "telegram.lock"


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
        answer_buttons=notifications.allow_answer_buttons,
        zone=notifications.zone,
        mail_server=server,
        mail_sender=email.sender,
    )


def chat_webhooks(settings: Settings) -> Sequence[Webhook]:
    telegram = settings.telegram
    if telegram.token is None:
        return ()
    from askback.notifications.channels.telegram.channel import webhook_of

    usual = settings.notifications.reminders.policy
    chats = [chat for chat in _chats(settings) if chat.notify]
    return [webhook_of(chat, telegram.api_url, telegram.states, usual) for chat in chats]


def make_bot(settings: Settings, service: Service, store: Store, clock: Callable[[], datetime]) -> TelegramBot | None:
    telegram = settings.telegram
    if telegram.token is None:
        return None
    from askback.notifications.channels.telegram.answering import Answering, people_of
    from askback.notifications.channels.telegram.api import BotApi
    from askback.notifications.channels.telegram.bot import TelegramBot
    from askback.notifications.channels.telegram.channel import Closing, TelegramChannel
    from askback.notifications.channels.telegram.texts import Texts

    api = BotApi(token=telegram.token, url=telegram.api_url)
    people, texts = people_of(_chats(settings)), Texts(telegram.language)
    closing = Closing(store=store, api=api, texts=texts)
    return TelegramBot(
        api=api,
        lock_path=settings.data_dir / "locks" / _BOT_LOCK,
        closing=closing,
        channel=TelegramChannel(store=store, api=api, texts=texts, closing=closing),
        answering=Answering(service=service, store=store, api=api, people=people, texts=texts, clock=clock),
    )


@asynccontextmanager
async def trial_channels(settings: Settings) -> AsyncIterator[MutableMapping[WebhookKind, Channel]]:
    """What sends test messages to the chats of the settings."""
    telegram = settings.telegram
    if telegram.token is None:
        yield {}
        return
    from askback.notifications.channels.telegram.api import BotApi
    from askback.notifications.channels.telegram.channel import TelegramTrial
    from askback.notifications.channels.telegram.texts import Texts

    api = BotApi(token=telegram.token, url=telegram.api_url)
    try:
        yield {WebhookKind.TELEGRAM: TelegramTrial(api=api, texts=Texts(telegram.language))}
    finally:
        await api.close()


def _chats(settings: Settings) -> Sequence[Chat]:
    from askback.notifications.channels.telegram.answering import Chat

    return [
        Chat(id=each.id, name=each.name, notify=each.notify, labels=each.labels) for each in settings.telegram.chats
    ]


# Tokens, and the links to questions that are made on behalf of one.


def make_tokens(settings: Settings, records: Records, clock: Callable[[], datetime]) -> TokenDirectory:
    """The server's own token, created if there is none, and the API tokens."""
    own = settings.server.token or records.secret("token")
    return TokenDirectory(token=own, api_tokens=Tokens(records, clock))


def make_links(
    records: Records, workspaces: Workspaces, tokens: TokenDirectory, clock: Callable[[], datetime]
) -> Links:
    return Links(
        key=records.secret("link-key").encode(),
        clock=clock,
        stored=lambda run_id: records.of_run(run_id, workspaces.of(run_id).root, "links", StoredLink),
        is_token=lambda token_digest: tokens.holder(token_digest) is not None,
    )


def make_answer_links(
    settings: Settings, store: Store, records: Records, workspaces: Workspaces, clock: Callable[[], datetime]
) -> AnswerLinks | None:
    """None without `server.public_url`: nobody could follow a link."""
    if settings.server.public_url is None:
        return None
    tokens = make_tokens(settings, records, clock)

    def creator(run: Run) -> Creator | None:
        # A later token of the same name is another one.
        earlier = [each for each in tokens.api_tokens.all() if each.created_at <= run.created_at]
        digests = {each.name: each.digest for each in earlier} | {MAIN: tokens.main_digest}
        grant = tokens.holder(digests.get(run.created_by or "", ""))
        pending = run.pending_interaction
        scope = AccessScope.APPROVE if pending is not None and pending.kind == APPROVAL else AccessScope.ANSWER
        if grant is None or not grant.allows(scope):
            return None
        return Creator(token=grant.name, token_digest=grant.token_digest)

    return AnswerLinks(
        links=make_links(records, workspaces, tokens, clock),
        store=store,
        public_url=settings.server.public_url.lower().rstrip("/"),
        creator=creator,
    )
