"""Locks that end with their holder: on a file, held by an open descriptor, so that no crash can leave one behind."""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from pathlib import Path

_LOOKS = 100
_LOOK_SEC = 0.001


class FileLock:
    """An exclusive lock on a file. Handed to a child as a descriptor, it is held until the last holder is gone."""

    def __init__(self, fd: int, path: Path) -> None:
        self.fd = fd
        self.path = path

    @classmethod
    def take(cls, path: Path) -> FileLock | None:
        """The lock, or None when somebody else has it."""
        while True:
            fd = _open(path)
            if not _locked(fd):
                os.close(fd)
                return None
            if _is_at(path, fd):
                return cls(fd, path)
            # Whoever had it removed the file between our opening and our locking it: others would lock another one.
            os.close(fd)

    def outlived(self) -> bool:
        """Let go of our own hold and say whether somebody we handed the lock to still has it; takes it again if not."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        again = FileLock.take(self.path)
        if again is None:
            return True
        self.fd = again.fd
        return False

    def release(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, flags, 0o600)


def _locked(fd: int) -> bool:
    """Whether we have the lock now. Whoever only looks has it for a moment, and shares it; that is waited for."""
    for _ in range(_LOOKS):
        if _flock(fd, fcntl.LOCK_EX):
            return True
        if not _flock(fd, fcntl.LOCK_SH):
            return False
        fcntl.flock(fd, fcntl.LOCK_UN)
        time.sleep(_LOOK_SEC)
    return False


def _flock(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except FileNotFoundError:
        return False


def is_held(path: Path) -> bool:
    """Whether somebody has the lock. Takes it in shared mode for a moment, so two who look do not see each other."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _flock(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)


class Instances:
    """The programs that work on one data folder. Each holds a lock for as long as it lives."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def register(self) -> tuple[str, FileLock]:
        """A name for this program, and the lock that proves it alive. Its pid stands in the file, for people."""
        while True:
            name = f"program-{secrets.token_hex(6)}"
            if (lock := FileLock.take(self._path(name))) is not None:
                os.write(lock.fd, str(os.getpid()).encode())
                return name, lock

    def is_alive(self, name: str) -> bool:
        return is_held(self._path(name))

    def take_turn(self) -> FileLock | None:
        """For what one program at a time may do; None while another does it."""
        return FileLock.take(self._folder / "turn.lock")

    def forget_dead(self) -> None:
        """Remove the files of programs that were killed; whoever is not there is dead."""
        for path in self._folder.glob("program-*.lock"):
            # With the lock in hand: one that registers just now would lose its file.
            if (lock := FileLock.take(path)) is not None:
                path.unlink(missing_ok=True)
                lock.release()

    def leave(self, name: str, lock: FileLock) -> None:
        self._path(name).unlink(missing_ok=True)
        lock.release()

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.lock"
