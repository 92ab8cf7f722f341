"""The order of the queue, and how many slots each token may have.

Higher priorities come first. Within one, the parties take turns: the party that was served longest ago is next, and the runs
of each are served in order. A party is a token, or all runs without a token together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from askback.core.runs import Run


class Priority(IntEnum):
    """The class of a queued run."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """How many slots the runs of one token may have at a time. Runs without a token have no limit."""

    usual: int | None = None
    """None: no limit."""
    named: Mapping[str, int | None] = field(default_factory=dict)
    """Those of single tokens, by name."""
    engines: Mapping[str, int] = field(default_factory=dict)
    """How many slots of one engine, by its name. An engine that is not here has no separate limit."""
    of_any_engine: frozenset[str] = frozenset()
    """The tokens that `engines` does not limit."""

    def of(self, token: str | None) -> int | None:
        return None if token is None else self.named.get(token, self.usual)

    def of_engine(self, token: str | None, engine: str) -> int | None:
        return None if token is None or token in self.of_any_engine else self.engines.get(engine)


UNLIMITED = Shares()
