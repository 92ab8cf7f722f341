"""What a tap or a message means: an answer, a late one, or none. Changes runs through the service alone.

Telegram repeats an update until it is confirmed. Taking one twice is harmless: the question is closed by then, and the
person gets the same response again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, assert_never

from askback.core.actors import Actor, Channel
from askback.core.errors import Conflict, Invalid, NotFound
from askback.core.interactions import Interaction, InteractionOutcome, Json
from askback.core.labels import Labels, has_labels
from askback.core.webhooks import ChatMessage
from askback.notifications.channels.telegram import messages
from askback.notifications.channels.telegram.api import BotApi, MessageRef, Refused, Tap, User, Written
from askback.notifications.channels.telegram.texts import Texts
from askback.questions.typed_answers import read_answer, refusal
from askback.runs.service import Service
from askback.skills.field_values import in_words
from askback.store.base import Store
from askback.text.formatting import printable

log = logging.getLogger(__name__)

_PRIVATE = "private"
_START = "/start"
_TRIES = 20
_TRY_SEC = 0.1
_SILENCE = timedelta(hours=1)
_MAX_STRANGERS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """A person or a group. A person may answer, also in groups; a group only gets the questions."""

    id: int
    name: str
    notify: bool = True
    labels: Labels = field(default_factory=dict)
    """Only runs with all of these labels."""

    @property
    def is_group(self) -> bool:
        return self.id < 0


def people_of(chats: Iterable[Chat]) -> dict[int, Chat]:
    """Who may answer, by the number of the user: never a group."""
    return {chat.id: chat for chat in chats if not chat.is_group}


class Strangers:
    """Each gets one response per hour. Their number is bounded: anybody can write to a bot."""

    def __init__(self) -> None:
        self._seen: dict[int, datetime] = {}

    def is_first(self, user_id: int, now: datetime) -> bool:
        seen = self._seen.get(user_id)
        if seen is not None and seen <= now < seen + _SILENCE:
            return False
        self._seen.pop(user_id, None)
        if len(self._seen) >= _MAX_STRANGERS:
            del self._seen[next(iter(self._seen))]
        self._seen[user_id] = now
        return True


class WrongAnswer(Exception):
    """The question does not allow this answer. The message says why."""


@dataclass(slots=True, kw_only=True, eq=False)
class Answering:
    service: Service
    store: Store
    api: BotApi
    people: Mapping[int, Chat]
    texts: Texts
    clock: Callable[[], datetime]
    strangers: Strangers = field(default_factory=Strangers)

    async def take(self, update: Written | Tap) -> None:
        """Raises `Unavailable` or `Unreachable` if the update must be taken again later."""
        match update:
            case Tap():
                notice = await self._tapped(update)
                await self._quietly("answerCallbackQuery", callback_query_id=update.id, **notice)
            case Written():
                await self._written(update)
            case _:
                assert_never(update)

    async def _tapped(self, tap: Tap) -> dict[str, Any]:
        """The parameters of the answer to a tap: every tap gets one, or the button keeps turning."""
        person = self.people.get(tap.sender.id)
        if person is None:
            refused = self._for_stranger(tap.sender)
            return {"text": refused, "show_alert": True} if refused else {}
        key = messages.ButtonKey.parse(tap.data)
        if key is None:
            return self._notice("no_button", alert=True)
        if not await self._may_answer(person, key.run_id):
            return self._notice("not_yours", alert=True)
        found = next((each for each in await self._questions(key.run_id) if key.belongs_to(each)), None)
        if found is None:
            return self._notice("gone", alert=True)
        offered = messages.choices_of(found, self.texts)
        if key.index >= len(offered):
            return self._notice("no_button", alert=True)
        if (shown := tap.message) is not None and not await self.store.chat_message(shown.chat.id, shown.message_id):
            # A server that was killed after it sent the message did not store it.
            await self._record(shown.chat.id, shown.message_id, key.run_id, found.interaction_id, is_open=True)
        try:
            text = await self._reply(key.run_id, found, offered[key.index].answer, person)
        except WrongAnswer as error:
            return {"text": messages.cut_units(str(error), messages.MAX_NOTICE), "show_alert": True}
        return {"text": messages.cut_units(text, messages.MAX_NOTICE), "show_alert": False}

    def _notice(self, key: str, *, alert: bool) -> dict[str, Any]:
        return {"text": self.texts(key), "show_alert": alert}

    async def _written(self, message: Written) -> None:
        sender, replied = message.sender, message.reply_to_message
        if sender is None or sender.is_bot:
            return
        person = self.people.get(sender.id)
        shown = None if replied is None else await self._shown(replied, patient=person is not None)
        is_private = message.chat.type == _PRIVATE
        if shown is None and not is_private:
            return
        if person is None:
            if refused := self._for_stranger(sender):
                await self._say(message, refused)
        elif shown is not None:
            await self._replied(message, shown, person)
        else:
            is_start = (message.text or "").split(" ")[0] == _START
            await self._say(message, self.texts("hello", name=person.name) if is_start else self.texts("which"))

    async def _shown(self, replied: MessageRef, *, patient: bool) -> ChatMessage | None:
        """What a message shows. A quick person may reply before the server that sent it has stored that."""
        is_own = replied.sender is not None and replied.sender.is_bot
        for _ in range(_TRIES if patient and is_own else 1):
            found = await self.store.chat_message(replied.chat.id, replied.message_id)
            if found is not None:
                return found
            await asyncio.sleep(_TRY_SEC)
        return None

    async def _replied(self, message: Written, shown: ChatMessage, person: Chat) -> None:
        if not await self._may_answer(person, shown.run_id):
            await self._say(message, self.texts("not_yours"))
            return
        questions = await self._questions(shown.run_id)
        asked = next((each for each in questions if each.interaction_id == shown.interaction_id), None)
        if asked is None:
            await self._say(message, self.texts("gone"))
        elif not messages.in_chat(asked):
            is_open = asked.outcome is InteractionOutcome.PENDING
            await self._say(message, self.texts("not_here") if is_open else messages.too_late(asked, self.texts))
        elif message.text is None:
            await self._ask_again(message, shown, self.texts("only_text"))
        else:
            try:
                text = await self._reply(shown.run_id, asked, self._meant(asked, message.text), person)
                await self._say(message, text)
            except WrongAnswer as error:
                await self._ask_again(message, shown, self.texts("wrong", problems=error))

    def _meant(self, asked: Interaction, line: str) -> Json:
        for choice in messages.choices_of(asked, self.texts):
            if line.strip().casefold() == choice.label.casefold():
                return choice.answer
        if asked.outcome is InteractionOutcome.PENDING and (why_not := refusal(asked, line)):
            raise WrongAnswer(why_not)
        return read_answer(asked, line)

    async def _ask_again(self, message: Written, shown: ChatMessage, text: str) -> None:
        """A reply to this message is a reply to the question, too."""
        sent = await self._say(message, text, force_reply=True)
        if sent is not None:
            await self._record(shown.chat, sent, shown.run_id, shown.interaction_id, is_open=False)

    async def _reply(self, run_id: str, asked: Interaction, response: Json, person: Chat) -> str:
        """Answer the question. Returns the response to the person; raises `WrongAnswer`."""
        actor = Actor(name=person.name, via=Channel.TELEGRAM)
        try:
            await self.service.reply(run_id, response, asked.interaction_id, by=actor)
        except Invalid as error:
            problems = [in_words(each, asked.response_schema) for each in error.problems] or [error.message]
            raise WrongAnswer(printable("; ".join(problems))) from None
        except (Conflict, NotFound):
            pass  # what was stored says why
        stored = next(
            (each for each in await self._questions(run_id) if each.interaction_id == asked.interaction_id), None
        )
        if stored is None:
            return self.texts("gone")
        if stored.answered_with == actor and stored.response == response:
            return self.texts("taken", answer=messages.answer_text(stored, self.texts))
        return messages.too_late(stored, self.texts)

    async def _may_answer(self, person: Chat, run_id: str) -> bool:
        """Asked before anything else about a run: whom labels limit does not learn which other runs exist."""
        if not person.labels:
            return True
        try:
            return has_labels((await self.store.get(run_id)).labels, person.labels)
        except NotFound:
            return False

    async def _questions(self, run_id: str) -> tuple[Interaction, ...]:
        """The questions of a run; none if it was deleted."""
        try:
            return tuple(await self.store.interactions(run_id))
        except NotFound:
            return ()

    def _for_stranger(self, sender: User) -> str | None:
        if not self.strangers.is_first(sender.id, self.clock()):
            return None
        log.info("Telegram user %d is not in telegram.chats and may not answer", sender.id)
        return self.texts("stranger", id=sender.id)

    async def _record(self, chat: int, message: int, run_id: str, interaction_id: str, *, is_open: bool) -> None:
        sent = ChatMessage(chat=chat, message=message, run_id=run_id, interaction_id=interaction_id, open=is_open)
        await self.store.record_chat_message(sent)

    async def _say(self, to: Written, text: str, *, force_reply: bool = False) -> int | None:
        """Reply to a message. Returns the number of the new one."""
        sent = await self._quietly(
            "sendMessage",
            chat_id=to.chat.id,
            text=messages.cut_units(text, messages.MAX_TEXT),
            link_preview_options={"is_disabled": True},
            reply_parameters={"message_id": to.message_id, "allow_sending_without_reply": True},
            reply_markup={"force_reply": True, "selective": True} if force_reply else None,
        )
        return sent["message_id"] if isinstance(sent, dict) else None

    async def _quietly(self, method: str, **parameters: Any) -> Any:
        """A call whose refusal changes nothing: the chat may be gone, or the tap too old."""
        try:
            return await self.api.call(method, **parameters)
        except Refused as error:
            if error.retry_after_sec or error.of_token:
                raise
            log.info("Telegram refused %s: %s", method, error.description)
            return None
