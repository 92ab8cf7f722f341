"""How programs are kept in on this machine, in words for `/healthz` and `askback doctor`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class InForce(StrEnum):
    """From the strongest to the weakest."""

    BUBBLEWRAP = "bubblewrap"
    """A guardian ends the tree, and each engine has its own process table and sees only what it needs."""
    GUARDIAN = "guardian"
    """Nothing of an engine outlives its turn or us; it may do what the user may do."""
    NONE = "none"
    """An engine's process group is ended; what leaves it may live on."""


class Network(StrEnum):
    """What an engine can connect to."""

    HOST = "host"
    """Everything that the user can, services on the loopback interface and metadata addresses of clouds included."""
    NO_LOOPBACK = "no-loopback"
    """Other machines, by IPv4: neither this machine nor metadata addresses."""
    NONE = "none"
    """Nothing but itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    in_force: InForce
    why_not_more: str = ""
    advice: str = ""
    shared: tuple[str, ...] = ()
    """Folders outside of its run that an engine may write to, by the settings."""
    no_network: Mapping[Network, str] = field(default_factory=dict)
    """Why a network cannot be had here, with what to do about it."""

    @property
    def hides_files(self) -> bool:
        return self.in_force is InForce.BUBBLEWRAP
