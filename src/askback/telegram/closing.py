"""Messages of questions that are closed: they say how, and lose their buttons.

What is still to do is in the store, so a message is changed also after a restart, and after Telegram was out of reach.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from askback.core.chats import ChatMessage
from askback.core.errors import NotFound, Unavailable
from askback.store.base import UNKNOWN_RUN, Changes, Store
from askback.telegram.api import BotApi, BotApiError, Refused
from askback.telegram.messages import closed
from askback.telegram.texts import Texts

log = logging.getLogger(__name__)

_MANY = 20
"""If more runs have changed, one query for all is cheaper than one for each."""
_AGAIN_SEC = 30.0
_LASTING = (400, 403)
"""The message is too old or deleted, or the bot was removed from the chat."""


@dataclass(slots=True, kw_only=True, eq=False)
class Closing:
    store: Store
    api: BotApi
    texts: Texts

    async def run(self) -> None:
        """Change messages as their questions are closed. Ends with the store."""
        changes = self.store.changes()
        try:
            with suppress(Unavailable):
                is_done = await self._close_all()
                while True:
                    changed = await self._changed(changes, None if is_done else _AGAIN_SEC)
                    is_done = await self._close(changed) and is_done
                    if not is_done:
                        is_done = await self._close_all()
        finally:
            changes.close()

    async def _changed(self, changes: Changes, at_most_sec: float | None) -> Sequence[str]:
        """The runs that have changed; none if the time is over."""
        try:
            async with asyncio.timeout(at_most_sec):
                return tuple(await changes.wait())
        except TimeoutError:
            return ()

    async def _close(self, run_ids: Sequence[str]) -> bool:
        if UNKNOWN_RUN in run_ids or len(run_ids) > _MANY:
            return await self._close_all()
        return all([await self.close_of(run_id) for run_id in run_ids])

    async def _close_all(self) -> bool:
        return await self._close_these(await self.store.outdated_chat_messages())

    async def close_of(self, run_id: str) -> bool:
        """Change the outdated messages of a run. False if one must be tried again later."""
        return await self._close_these(await self.store.outdated_chat_messages(run_id))

    async def _close_these(self, messages: Sequence[ChatMessage]) -> bool:
        for message in messages:
            try:
                await self._edit(message)
            except Refused as error:
                if error.status not in _LASTING:
                    return False
                if "not modified" not in error.description:
                    log.info("Telegram does not change message %d: %s", message.message, error.description)
            except BotApiError:
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
