"""Sends notifications as messages. The outbox says what is due, and repeats what fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any
from urllib.parse import urlsplit

from askback.core.errors import NotFound
from askback.core.runs import RunState
from askback.core.webhooks import ChatMessage, DueDelivery, Reminders, Webhook, WebhookKind
from askback.notifications.delivery import AnswerLink
from askback.notifications.sender import Failed, Response
from askback.notifications.telegram.api import BotApi, Refused, Unreachable
from askback.notifications.telegram.closing import Closing
from askback.notifications.telegram.messages import Draft, ended, question, trial, with_link_as_text
from askback.notifications.telegram.people import Chat
from askback.notifications.telegram.texts import Texts
from askback.store.base import Store


def webhook_of(chat: Chat, api_url: str, states: tuple[RunState, ...], reminders: Reminders | None) -> Webhook:
    """The entry of a chat in the outbox. It does not contain the token."""
    wanted = tuple(dict.fromkeys((RunState.WAITING_USER, *states)))
    return Webhook(
        url=f"{api_url}/#{chat.id}",
        kind=WebhookKind.TELEGRAM,
        states=wanted,
        reminders=reminders,
        labels=dict(chat.labels),
        name=chat.name,
    )


@dataclass(slots=True, kw_only=True, eq=False)
class TelegramChannel:
    store: Store
    api: BotApi
    texts: Texts
    closing: Closing
    clock: Callable[[], datetime]
    zone: tzinfo = UTC
    """In which deadlines are shown."""

    async def send(self, due: DueDelivery, answer_link: AnswerLink) -> Response:
        """Send one notification. Raises `Failed` if it must be tried again."""
        chat_id = chat_of(due.delivery.webhook)
        if due.delivery.new is RunState.WAITING_USER:
            return await _responded(self._ask(chat_id, due, answer_link))
        return await _responded(send_draft(self.api, chat_id, ended(due.run, due.delivery.new, self.texts)))

    async def _ask(self, chat_id: int, due: DueDelivery, answer_link: AnswerLink) -> None:
        """Send a question, unless it was closed since. If it is closed meanwhile, the message says so at once."""
        run, asked = due.run, due.run.pending_interaction
        if asked is None or not await self._is_pending(run.id, asked.interaction_id):
            return
        # In a group, everybody could answer with a link.
        link = await answer_link() if chat_id > 0 else None
        draft = question(run, asked, self.texts, self.clock(), link, due.delivery.reason, self.zone)
        try:
            sent = await send_draft(self.api, chat_id, draft)
        except Refused as error:
            if link is None or error.status != 400 or "url" not in error.description.lower():
                raise
            sent = await send_draft(self.api, chat_id, with_link_as_text(draft, link, self.texts))
        note = ChatMessage(chat=chat_id, message=sent["message_id"], run_id=run.id, interaction_id=asked.interaction_id)
        await self.store.record_chat_message(note)
        await self.closing.close_of(run.id)

    async def _is_pending(self, run_id: str, interaction_id: str) -> bool:
        try:
            pending = (await self.store.get(run_id)).pending_interaction
        except NotFound:
            return False
        return pending is not None and pending.interaction_id == interaction_id


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramTrial:
    """Sends test messages. It needs no server."""

    api: BotApi
    texts: Texts

    async def send_test(self, webhook: Webhook) -> Response:
        """Raises `Failed`."""
        return await _responded(send_draft(self.api, chat_of(webhook), trial(self.texts)))


def chat_of(webhook: Webhook) -> int:
    return int(urlsplit(webhook.url).fragment)


async def send_draft(api: BotApi, chat_id: int, draft: Draft) -> dict[str, Any]:
    """The message as it was sent. Raises `BotApiError`."""
    sent = await api.call("sendMessage", chat_id=chat_id, **draft.parameters)
    if not isinstance(sent, dict) or not isinstance(sent.get("message_id"), int):
        raise Unreachable("the response is not a message")
    return sent


async def _responded(sending: Awaitable[object]) -> Response:
    """The result of a call, as an HTTP response. Raises `Failed` if there is none."""
    try:
        await sending
    except Refused as error:
        after = str(round(error.retry_after_sec)) if error.retry_after_sec else None
        return Response(status=error.status, retry_after=after, reason=_reason(error))
    except Unreachable as error:
        raise Failed(str(error)) from None
    return Response(status=200)


def _reason(error: Refused) -> str:
    if error.migrated_to is not None:
        return f"the group has a new id; write {error.migrated_to} in telegram.chats"
    if error.status in (400, 403):
        return f"{error.description}; the person must send /start to the bot, and a group must have it as a member"
    if error.of_token:
        return f"{error.description}; check telegram.token"
    return error.description
