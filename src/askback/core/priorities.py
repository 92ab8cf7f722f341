"""The order of the queue: higher priorities first. Within one, the parties take turns, and each is served in order.

The party that was served longest ago is next. A party is a token, or all runs without a token together.
"""

from __future__ import annotations

from enum import IntEnum

from askback.core.runs import Run


class Priority(IntEnum):
    NEW = 0
    REPLY = 10
    """Its user has answered, and waits."""
    RESTART = 20
    """It had a slot before, and its turn was interrupted."""


def priority(run: Run) -> Priority:
    """The priority of a queued run. A claim counts its turn, so a turn that is queued again has been counted already."""
    if run.epoch == 0:
        return Priority.NEW
    return Priority.REPLY if run.next_turn.attempt_number > run.attempt_number else Priority.RESTART


def party(run: Run) -> str:
    """Whose turn it is when the run is served. No token has an empty name."""
    return run.created_by or ""
