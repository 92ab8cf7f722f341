"""Files that are replaced whole, and locks between processes. Both are readable by the user alone."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Replace the file atomically: a reader sees the old content or the new, even after a power cut."""
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


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait for the lock file at `path`, and hold it: one process and thread at a time."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
