"""The interface of the queue within a transaction."""

from __future__ import annotations

from typing import Protocol

from askback.core.runs import Run


class Places(Protocol):
    """A run is named by its number in the database, and by itself."""

    def add(self, number: int, run: Run) -> None:
        """The run is queued from now on."""
        ...

    def remove(self, number: int, before: Run, *, claimed: bool) -> None:
        """The run, which was queued before, was claimed, or is over."""
        ...

    def hand_over(self, number: int, run: Run) -> None:
        """A queued run has another owner. It keeps its place."""
        ...

    def forget(self, run_id: str) -> None:
        """The run is deleted."""
        ...
