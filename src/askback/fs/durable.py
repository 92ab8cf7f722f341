"""Makes files survive a power failure before the row that refers to them is committed: one sync for all of them."""

from __future__ import annotations

import ctypes
import os
import threading
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

from askback.fs.atomic import sync_folder

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


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
