"""Whether the file store can be used, as a program that executes turns sees it.

A failure of any turn counts at once. Only a look at the store says that it can be used again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from logging import getLogger

from askback.background.outages import OUTAGES
from askback.core.errors import RefusalCode, Unavailable, is_outage

log = getLogger(__name__)

LOOK_SEC = 5.0
_RETRY_SEC = 2.0
_FIRST_PAUSE_SEC = 1.0
_LONGEST_PAUSE_SEC = 30.0
"""A store may pass every look and fail in every turn, for instance because of a quota."""
FILES_WORK = "the file store can be used again"


class StoreWatch:
    def __init__(self, look: Callable[[bool], Awaitable[object]]) -> None:
        """`look` raises `Unavailable` if the store cannot be used. With True it also writes a file there."""
        self.changed: Callable[[str | None], None] = lambda problem: None
        """Called with the problem when one is found, and with None when it is over."""
        self.problem: str | None = None
        self._look = look
        self._failures = 0
        self._pause_sec = 0.0
        self._until = 0.0
        self._found = asyncio.Event()

    async def run(self) -> None:
        while True:
            await self.look()
            if self.problem is not None:
                await asyncio.sleep(max(_RETRY_SEC, self._until - _now()))
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SEC):
                    await self._found.wait()

    async def look(self) -> None:
        """Look at the store now. Without its database it cannot be judged, and what was known stays."""
        failures, failing = self._failures, self.problem is not None
        try:
            await self._look(failing)
        except Exception as error:
            if not is_outage(error):
                raise
            if isinstance(error, Unavailable) and error.code is RefusalCode.FILES_UNAVAILABLE:
                self.failed(error.message)
            return
        # A failure during the look may be newer than what the look has seen.
        if failing and failures == self._failures and _now() >= self._until:
            self.problem = None
            self._found.clear()
            OUTAGES.over(log, RefusalCode.FILES_UNAVAILABLE, FILES_WORK)
            self.changed(None)

    def failed(self, message: str) -> None:
        """Something could not be done because of the store."""
        self._failures += 1
        if self.problem is not None:
            return
        self.problem = message
        self._pause_sec = min(max(2 * self._pause_sec, _FIRST_PAUSE_SEC), _LONGEST_PAUSE_SEC)
        self._until = _now() + self._pause_sec
        self._found.set()
        self.changed(message)

    def note_end(self) -> None:
        """A turn has ended, and its files are stored."""
        self._pause_sec = 0.0


def _now() -> float:
    return asyncio.get_running_loop().time()
