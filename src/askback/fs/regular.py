"""Examining and opening files at paths that may be anything: too long, forbidden, or a pipe."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path


def is_kind(path: Path, kind: Callable[[Path], bool]) -> bool:
    """As `kind(path)`, for example `Path.is_file`, but False for a path that cannot be examined."""
    try:
        return kind(path)
    except (OSError, ValueError):
        return False


def open_regular(path: str | Path, folder: int | None = None) -> int | None:
    """A descriptor for reading, or None if there is no regular file. Follows no symlink. Raises `OSError`.

    Non-blocking: opening a named pipe in the place of the file would wait forever.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None
