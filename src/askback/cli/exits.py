"""How the program ends: its exit codes, and being ended from outside."""

from __future__ import annotations

import signal

FAILED = 1
"""The run failed, or this machine cannot do it."""
BAD_INPUT = 2
WAITING = 4
"""The run is left waiting for an answer."""
INTERRUPTED = 130


class EndedBySignal(Exception):
    """Somebody ended the program before it was done; the text says what became of its run."""

    def __init__(self, number: int, message: str = "") -> None:
        super().__init__(message or f"ended by {signal.Signals(number).name}")
        self.exit_code = 128 + number
