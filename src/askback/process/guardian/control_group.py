"""The control group (cgroup v2) of one engine: the limits that the kernel enforces, and its statistics.

Part of the keeper: standard library only. `delegation.py` finds out where groups may be created.
"""

# Without pathlib, which would double the start-up time of the guardian.
# ruff: noqa: PTH102, PTH106, PTH118
from __future__ import annotations

import os
import time

THREADS_PER_PROCESS = 16
"""The limit is for processes, but the kernel counts threads: an engine on Node has a dozen for each process."""


_INSIDE = "inside"
_POLL_SEC = 0.001


class ControlGroup:
    """A group below `base` with the limits, and one below it with the processes; `home` is the keeper's own group.

    A process may be able to write to the files of the group that it is in: in a cgroup namespace it sees this group as
    the root. So its own group has no limits that it could raise.
    """

    def __init__(self, base: str, home: str, name: str) -> None:
        self.path = os.path.join(base, name)
        self._inside = os.path.join(self.path, _INSIDE)
        self._home = home
        os.mkdir(self.path)
        os.mkdir(self._inside)

    def limit(self, limits: dict[str, float]) -> None:
        """Ignores what a kernel does not support: the watchdog checks the same figures."""
        if memory := limits["memory"]:
            self._write("memory.max", str(int(memory)))
            self._write("memory.swap.max", "0")
            self._write("memory.oom.group", "1")
        if processes := limits["processes"]:
            self._write("pids.max", str(int(processes) * THREADS_PER_PROCESS))

    def enter(self) -> bool:
        """Move this process in, so that its children start inside."""
        return _write(os.path.join(self._inside, "cgroup.procs"), "0")

    def leave(self) -> bool:
        return _write(os.path.join(self._home, "cgroup.procs"), "0")

    def kill(self) -> bool:
        """Kill everything inside, including processes that are being forked."""
        return self._write("cgroup.kill", "1")

    def freeze(self, until: float) -> bool:
        """Suspend everything inside. False if the kernel cannot do that, or not all is suspended in time."""
        if not self._write("cgroup.freeze", "1"):
            return False
        while not self._figure("cgroup.events", "frozen"):
            if time.monotonic() > until:
                return False
            time.sleep(_POLL_SEC)
        return True

    def thaw(self) -> None:
        self._write("cgroup.freeze", "0")

    def pids(self) -> set[int]:
        """All processes inside, including those in groups that an engine has created."""
        return {pid for group in _below(self.path) for pid in _pids(group)}

    def exceeded(self) -> str | None:
        """The limit that the kernel has enforced, if any."""
        if self._figure("memory.events", "oom_kill") or self._figure("memory.events", "oom_group_kill"):
            return "memory"
        return "processes" if self._figure("pids.events", "max") else None

    def cpu_sec(self) -> float:
        return self._figure("cpu.stat", "usage_usec") / 1e6

    def remove(self, patience_sec: float = 1.0) -> bool:
        """Remove the empty group. The last process takes a moment to leave after it was reaped."""
        until = time.monotonic() + patience_sec
        while not _remove(self.path):
            if time.monotonic() > until:
                return False
            time.sleep(0.01)
        return True

    def _figure(self, file: str, name: str) -> int:
        try:
            handle = os.open(os.path.join(self.path, file), os.O_RDONLY)
        except OSError:
            return 0
        try:
            words = os.read(handle, 4096).decode().split()
        except OSError:
            return 0
        finally:
            os.close(handle)
        return dict(zip(words[::2], map(int, words[1::2]), strict=False)).get(name, 0)

    def _write(self, file: str, text: str) -> bool:
        return _write(os.path.join(self.path, file), text)


def remove_all(base: str) -> None:
    """Remove the groups of killed keepers too. A group that is not empty stays."""
    _remove(base)


def _remove(group: str) -> bool:
    """Remove a group with all groups below it. False if one of them is not empty."""
    removed = True
    for path in reversed(_below(group)):
        try:
            os.rmdir(path)
        except FileNotFoundError:
            continue
        except OSError:
            removed = False
    return removed


def _below(group: str) -> list[str]:
    """The group and all groups below it; each one before those that it contains."""
    found = [group]
    for path in found:
        try:
            with os.scandir(path) as entries:
                found += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            continue
    return found


def _pids(group: str) -> list[int]:
    try:
        with open(os.path.join(group, "cgroup.procs"), "rb") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def _write(path: str, text: str) -> bool:
    try:
        handle = os.open(path, os.O_WRONLY)
    except OSError:
        return False
    try:
        os.write(handle, text.encode())
    except OSError:
        return False
    finally:
        os.close(handle)
    return True
