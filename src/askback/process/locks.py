"""Locks that end with their holder: on a file, held by an open descriptor, so that no crash can leave one behind."""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path


class FileLock:
    """An exclusive lock on a file. Handed to a child as a descriptor, it is held until the last holder is gone."""

    def __init__(self, fd: int, path: Path) -> None:
        self.fd = fd
        self.path = path

    @classmethod
    def take(cls, path: Path) -> FileLock | None:
        """The lock, or None when somebody else has it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return None
        return cls(fd, path)

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


def is_held(path: Path) -> bool:
    """Whether somebody has the lock. Takes it in shared mode for a moment, so two who look do not see each other."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


class Programs:
    """The programs that work on one data folder. Each holds a lock for as long as it lives."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def register(self) -> tuple[str, FileLock]:
        """A name for this program, and the lock that proves it alive."""
        while True:
            name = f"program-{secrets.token_hex(6)}"
            if (lock := FileLock.take(self._path(name))) is not None:
                os.write(lock.fd, str(os.getpid()).encode())
                return name, lock

    def is_alive(self, name: str) -> bool:
        return is_held(self._path(name))

    def pid(self, name: str) -> str:
        """The pid that a program wrote down, for people to read."""
        try:
            return self._path(name).read_text() or "unknown"
        except OSError:
            return "unknown"

    def forget_dead(self) -> None:
        """Remove the files of programs that were killed; whoever is not there is dead."""
        for path in self._folder.glob("program-*.lock"):
            if not is_held(path):
                path.unlink(missing_ok=True)

    def leave(self, name: str, lock: FileLock) -> None:
        self._path(name).unlink(missing_ok=True)
        lock.release()

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.lock"
