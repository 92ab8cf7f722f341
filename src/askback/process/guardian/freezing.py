"""Suspends all processes of an engine, so that its files do not change while they are saved.

By the control group, if the engine has one. A process that is not in it is stopped by a signal. Such a process could
have arranged its own continuation, for example by a timer that sends SIGCONT: `thaw` finds out whether one has run.
Part of the keeper: standard library only.
"""

# Without pathlib, which would double the start-up time of the guardian.
# ruff: noqa: PTH208
from __future__ import annotations

import os
import signal
import time

from askback.process.guardian.descendants import Family, descendants, signal_each

TYPE_CHECKING = False
if TYPE_CHECKING:
    from askback.process.guardian.control_group import ControlGroup

FREEZE_SEC = 2.0
_POLL_SEC = 0.002
_STOPPED = (b"T", b"t")
_ENDED = (b"Z", b"X")

Threads = tuple[tuple[str, bytes], ...]
"""How often each thread of a stopped process has been scheduled, as in its status."""
_IN_GROUP: Threads = (("", b""),)
"""A process in the frozen group: it may be scheduled, but not leave the kernel."""


class Freezer:
    """Suspends the descendants of this process."""

    def __init__(self, group: ControlGroup | None) -> None:
        self._group = group
        self._stopped: Family = {}
        """What was stopped by us: a process that was stopped before is not continued."""
        self._frozen: dict[int, Threads] | None = None
        self._grouped = False
        """Whether the processes in the group are frozen."""

    def freeze(self) -> bool:
        """Suspend all processes. False if that is not possible in time; then none is suspended.

        Two passes in a row must find the same suspended processes, and no others: one that forks while it is being stopped
        is then found. One that has ended counts as well, for it may have left a process that the pass did not see.
        """
        until = time.monotonic() + FREEZE_SEC
        self._grouped = self._group is not None and self._group.freeze(until)
        before: dict[int, Threads] = {}
        while time.monotonic() < until:
            vanished: list[int] = []
            seen, running = self._look(descendants(os.getpid(), vanished=vanished))
            if not running and not vanished and seen == before:
                self._frozen = _living(seen)
                return True
            before = {} if running or vanished else seen
            signal_each(running, signal.SIGSTOP)
            self._stopped |= running
            time.sleep(_POLL_SEC if running else 0)
        self.thaw()
        return False

    def thaw(self) -> bool:
        """Continue what `freeze` has suspended. True if no process has run since then."""
        frozen, self._frozen = self._frozen, None
        seen, running = self._look(descendants(os.getpid())) if frozen is not None else ({}, {})
        unchanged = not running and _living(seen) == frozen
        if self._group is not None:
            self._group.thaw()
        signal_each(self._stopped, signal.SIGCONT)
        self._stopped = {}
        return unchanged

    def _look(self, family: Family) -> tuple[dict[int, Threads], Family]:
        """The processes that cannot run, and those that can."""
        inside = self._group.pids() if self._grouped and self._group is not None else set()
        seen: dict[int, Threads] = {}
        running: Family = {}
        for pid, each in family.items():
            threads = _IN_GROUP if pid in inside else _threads(pid)
            if threads is None:
                running[pid] = each
            else:
                seen[pid] = threads
        return seen, running


def _living(seen: dict[int, Threads]) -> dict[int, Threads]:
    return {pid: threads for pid, threads in seen.items() if threads}


def _threads(pid: int) -> Threads | None:
    """The threads of a stopped process; none if it has ended and is not reaped. None if one of them can run, or could."""
    found: list[tuple[str, bytes]] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            state, switches = _status(f"/proc/{pid}/task/{thread}/status")
            if state in _STOPPED:
                found.append((thread, switches))
            elif state not in _ENDED:
                return None
    except (OSError, IndexError):
        return None
    return tuple(found)


def _status(path: str) -> tuple[bytes, bytes]:
    """The state of a thread, and how often it was scheduled."""
    file = os.open(path, os.O_RDONLY)
    try:
        text = os.read(file, 1 << 14)
    finally:
        os.close(file)
    return text.partition(b"\nState:")[2].split(None, 1)[0], text.partition(b"\nvoluntary_ctxt_switches:")[2]
