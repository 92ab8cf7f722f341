"""The limits of one engine's process tree: a watchdog that measures its usage, and limits that the kernel enforces.

Part of the keeper: standard library only. Checks are less frequent if they are slow, or if nothing changes.
A breach is reported as one line: which limit, and the figure that exceeded it.
"""

from __future__ import annotations

import os
import resource
import signal
import time

from askback.process.guardian.control_group import THREADS_PER_PROCESS, ControlGroup
from askback.process.guardian.usage import Processes, UnlinkedFiles, Walk, free_bytes, reaped_sec

FIRST_CHECK_SEC = 0.05
CHECK_SEC = 0.2
IDLE_CHECK_SEC = 1.0
DISK_CHECK_SEC = 0.5
COST_FACTOR = 20
"""Checks take at most a twentieth of the time, so that watching costs no more of a core than that."""
SLICE_SEC = 0.05
RLIMIT_CPU_MARGIN_SEC = 5
OOM_SCORE_ADJ = 600
"""If memory runs out, the kernel kills an engine before processes with the default score 0. Raising it needs no privilege."""
_NEVER = float("inf")
_BY_SIGNAL = {signal.SIGXCPU: "cpu", signal.SIGXFSZ: "disk"}
_SHELL_SIGNAL = 128
"""A sandbox reports a signal that ended its program like a shell."""

Limits = dict[str, float]
"""`memory`, `disk` and `reserve` in bytes, `processes`, and `cpu` in seconds. 0 means no limit."""
NO_LIMITS: Limits = dict.fromkeys(("memory", "processes", "cpu", "disk", "reserve"), 0)


class Watchdog:
    """Watches one tree from its start to its end."""

    def __init__(self, limits: Limits, folders: list[bytes], group: ControlGroup | None) -> None:
        self.due = _NEVER
        self._limits = limits
        self._effective = {name: figure or _NEVER for name, figure in limits.items()}
        self._group = group
        self._earlier_sec = reaped_sec()
        self._disk = DiskWatch(self._effective, folders)
        self._known: set[int] = set()
        self._pause = CHECK_SEC
        self._before = (0, 0.0, 0)

    def prepare(self) -> None:
        """Set limits that the engine inherits. They do not affect this process, which writes no files."""
        _lower(resource.RLIMIT_CORE, 0)
        if disk := self._limits["disk"]:
            _lower(resource.RLIMIT_FSIZE, int(disk))
        if self._group is not None:
            self._group.limit(self._limits)
            self._group.enter()

    def started(self, engine: int) -> None:
        """Begin to watch. `engine` is 0 if nothing could be started."""
        if self._group is not None and not self._group.leave():
            raise OSError("the keeper cannot leave the engine's control group")
        if not engine:
            self.end()
            return
        self._harden(engine)
        if cpu := self._limits["cpu"]:
            soft = int(cpu) + RLIMIT_CPU_MARGIN_SEC
            _quietly_limit(engine, resource.RLIMIT_CPU, soft, soft + RLIMIT_CPU_MARGIN_SEC)
        if any(self._limits[name] for name in ("memory", "processes", "cpu", "disk")):
            self.due = time.monotonic() + FIRST_CHECK_SEC

    def check(self) -> str | None:
        """The limit that is exceeded, if any. Sets `due` for the next check."""
        began = time.monotonic()
        tree = Processes(os.getpid(), self._effective["processes"], self._earlier_sec)
        for pid in tree.pids:
            if pid not in self._known:
                self._harden(pid)
        self._known = set(tree.pids)
        found = self._over(tree) or self._disk.check(tree.pids)
        seen = (len(tree.pids), tree.cpu_sec, tree.estimated)
        self._pause = min(self._pause * 2, IDLE_CHECK_SEC) if seen == self._before else CHECK_SEC
        self._before = seen
        now = time.monotonic()
        self.due = _NEVER if found else now + max(self._pause, COST_FACTOR * (now - began - self._disk.last_sec))
        return found

    def at_exit(self, code: int) -> str | None:
        """The limit that ended the engine, or that its files exceed, if any."""
        if self._group is not None and (kind := self._group.exceeded()) is not None:
            return f"{kind} {int(self._limits[kind])}"
        number = code - _SHELL_SIGNAL if code > _SHELL_SIGNAL else -code
        for known, kind in _BY_SIGNAL.items():
            if number == known and self._limits[kind]:
                return f"{kind} {int(self._limits[kind])}"
        return self._disk.at_exit() if self._limits["disk"] else None

    def kill(self) -> None:
        if self._group is not None:
            self._group.kill()

    def end(self) -> None:
        if self._group is not None:
            self._group.remove()

    def _over(self, tree: Processes) -> str | None:
        limits = self._effective
        if self._group is not None and (kind := self._group.exceeded()) is not None:
            return f"{kind} {int(self._limits[kind])}"
        if len(tree.pids) > limits["processes"]:
            return f"processes {len(tree.pids)}"
        if tree.threads > limits["processes"] * THREADS_PER_PROCESS:
            return f"processes {tree.threads}"
        held = self._disk.in_memory
        if tree.estimated + held > limits["memory"] and (used := tree.memory(held)) > limits["memory"]:
            return f"memory {used}"
        cpu_sec = max(tree.cpu_sec, 0.0 if self._group is None else self._group.cpu_sec())
        return f"cpu {int(cpu_sec)}" if cpu_sec > limits["cpu"] else None

    def _harden(self, pid: int) -> None:
        """For every process when it is first seen: a child inherits this, but may have changed it."""
        _raise_oom_score(pid)
        if self._limits["processes"] and _has_own_users(pid):
            # Counted separately for each user namespace, so it limits a sandbox and nothing else.
            threads = int(self._limits["processes"]) * THREADS_PER_PROCESS
            _quietly_limit(pid, resource.RLIMIT_NPROC, threads, threads)


class DiskWatch:
    """The disk usage of the run's folders and of deleted files that are still open, measured in bounded steps."""

    def __init__(self, limits: dict[str, float], folders: list[bytes]) -> None:
        self.in_memory = 0
        self.last_sec = 0.0
        self._max_bytes = limits["disk"]
        self._memory_counts = limits["memory"] != _NEVER
        self._reserve = limits["reserve"] if limits["reserve"] != _NEVER else 0
        self._folders = folders
        self._at_first: int | None = None
        self._free_at_first = free_bytes(folders[0]) if folders else _NEVER
        self._nameless = 0
        self._walk: Walk | None = None
        self._due = 0.0

    def check(self, pids: list[int]) -> str | None:
        """One step of a measurement, if one is due."""
        began = time.monotonic()
        self.last_sec = 0.0
        if began < self._due or (self._max_bytes == _NEVER and not self._memory_counts):
            return None
        if self._walk is None:
            self._walk = Walk(self._folders if self._max_bytes != _NEVER else ())
            unlinked = UnlinkedFiles(pids)
            self._nameless, self.in_memory = unlinked.disk_bytes, unlinked.memory_bytes
        walk = self._walk
        ended = walk.step(SLICE_SEC, self._max_bytes - self._nameless)
        now = time.monotonic()
        self.last_sec = now - began
        if not ended:
            return None
        self._walk = None
        self._due = now + max(DISK_CHECK_SEC, COST_FACTOR * (walk.cost_sec + self.last_sec))
        if self._at_first is None:
            self._at_first = walk.used + self._nameless
        return self._judge(self._used(walk))

    def at_exit(self) -> str | None:
        """Measure once more, in one step: an engine may write faster than it is checked."""
        walk = Walk(self._folders)
        walk.step(SLICE_SEC, self._max_bytes)
        walk.close()
        used = self._used(walk)
        return f"disk {used}" if used > self._max_bytes else None

    def _used(self, walk: Walk) -> int:
        """If an engine hides folders from us, all space that the disk has lost since its start counts."""
        seen = walk.used + self._nameless
        if not walk.blind:
            return seen
        lost = self._free_at_first - free_bytes(self._folders[0])
        return max(seen, (self._at_first or 0) + int(max(lost, 0)))

    def _judge(self, used: int) -> str | None:
        if used > self._max_bytes:
            return f"disk {used}"
        # Below the reserve, only a run that used that much itself is ended, not every run.
        if self._reserve and self._folders and used - (self._at_first or 0) > self._reserve:
            free = free_bytes(self._folders[0])
            return f"reserve {int(free)}" if free < self._reserve else None
        return None


def _lower(kind: int, limit: int) -> None:
    _, hard = resource.getrlimit(kind)
    figure = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(kind, (figure, figure))


def _quietly_limit(pid: int, kind: int, soft: int, hard: int) -> None:
    """Ignores a process that has ended or already has a lower limit."""
    try:
        resource.prlimit(pid, kind, (soft, hard))
    except (OSError, ValueError):
        return


def _raise_oom_score(pid: int) -> None:
    try:
        file = os.open(f"/proc/{pid}/oom_score_adj", os.O_RDWR)
    except OSError:
        return
    try:
        if int(os.read(file, 16)) < OOM_SCORE_ADJ:
            os.write(file, str(OOM_SCORE_ADJ).encode())
    except OSError:
        return
    finally:
        os.close(file)


def _has_own_users(pid: int) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/ns/user") != os.readlink("/proc/self/ns/user")  # noqa: PTH115
    except OSError:
        return False
