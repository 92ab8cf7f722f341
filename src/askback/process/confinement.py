"""How programs are kept in on this machine, in words for `/healthz` and `askback doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class InForce(StrEnum):
    """From the strongest to the weakest."""

    BUBBLEWRAP = "bubblewrap"
    """A guardian ends the tree, and each engine has its own process table and sees only what it needs."""
    GUARDIAN = "guardian"
    """Nothing of an engine outlives its turn or us; it may do what the user may do."""
    NONE = "none"
    """An engine's process group is ended; what leaves it may live on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    in_force: InForce
    why_not_more: str = ""
    advice: str = ""
