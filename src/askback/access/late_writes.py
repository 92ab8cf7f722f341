"""Facts that change with every request, such as when a token was last used: noted in memory, and written periodically."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from askback.background.loops import keep_trying

log = logging.getLogger(__name__)

_FLUSH_SEC = 300.0


async def keep_writing(flush: Callable[[], None], what: str) -> None:
    """Call `flush` in a thread every few minutes. `what` names the facts in the log if that fails."""

    async def wait_and_flush() -> None:
        await asyncio.sleep(_FLUSH_SEC)
        await asyncio.to_thread(flush)

    await keep_trying(wait_and_flush, log, f"cannot write {what}")
