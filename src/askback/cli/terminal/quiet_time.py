"""The time after a prompt appears in which an empty line is no answer, so that nobody sends a default unseen."""

from __future__ import annotations

import time
from collections.abc import Callable

QUIET_SEC = 0.6


class QuietTime:
    """Starts when the prompt appears, and again with each empty line that comes too early."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = clock()

    def restart(self) -> None:
        self._since = self._clock()

    def ignores_empty_line(self) -> bool:
        """Whether an empty line that arrives now is ignored."""
        is_early = self._clock() - self._since < QUIET_SEC
        if is_early:
            self.restart()
        return is_early
