"""Runs the bot: one server asks Telegram for updates, and every server can send.

Telegram allows one poller per bot. That is the leader of all servers, and of those on one data folder the one with the
lock. Another program with the same token is reported.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from askback.background.loops import Pauses, keep_trying
from askback.background.outages import OUTAGES
from askback.core.errors import is_outage
from askback.notifications.channels.telegram.answering import Answering
from askback.notifications.channels.telegram.api import ALLOWED, BotApi, BotApiError, Refused, read_update
from askback.notifications.channels.telegram.channel import Closing, TelegramChannel
from askback.process.locks import FileLock

log = logging.getLogger(__name__)

_POLL_SEC = 50
"""How long Telegram waits for an update before it returns none."""
_STANDBY_SEC = 5.0
_TOKEN_SEC = 60.0
_CONFLICT_SEC = 10.0
_MAX_PAUSE_SEC = 60.0


@dataclass(slots=True, kw_only=True, eq=False)
class TelegramBot:
    api: BotApi
    lock_path: Path
    channel: TelegramChannel
    answering: Answering
    closing: Closing
    state: str = "standby"
    """`ok`, `standby` if another server polls, or what is wrong."""
    _failures: int = field(default=0)

    async def run(self) -> None:
        """For the leader of all servers."""
        await keep_trying(self._work_alone, log, "the Telegram bot cannot be started")

    async def _work_alone(self) -> None:
        """Work while no other server on this data folder does."""
        lock = FileLock.take(self.lock_path)
        if lock is None:
            self.state = "standby"
            await asyncio.sleep(_STANDBY_SEC)
            return
        self.state = "starting"
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.closing.run())
                group.create_task(self._poll())
        finally:
            lock.release()
            self.state = "standby"

    async def _poll(self) -> None:
        offset: int | None = None
        pauses = Pauses(_MAX_PAUSE_SEC)
        while True:
            try:
                # The first call returns at once, so that the state is known.
                wait = _POLL_SEC if self.state == "ok" else 0
                updates = await self.api.call(
                    "getUpdates", waits_sec=wait, offset=offset, timeout=wait, allowed_updates=ALLOWED
                )
                if self.state not in ("ok", "starting", "standby"):
                    log.info("Telegram works again")
                self.state, self._failures = "ok", 0
                for update in updates:
                    await self._take(update)
                    # Confirmed with the next call: an update that was not taken comes again.
                    offset = update["update_id"] + 1
                pauses.reset()
            except BotApiError as error:
                await asyncio.sleep(self._failed(error))
            except Exception as error:
                if not is_outage(error):
                    raise
                OUTAGES.failed(log, "answers from Telegram cannot be taken", error)
                await asyncio.sleep(pauses.next_sec())

    async def _take(self, update: Mapping[str, Any]) -> None:
        known = read_update(update)
        if known is None:
            return
        try:
            await self.answering.take(known)
        except Exception as error:  # a bug with one update must not stop the others
            if isinstance(error, BotApiError) or is_outage(error):
                raise
            log.error("a Telegram update was skipped: internal error (%s)", type(error).__name__)

    def _failed(self, error: BotApiError) -> float:
        """Report a problem once, and return how long to wait before the next call."""
        self._failures += 1
        problem, seconds = self._problem(error)
        if problem != self.state:
            log.error("Telegram: %s", problem)
            self.state = problem
        return seconds

    def _problem(self, error: BotApiError) -> tuple[str, float]:
        pause_sec = min(2.0 ** min(self._failures - 1, 6), _MAX_PAUSE_SEC)
        if not isinstance(error, Refused):
            return f"the Bot API cannot be reached: {error}", pause_sec
        if error.of_token:
            return f"the token is refused ({error.status}); correct telegram.token", _TOKEN_SEC
        if error.status == 409:
            return f"another program uses this bot: {error.description}", _CONFLICT_SEC
        return f"the Bot API refuses calls: {error.description}", max(pause_sec, error.retry_after_sec)
