"""What one engine may use, which of it is exceeded, and how far that is enforced here, in words for people."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLimits:
    """For one engine with everything that it starts; 0 is no limit."""

    memory_bytes: int = 0
    processes: int = 0
    cpu_sec: float = 0
    disk_bytes: int = 0
    """In the run's own folders."""
    reserve_bytes: int = 0
    """Below so much free disk a run that took as much itself is ended."""

    def as_figures(self) -> dict[str, float]:
        """As the keeper reads them."""
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
    """A limit that was exceeded, and the figure that was seen, in the limit's own unit."""

    resource: Resource
    figure: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Enforcement:
    """By what each limit is enforced on this machine: names of means, none where it is not."""

    means: Mapping[str, tuple[str, ...]]
    why_not_more: str = ""

    def sandboxed(self) -> Enforcement:
        """A sandbox with a user namespace caps processes by the kernel, too; root's does not have one."""
        if os.geteuid() == 0:
            return self
        return replace(self, means={**self.means, "processes": (*self.means["processes"], "rlimit")})


def by_watchdog(*, groups: bool, why_not_more: str = "") -> Enforcement:
    """What a keeper does on Linux: it looks several times a second, and the kernel caps what it can."""
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
    """Have large blocks mapped one by one, so that they go back to the system when they are freed.

    By itself glibc raises the size from which it does so to 32 MB, and keeps what a few large requests took.
    """
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
