"""Examining and opening files at paths that may be anything: too long, forbidden, or a pipe."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from askback.core.errors import raise_if_temporary
from askback.fs.walk import FOLDER, closing, open_folder


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


def open_below(base: Path, path: str) -> BinaryIO | None:
    """Open a file in `base` without following a link at any step. None if there is no such file."""
    parts = path.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        return None
    try:
        folder = os.open(base, FOLDER)
        for part in parts[:-1]:
            with closing(folder):
                folder = open_folder(folder, part)
        with closing(folder):
            found = open_regular(parts[-1], folder)
    except UnicodeEncodeError:
        return None
    except OSError as fault:
        raise_if_temporary(fault)
        return None
    return None if found is None else os.fdopen(found, "rb")


def read_below(base: Path, path: str, max_bytes: int) -> bytes | None:
    """The content of a file in `base`, opened as by `open_below`; of a larger one, its first `max_bytes` and one more."""
    file = open_below(base, path)
    if file is None:
        return None
    with file:
        return file.read(max_bytes + 1)
