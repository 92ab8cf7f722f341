"""Sends notifications as messages, and changes the messages of questions that are closed: they say how, and lose their buttons.

The outbox says what is due, and repeats what fails. Which messages are still to be changed is in the store, so they are changed
also after a restart, and after Telegram was out of reach.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from askback.background.loops import keep_trying
from askback.core.errors import NotFound
from askback.core.runs import RunState
from askback.core.webhooks import ChatMessage, Reminders, Webhook, WebhookKind
from askback.notifications.channels.base import Channel, DueMessage, Failed, Message, Response
from askback.notifications.channels.telegram.answering import Chat
from askback.notifications.channels.telegram.api import BotApi, BotApiError, Refused, Unreachable
from askback.notifications.channels.telegram.messages import Draft, closed, ended, question, trial, with_link_as_text
from askback.notifications.channels.telegram.texts import Texts
from askback.store.base import Store
from askback.store.listeners import Changes
from askback.store.pages import UNKNOWN_RUN

log = logging.getLogger(__name__)

_MANY = 20
"""If more runs have changed, one query for all is cheaper than one for each."""
_AGAIN_SEC = 10.0
_LASTING = (400, 403)
"""The message is too old or deleted, or the bot was removed from the chat."""


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
class TelegramChannel(Channel):
    store: Store
    api: BotApi
    texts: Texts
    closing: Closing

    async def notify(self, due: DueMessage) -> Response:
        delivery, run = due.due.delivery, due.due.run
        if delivery.new is RunState.WAITING_USER:
            return await _responded(self._ask(chat_of(delivery.webhook), due))
        draft = ended(run, delivery.new, self.texts)
        return await _responded(send_draft(self.api, chat_of(delivery.webhook), draft))

    async def _ask(self, chat_id: int, due: DueMessage) -> None:
        """Send a question, unless it was closed since. If it is closed meanwhile, the message says so at once."""
        run, asked = due.due.run, due.due.run.pending_interaction
        if asked is None or not await self._is_pending(run.id, asked.interaction_id):
            return
        # In a group, everybody could answer with a link.
        link = await due.answer_url() if chat_id > 0 else None
        draft = question(run, asked, self.texts, due.at, link, due.due.delivery.reason, due.zone)
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
class TelegramTrial(Channel):
    """Sends test messages. It needs no server."""

    api: BotApi
    texts: Texts

    async def send(self, message: Message) -> Response:
        return await _responded(send_draft(self.api, chat_of(message.webhook), trial(self.texts)))


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
        return Response.of_http(error.status, retry_after=after, reason=_reason(error))
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


@dataclass(slots=True, kw_only=True, eq=False)
class Closing:
    store: Store
    api: BotApi
    texts: Texts

    _not_before: float = 0.0
    """On the clock of the event loop: when Telegram may be asked again after it refused."""

    async def run(self) -> None:
        """Change messages as their questions are closed."""
        await keep_trying(self._follow, log, "messages of closed questions cannot be changed")

    async def _follow(self) -> None:
        changes = self.store.changes()
        try:
            is_done = await self._close_all()
            while True:
                pause_sec = max(self._not_before - asyncio.get_running_loop().time(), 1.0)
                changed = await self._changed(changes, None if is_done else pause_sec)
                is_few = UNKNOWN_RUN not in changed and len(changed) <= _MANY
                if is_done and is_few:
                    is_done = all([await self.close_of(run_id) for run_id in changed])
                else:
                    is_done = await self._close_all()
        finally:
            changes.close()

    async def _changed(self, changes: Changes, at_most_sec: float | None) -> Sequence[str]:
        """Wait for changed runs. Returns none if the time is over."""
        try:
            async with asyncio.timeout(at_most_sec):
                return tuple(await changes.wait())
        except TimeoutError:
            return ()

    async def _close_all(self) -> bool:
        return await self._close_these(await self.store.outdated_chat_messages())

    async def close_of(self, run_id: str) -> bool:
        """Change the outdated messages of a run. False if one must be tried again later."""
        return await self._close_these(await self.store.outdated_chat_messages(run_id))

    async def _close_these(self, messages: Sequence[ChatMessage]) -> bool:
        now = asyncio.get_running_loop().time
        for message in messages:
            if now() < self._not_before:
                return False
            try:
                await self._edit(message)
            except Refused as error:
                if error.status not in _LASTING:
                    self._not_before = now() + (error.retry_after_sec or _AGAIN_SEC)
                    return False
                if "not modified" not in error.description:
                    log.info("Telegram does not change message %d: %s", message.message, error.description)
            except BotApiError:
                self._not_before = now() + _AGAIN_SEC
                return False
            await self.store.close_chat_message(message)
        return True

    async def _edit(self, message: ChatMessage) -> None:
        try:
            run = await self.store.get(message.run_id)
            questions = await self.store.interactions(message.run_id)
        except NotFound:
            return
        asked = next((each for each in questions if each.interaction_id == message.interaction_id), None)
        if asked is None:
            return
        draft = closed(run, asked, self.texts)
        await self.api.call("editMessageText", chat_id=message.chat, message_id=message.message, **draft.parameters)
