"""Resource limits of an engine, which one was exceeded, and how each is enforced on this machine."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum


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


def give_back_large_blocks() -> None:
    """Make glibc map large blocks separately, so that they go back to the system when they are freed.

    By default glibc raises that threshold up to 32 MB, and keeps the memory of a few large requests.
    """
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
