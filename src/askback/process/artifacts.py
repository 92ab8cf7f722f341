"""Reading what an engine left: only plain files that really lie below the folder, whatever links were planted there."""

from __future__ import annotations

import os
import stat
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

_CHUNK = 1 << 20


def open_below(base: Path, path: str) -> BinaryIO | None:
    """Open a file below `base` without following a link on any step of the way. None when there is no such file."""
    parts = path.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        return None
    try:
        folder = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        for part in parts[:-1]:
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = below
        return _open_plain(parts[-1], folder)
    except (OSError, UnicodeEncodeError):
        return None
    finally:
        os.close(folder)


def _open_plain(name: str, folder: int) -> BinaryIO | None:
    """Not blocking, so that a pipe in the place of a file cannot hold us."""
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        return None
    return os.fdopen(fd, "rb")


def is_text(name: str) -> bool:
    """Whether a file's name can be told; on a disk it may be any bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def bundle(paths: Iterable[str], opened: Callable[[str], BinaryIO | None]) -> BinaryIO:
    """Files as one zip, in a temporary file that is gone when it is closed. One that is gone meanwhile is left out."""
    target = tempfile.TemporaryFile(prefix="askback-bundle-")  # noqa: SIM115 (the caller closes it)
    try:
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in paths:
                source = opened(path)
                if source is not None:
                    _add(archive, path, source)
    except BaseException:
        target.close()
        raise
    target.seek(0)
    return target


def _add(archive: zipfile.ZipFile, path: str, source: BinaryIO) -> None:
    """As long as it is now: a file that an engine keeps writing to would never end."""
    with source, archive.open(path, "w", force_zip64=True) as entry:
        left = os.fstat(source.fileno()).st_size
        while left > 0 and (chunk := source.read(min(left, _CHUNK))):
            left -= len(chunk)
            entry.write(chunk)
