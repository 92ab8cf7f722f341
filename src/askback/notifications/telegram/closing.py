"""Messages of questions that are closed: they say how, and lose their buttons.

What is still to do is in the store, so a message is changed also after a restart, and after Telegram was out of reach.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from askback.core.errors import NotFound, Unavailable
from askback.core.webhooks import ChatMessage
from askback.notifications.telegram.api import BotApi, BotApiError, Refused
from askback.notifications.telegram.messages import closed
from askback.notifications.telegram.texts import Texts
from askback.store.base import UNKNOWN_RUN, Changes, Store

log = logging.getLogger(__name__)

_MANY = 20
"""If more runs have changed, one query for all is cheaper than one for each."""
_AGAIN_SEC = 10.0
_LASTING = (400, 403)
"""The message is too old or deleted, or the bot was removed from the chat."""


@dataclass(slots=True, kw_only=True, eq=False)
class Closing:
    store: Store
    api: BotApi
    texts: Texts

    _not_before: float = 0.0
    """On the clock of the event loop: when Telegram may be asked again after it refused."""

    async def run(self) -> None:
        """Change messages as their questions are closed."""
        while True:
            try:
                await self._follow()
            except Unavailable as error:
                log.error("cannot change messages of closed questions: %s", error.message)
                await asyncio.sleep(_AGAIN_SEC)

    async def _follow(self) -> None:
        changes = self.store.changes()
        try:
            is_done = await self._close_all()
            while True:
                pause_sec = max(self._not_before - asyncio.get_running_loop().time(), 1.0)
                changed = await self._changed(changes, None if is_done else pause_sec)
                is_done = await (self._close(changed) if is_done else self._close_all())
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
