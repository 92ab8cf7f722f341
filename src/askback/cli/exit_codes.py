"""How a command ends: its exit codes, its errors, and the signals that end it.

Imported for every command, `--help` included, so it must import quickly.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Coroutine, Sequence
from typing import Any

FAILED = 1
"""The run failed, or this machine cannot do it."""
BAD_INPUT = 2
NO_SERVER = 3
"""No server responds."""
WAITING = 4
"""The run waits for an answer."""
INTERRUPTED = 130

_SWITCH_SEC = 0.0005


class CommandFailed(Exception):
    """A command cannot do its work. `code` is the server's error code, if a server refused the call."""

    def __init__(self, code: str, message: str, problems: Sequence[str] = (), *, exit_code: int = BAD_INPUT) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.problems = tuple(problems)
        self.exit_code = exit_code


def ended_by_signal(number: int, message: str = "") -> CommandFailed:
    """A signal ended the program early. The message says what became of its run."""
    message = message or f"ended by {signal.Signals(number).name}"
    return CommandFailed("INTERRUPTED", message, exit_code=128 + number)


def run_async(main: Coroutine[Any, Any, int]) -> int:
    """Run an asynchronous command to its exit code. Raises `CommandFailed` if SIGTERM, SIGHUP or Ctrl-C ends it."""
    import asyncio

    async def run() -> int:
        loop, this = asyncio.get_running_loop(), asyncio.current_task()
        ended_by: list[int] = []

        def leave(number: int) -> None:
            ended_by.append(number)
            if this is not None:
                this.cancel()

        for number in (signal.SIGTERM, signal.SIGHUP):
            if not is_ignored(number):
                loop.add_signal_handler(number, leave, number)
        try:
            return await main
        except asyncio.CancelledError as error:
            # The canceled code has added notes that say what became of its work.
            notes = "; ".join(getattr(error, "__notes__", ()))
            raise ended_by_signal(ended_by[0] if ended_by else signal.SIGINT, notes) from None

    # The store's threads pass results to the loop. Python's default interval lets the loop delay them for too long.
    sys.setswitchinterval(_SWITCH_SEC)
    try:
        return asyncio.run(run())
    except KeyboardInterrupt:
        raise ended_by_signal(signal.SIGINT) from None
    except ExceptionGroup as group:
        # The tasks of a command fail as a group; the user wants the one reason.
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None


def is_ignored(number: signal.Signals) -> bool:
    """Whether our caller set the signal to be ignored: `nohup askback run …`, or a background job."""
    return signal.getsignal(number) is signal.SIG_IGN
