"""Examining and opening files at paths that may be anything, and whether a folder of this machine can be used."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

from askback.core.errors import FULL_DISK, TEMPORARY, RefusalCode, raise_if_temporary
from askback.fs.walk import FILE, FOLDER, FileLeased, closing, open_folder

_READ_ONLY = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_NO_UNNAMED_FILES = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT})
_WRITTEN = b"x" * 65_536
_MB = 1_000_000
_LARGEST_RESERVE = 64 * _MB
_SHARE = 100


def is_kind(path: Path, kind: Callable[[Path], bool]) -> bool:
    """Return `kind(path)`, for example `Path.is_file`; False for a path that cannot be examined: too long, or forbidden."""
    try:
        return kind(path)
    except (OSError, ValueError):
        return False


def open_regular(path: str | Path, folder: int | None = None) -> int | None:
    """A descriptor for reading, or None if there is no regular file. Follows no symlink. Raises `OSError`.

    Non-blocking: opening a named pipe in the place of the file would wait forever.
    """
    try:
        descriptor = os.open(path, FILE, dir_fd=folder)
    except BlockingIOError:
        raise FileLeased(path) from None
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderProblem:
    code: RefusalCode
    message: str


def problem_of(folder: Path, *, min_free_bytes: int | None, thorough: bool) -> FolderProblem | None:
    """`min_free_bytes`: None for a hundredth of the disk, at most 64 MB. `thorough`: also write something. Blocks."""
    try:
        disk = os.statvfs(folder)
        free, least = disk.f_bavail * disk.f_frsize, min_free_bytes
        if least is None:
            least = min(_LARGEST_RESERVE, disk.f_blocks * disk.f_frsize // _SHARE)
        if free < max(least, 1) or (disk.f_files and not disk.f_favail):
            message = f"the disk of {folder} has {free / _MB:.0f} MB free, and {least / _MB:.0f} MB are needed"
            return FolderProblem(code=RefusalCode.DISK_FULL, message=message)
        if not os.access(folder, os.W_OK | os.X_OK):
            return FolderProblem(code=RefusalCode.STORE_READ_ONLY, message=f"{folder} cannot be written to")
        if thorough:
            _write_something(folder)
    except OSError as error:
        return FolderProblem(code=code_of(error), message=f"{folder} cannot be used: {error.strerror or error}")
    return None


def _write_something(folder: Path) -> None:
    """In a file without a name, which nobody finds and which is gone when it is closed."""
    if not hasattr(os, "O_TMPFILE"):
        return
    try:
        fd = os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno in _NO_UNNAMED_FILES and folder.is_dir():
            return
        raise
    try:
        os.write(fd, _WRITTEN)
    finally:
        os.close(fd)


def code_of(error: OSError) -> RefusalCode:
    if error.errno in FULL_DISK:
        return RefusalCode.DISK_FULL
    if error.errno in TEMPORARY:
        return RefusalCode.RESOURCE_SHORTAGE
    return RefusalCode.STORE_READ_ONLY if error.errno in _READ_ONLY else RefusalCode.STORE_UNUSABLE


class Access(StrEnum):
    """What other users of this machine may do in a folder."""

    NONE = "none"
    READ = "read"
    WRITE = "write"


def access_of_others(folder: Path) -> Access:
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & 0o022:
        return Access.WRITE
    return Access.READ if mode & 0o055 else Access.NONE


def revoke_write_access(folder: Path, own_file: str) -> bool:
    """Deny write access to others. False if the folder may not be only ours: another owner, or other files in it."""
    status = folder.stat()
    names = {path.name for path in folder.iterdir()}
    if status.st_uid != os.geteuid() or status.st_mode & stat.S_ISVTX or (names and own_file not in names):
        return False
    folder.chmod(stat.S_IMODE(status.st_mode) & ~0o022)
    return True
