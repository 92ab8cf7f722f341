"""What guardian and keepers share: packets with files, and a wait that a child can end. Standard library only."""

from __future__ import annotations

import array
import ctypes
import os
import select
import signal
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

SET_CHILD_SUBREAPER = 36
_SET_NAME = 15


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


def receive(askback: socket.socket) -> tuple[bytes, list[int], bool]:
    """A packet, the files that came with it, and whether all of them could be received.

    `socket.recv_fds` does not set close-on-exec, so every program that is started would get them.
    """
    packet, ancillary, flags, _ = askback.recvmsg(256, socket.CMSG_LEN(64 * 4), socket.MSG_CMSG_CLOEXEC)
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
    try:
        return os.read(file, 256)
    except ConnectionError:
        return b""


def prctl(option: int, value: int | bytes) -> None:
    if ctypes.pythonapi.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(f"prctl {option} is refused")


def rename(name: bytes) -> None:
    """Set the name that `ps` shows for this process."""
    prctl(_SET_NAME, name)
