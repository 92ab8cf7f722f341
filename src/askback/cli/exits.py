"""How the program ends: its exit codes, and being ended from outside."""

from __future__ import annotations

import signal
from collections.abc import Sequence

FAILED = 1
"""The run failed, or this machine cannot do it."""
BAD_INPUT = 2
NO_SERVER = 3
"""No server answers."""
WAITING = 4
"""The run is left waiting for an answer."""
INTERRUPTED = 130


class EndedBySignal(Exception):
    """Somebody ended the program before it was done; the text says what became of its run."""

    def __init__(self, number: int, message: str = "") -> None:
        super().__init__(message or f"ended by {signal.Signals(number).name}")
        self.exit_code = 128 + number


class Told(Exception):
    """What a server said, or that none answers; `code` is the server's own."""

    def __init__(self, code: str, message: str, problems: Sequence[str] = (), *, exit_code: int = BAD_INPUT) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.problems = tuple(problems)
        self.exit_code = exit_code
