"""Packets between Askback, guardian and keepers, and a wait that a child can end. Standard library only.

A reader gets every packet that the other side has sent, and then an empty one. Only the empty one is the end. `Lease` says until when
engines may live without another packet from Askback, on the clock that also counts while a machine sleeps.
"""

from __future__ import annotations

import array
import ctypes
import os
import select
import signal
import socket
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeVar

    T = TypeVar("T")

SET_CHILD_SUBREAPER = 36
_SET_NAME = 15
_PACKET = 1 << 16
CHECK_SEC = 0.5
"""A wait does not count the time that the machine sleeps, so the clock is read this often."""
_NEVER = float("inf")


class ChildWatcher:
    """Wakes a wait when a child changes its state (SIGCHLD)."""

    def __init__(self) -> None:
        self._rung, self._ring = os.pipe()
        os.set_blocking(self._ring, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._ring, warn_on_full_buffer=False)

    def wait(self, files: Iterable[int], seconds: float | None) -> list[int]:
        """Wait until a file is readable, a child changes its state, or the time is up. Returns the readable files."""
        poll = select.poll()
        for file in (self._rung, *files):
            poll.register(file, select.POLLIN)
        ready = [file for file, _ in poll.poll(None if seconds is None else seconds * 1000)]
        if self._rung in ready:
            ready.remove(self._rung)
            os.read(self._rung, 4096)
        return ready

    def close(self) -> None:
        os.close(self._rung)
        os.close(self._ring)


def _past_reset(receive: Callable[[], T]) -> T:
    """If the other side closes without having read everything, Linux reports a reset: once, ahead of its packets."""
    try:
        return receive()
    except ConnectionResetError:
        return receive()


def receive_packet(connected: socket.socket) -> bytes | None:
    """A packet; empty if the other side has ended, None if there is none yet."""
    try:
        return _past_reset(lambda: connected.recv(_PACKET))
    except BlockingIOError:
        return None


def receive(connected: socket.socket) -> tuple[bytes, list[int], bool]:
    """A packet, the files that came with it, and whether all of them could be received. Empty if the other side has ended.

    `socket.recv_fds` does not set close-on-exec, so every program that is started would get them.
    """
    room = socket.CMSG_LEN(64 * 4)
    packet, ancillary, flags, _ = _past_reset(lambda: connected.recvmsg(256, room, socket.MSG_CMSG_CLOEXEC))
    files = array.array("i")
    for _, _, data in ancillary:
        files.frombytes(data)
    return packet, list(files), not flags & socket.MSG_CTRUNC


def failed(error: OSError | ValueError) -> str:
    """A failure in one line; the number is 0 for an error without one."""
    number = getattr(error, "errno", None) or 0
    return f"failed {number} {getattr(error, 'strerror', None) or error}".replace("\n", " ")


def send(file: int, text: str) -> None:
    """Does nothing if the other side has ended."""
    try:
        os.write(file, text.encode(errors="replace"))
    except OSError:
        return


def read(file: int) -> bytes:
    """Empty if the other side has ended."""
    return _past_reset(lambda: os.read(file, 256))


def prctl(option: int, value: int | bytes) -> None:
    if ctypes.pythonapi.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(f"prctl {option} is refused")


def rename(name: bytes) -> None:
    """Set the name that `ps` shows for this process."""
    prctl(_SET_NAME, name)


def boottime() -> float:
    """Seconds since the machine was started."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Lease:
    """It never ends unless a deadline was set."""

    def __init__(self) -> None:
        self._deadline = _NEVER

    @property
    def deadline(self) -> float | None:
        return None if self._deadline == _NEVER else self._deadline

    def extend(self, deadline: float) -> None:
        self._deadline = deadline

    @property
    def is_over(self) -> bool:
        return self._deadline != _NEVER and boottime() >= self._deadline

    @property
    def wait_sec(self) -> float | None:
        """How long to wait before the next look; None if it never ends."""
        return None if self._deadline == _NEVER else min(max(self._deadline - boottime(), 0.0), CHECK_SEC)
