"""Writes that survive a power failure: files that are replaced as a whole, and one sync for many files."""

from __future__ import annotations

import ctypes
import fcntl
import os
import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def write_private(path: Path, content: bytes) -> None:
    """Replace the file atomically: a reader sees either the old or the new content, even after a power failure."""
    partial = write_beside(path, content)
    try:
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_beside(path: Path, content: bytes) -> Path:
    """Write a new file in the same folder, and return its path."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(fd)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return partial


def make_private(folder: Path) -> None:
    """Create a folder and its missing parents for their owner alone. `Path.mkdir` gives its mode to the last one only."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        if folder.parent == folder:
            raise
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def sync_folder(folder: Path) -> None:
    """Make the entries of a folder survive a power failure."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file at `path`, waiting for it if needed. One thread of one process holds it at a time."""
    make_private(path.parent)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


class GroupSync:
    """Syncs the file system of a folder. Thread-safe: callers that arrive while a sync runs share the next one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running = threading.Lock()
        self._next: Future[None] = Future()
        """The sync that has not begun yet. It covers everything that is written before it begins."""

    def sync(self, tree: Path) -> None:
        """Return once everything in `tree`, a folder below this one, is on the disk. Blocks. Raises `OSError`."""
        if not hasattr(ctypes.CDLL(None), "syncfs"):
            _sync_each(tree, self._folder)
            return
        shared = self._next
        with self._running:
            if not shared.done():
                self._next = Future()
                try:
                    self._sync()
                except OSError as error:
                    shared.set_exception(error)
                else:
                    shared.set_result(None)
        shared.result()

    def _sync(self) -> None:
        descriptor = os.open(self._folder, _FOLDER)
        try:
            if ctypes.CDLL(None, use_errno=True).syncfs(descriptor):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), os.fspath(self._folder))
        finally:
            os.close(descriptor)


def _sync_each(tree: Path, top: Path) -> None:
    """In one pass, for systems that cannot sync a file system. Follows no links."""
    for _, _, files, folder in os.fwalk(tree):
        for name in files:
            with suppress(OSError):
                descriptor = os.open(name, _FILE, dir_fd=folder)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
        os.fsync(folder)
    while tree != top:
        tree = tree.parent
        sync_folder(tree)
