"""Whether a folder of this machine can be used: it is there, it can be written to, and its disk has room."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path

from askback.core.errors import FULL_DISK, TEMPORARY, RefusalCode

_READ_ONLY = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_NO_UNNAMED_FILES = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT})
_WRITTEN = b"x" * 65_536
_MB = 1_000_000
_LARGEST_RESERVE = 64 * _MB
_SHARE = 100


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
