"""How an engine is confined: isolation levels, networks, and limits on memory, processes, CPU time and disk."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum


class IsolationLevel(StrEnum):
    """From the strongest to the weakest."""

    BUBBLEWRAP = "bubblewrap"
    """As `guardian`, and each engine has its own process table and sees only what it needs."""
    GUARDIAN = "guardian"
    """No process of an engine outlives its turn or Askback. The engine can do what the user can do."""
    NONE = "none"
    """An engine's process group is ended. A process that leaves the group may survive."""


class Network(StrEnum):
    """What an engine can connect to."""

    HOST = "host"
    """Everything that the user can, including services on the loopback interface and metadata addresses of clouds."""
    NO_LOOPBACK = "no-loopback"
    """Other machines, over IPv4. Not this machine, and no metadata addresses."""
    NONE = "none"
    """Only itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    level: IsolationLevel
    why_not_more: str = ""
    advice: str = ""
    shared: tuple[str, ...] = ()
    """Folders outside its run that an engine may write to, from the settings."""
    no_network: Mapping[Network, str] = field(default_factory=dict)
    """Networks that are not available here, with the reason and a fix."""

    @property
    def hides_files(self) -> bool:
        return self.level is IsolationLevel.BUBBLEWRAP


NO_SANDBOX = (
    "Engines run without a sandbox, and the sandbox of Codex is off as well: each can read and change what the user of"
    " the server can, including the server's token, its database and other runs."
)

_SET_DUMPABLE = 4


def hide_from_other_processes() -> None:
    """Hide the memory and environment of this process from other processes of the same user.

    A program that it starts is readable again, but only with what that program was given.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLimits:
    """For one engine and everything that it starts. 0 means no limit."""

    memory_bytes: int = 0
    processes: int = 0
    cpu_sec: float = 0
    disk_bytes: int = 0
    """In the folders of the run."""
    reserve_bytes: int = 0
    """With less free disk than this, a run that used as much itself is ended."""

    def as_figures(self) -> dict[str, float]:
        """In the form that the keeper reads."""
        return {
            "memory": self.memory_bytes,
            "processes": self.processes,
            "cpu": self.cpu_sec,
            "disk": self.disk_bytes,
            "reserve": self.reserve_bytes,
        }


UNLIMITED = ResourceLimits()


class Resource(StrEnum):
    MEMORY = "memory"
    PROCESSES = "processes"
    CPU = "cpu"
    DISK = "disk"
    RESERVE = "reserve"


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """A limit that was exceeded, and the measured figure, in the unit of the limit."""

    resource: Resource
    figure: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Enforcement:
    """The means by which each limit is enforced on this machine; none if it is not."""

    means: Mapping[str, tuple[str, ...]]
    why_not_more: str = ""

    def sandboxed(self) -> Enforcement:
        """In a user namespace the kernel limits processes too. The sandbox of root has none."""
        if os.geteuid() == 0:
            return self
        return replace(self, means={**self.means, "processes": (*self.means["processes"], "rlimit")})


def by_watchdog(*, groups: bool, why_not_more: str = "") -> Enforcement:
    """On Linux: the keeper checks several times a second, and the kernel enforces what it can."""
    kernel = ("cgroup v2",) if groups else ()
    means = {
        "memory": (*kernel, "watchdog"),
        "processes": (*kernel, "watchdog"),
        "cpu": (*kernel, "watchdog", "rlimit"),
        "disk": ("watchdog", "rlimit"),
        "oom": ("oom_score_adj",),
    }
    return Enforcement(means=means, why_not_more=why_not_more)


def not_enforced(why: str) -> Enforcement:
    return Enforcement(means=dict.fromkeys(("memory", "processes", "cpu", "disk", "oom"), ()), why_not_more=why)


_MMAP_THRESHOLD = -3
_LARGE_BYTES = 1 << 20


def release_large_blocks() -> None:
    """Make glibc map large blocks separately, so that they go back to the system when they are freed.

    By default glibc raises that threshold up to 32 MB, and keeps the memory of a few large requests.
    """
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
