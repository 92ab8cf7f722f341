"""Where an engine's output is parsed: short texts at once, long ones in a thread beside the event loop.

What an engine prints may take seconds to read. Each step of it is short (`engines.json_text`, `engines.markers`), so
that a thread here never keeps the loop waiting for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_THREADS = 1
"""They would only wait for each other: what is parsed holds the interpreter."""
_SHORT = 65_536
"""Characters that are read at once: a change of threads would cost more than they do."""


class Parsing:
    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="askback-parsing")

    async def run(self, work: Callable[[], T], size: int) -> T:
        """Do work that reads a text of that size."""
        if size <= _SHORT:
            return work()
        return await self.aside(work)

    async def aside(self, work: Callable[[], T]) -> T:
        """Do work that may take long whatever the size of its text."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)
