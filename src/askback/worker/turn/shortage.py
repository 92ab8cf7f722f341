"""Retries what fails because the machine is short of processes, memory or open files, for a few minutes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from askback.core.errors import ErrorCode, is_temporary
from askback.core.outcomes import TurnOutcome, engine_failure
from askback.worker.run_control import RunControl

log = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_SEC = 180.0
FLEET_PATIENCE_SEC = 15.0
"""If other machines can execute the turn."""
_FIRST_PAUSE_SEC = 0.1
_MAX_PAUSE_SEC = 5.0


class CannotStart(Exception):
    """The engine cannot be started; the outcome says why."""

    def __init__(self, outcome: TurnOutcome) -> None:
        super().__init__(str(outcome))
        self.outcome = outcome


class Stopped(Exception):
    """The turn was stopped before its engine could be started."""


class Shortage:
    """Shared by all turns, so that the start and the end of a shortage are logged once."""

    def __init__(self, patience_sec: float = PATIENCE_SEC, relieve: Callable[[], object] = lambda: None) -> None:
        """`relieve` is called before each further attempt, and may end something that can be spared."""
        self._patience_sec = patience_sec
        self._relieve = relieve
        self._is_on = False

    async def retry(self, attempt: Callable[[], Awaitable[T]], control: RunControl) -> tuple[T, bool]:
        """The result of the attempt, and whether it had to be repeated.

        Raises `CannotStart` if the shortage does not end, and `Stopped` if the turn is stopped first.
        """
        deadline, pause_sec, delayed = time.monotonic() + self._patience_sec, _FIRST_PAUSE_SEC, False
        while True:
            try:
                result = await attempt()
            except Exception as error:
                if not is_temporary(error):
                    raise
                delayed = True
                self._begins(error)
                if time.monotonic() >= deadline:
                    raise CannotStart(_failure(error)) from error
                self._relieve()
            else:
                self._ends()
                return result, delayed
            await pause(control, pause_sec)
            pause_sec = min(2 * pause_sec, _MAX_PAUSE_SEC)

    def _begins(self, error: Exception) -> None:
        if not self._is_on:
            log.warning("the machine is short of resources; turns wait: %s", error)
        self._is_on = True

    def _ends(self) -> None:
        if self._is_on:
            log.warning("engines can be started again")
        self._is_on = False


def _failure(error: Exception) -> TurnOutcome:
    message = "the machine had no processes, memory or open files left to start the engine; try again later"
    return engine_failure(ErrorCode.ENGINE_START_FAILED, message, detail=str(error))


async def pause(control: RunControl, seconds: float) -> None:
    """Wait before another attempt. Raises `Stopped` if the turn is stopped."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await control.wait()
    if control.reason is not None:
        raise Stopped
