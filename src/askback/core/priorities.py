"""The order of the queue: higher priorities first, and first come, first served within one."""

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
