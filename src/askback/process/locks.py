"""File locks that the kernel releases when their holder ends, so that no crash leaves one behind."""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from pathlib import Path

from askback.process.tree import boot_id

_TRIES = 100
_TRY_SEC = 0.001


class FileLock:
    """An exclusive lock on a file. A child can inherit the descriptor; the last holder releases the lock."""

    def __init__(self, fd: int, path: Path) -> None:
        self.fd = fd
        self.path = path

    @classmethod
    def take(cls, path: Path) -> FileLock | None:
        """The lock, or None if another process has it."""
        while True:
            fd = _open(path)
            if not _locked(fd):
                os.close(fd)
                return None
            if _is_at(path, fd):
                return cls(fd, path)
            # The previous holder removed the file after we opened it, so others would lock another file.
            os.close(fd)

    def held_by_descendant(self) -> bool:
        """Release our descriptor and return whether a process that inherited it still has the lock. If not, take it."""
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
    """Try to take the lock. `is_held` takes a shared lock for a moment; we wait for that."""
    for _ in range(_TRIES):
        if _flock(fd, fcntl.LOCK_EX):
            return True
        if not _flock(fd, fcntl.LOCK_SH):
            return False
        fcntl.flock(fd, fcntl.LOCK_UN)
        time.sleep(_TRY_SEC)
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
    """Whether a process has the lock. Takes a shared lock for a moment, so two checks do not see each other."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _flock(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)


def _identity(fd: int) -> str:
    """The file among all files of this machine, since it was booted."""
    status = os.fstat(fd)
    return f"{boot_id()} {status.st_dev}:{status.st_ino}"


def _is_original(path: Path) -> bool:
    """Whether the file is the one whose lock was taken by the program that wrote it."""
    try:
        with path.open("rb") as file:
            return file.read(200).decode(errors="replace").partition(" ")[2] == _identity(file.fileno())
    except FileNotFoundError:
        return False


class InstanceLocks:
    """The programs that work on one data folder. Each holds a lock as long as it lives."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def register(self) -> tuple[str, FileLock]:
        """A name for this program, and the lock that proves it alive."""
        while True:
            name = f"program-{secrets.token_hex(6)}"
            if (lock := self._take(name)) is not None:
                return name, lock

    def _take(self, name: str) -> FileLock | None:
        """The file contains the pid, for people, and which file it is: see `killed`."""
        lock = FileLock.take(self._path(name))
        if lock is not None:
            os.write(lock.fd, f"{os.getpid()} {_identity(lock.fd)}".encode())
        return lock

    def renew(self, name: str, lock: FileLock) -> FileLock | None:
        """Register again under the same name, if somebody has removed or replaced the file. None: nobody has."""
        if _is_at(self._path(name), lock.fd):
            return None
        self._path(name).unlink(missing_ok=True)
        again = self._take(name)
        lock.release()
        return again

    def is_alive(self, name: str) -> bool:
        return is_held(self._path(name))

    def killed(self) -> list[str]:
        """The programs of this machine that have ended without `leave`.

        The file in a copy of the folder says nothing: its program holds the lock of another file, perhaps on another machine.
        """
        return [path.stem for path in self._folder.glob("program-*.lock") if _is_original(path) and not is_held(path)]

    def take_exclusive(self) -> FileLock | None:
        """A lock for work that only one program may do at a time; None if another has it."""
        return FileLock.take(self._folder / "turn.lock")

    def forget_dead(self) -> None:
        """Remove the files of programs that were killed. A program without a file counts as dead."""
        for path in self._folder.glob("program-*.lock"):
            # Only with the lock: a program that registers at this moment would lose its file.
            if (lock := FileLock.take(path)) is not None:
                path.unlink(missing_ok=True)
                lock.release()

    def leave(self, name: str, lock: FileLock) -> None:
        self._path(name).unlink(missing_ok=True)
        lock.release()

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.lock"
