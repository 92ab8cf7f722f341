"""The asynchronous part of a command, as a program: a terminal that closes, or a TERM, ends it in good order."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable

from askback.cli.exits import EndedBySignal

_SWITCH_SEC = 0.0005


def in_program(main: Callable[[], Awaitable[int]]) -> int:
    """Run it to its exit code. Raises `EndedBySignal`, or what it raised."""

    async def run() -> int:
        loop, this = asyncio.get_running_loop(), asyncio.current_task()
        ended_by: list[int] = []

        def leave(number: int) -> None:
            ended_by.append(number)
            if this is not None:
                this.cancel()

        for number in (signal.SIGTERM, signal.SIGHUP):
            if heeded(number):
                loop.add_signal_handler(number, leave, number)
        try:
            return await main()
        except asyncio.CancelledError as error:
            # Whoever was in the middle of something has noted on it what became of that.
            notes = "; ".join(getattr(error, "__notes__", ()))
            raise EndedBySignal(ended_by[0] if ended_by else signal.SIGINT, notes) from None

    # The store's threads answer to the loop; Python's own interval would let the loop keep them waiting for long.
    sys.setswitchinterval(_SWITCH_SEC)
    try:
        return asyncio.run(run())
    except KeyboardInterrupt:
        raise EndedBySignal(signal.SIGINT) from None
    except ExceptionGroup as group:
        raise _first(group) from None


def heeded(number: signal.Signals) -> bool:
    """A signal that our caller had us ignore stays ignored: `nohup askback run …`, or a job in the background."""
    return signal.getsignal(number) is not signal.SIG_IGN


def _first(error: BaseException) -> BaseException:
    """The tasks of a command fail as a group; its user wants the one reason."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
