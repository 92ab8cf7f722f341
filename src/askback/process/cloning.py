"""One file's content into another: shared blocks where the file system has them, a copy elsewhere.

Never a hard link: whoever writes to one of the two in place must not change the other.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator

_FICLONE = 0x40049409
_CHUNK = 1 << 24
_CANNOT = frozenset({errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM})
"""How a kernel or a file system says that it has no such call, not that this one went wrong."""


class Cloner:
    """Remembers between which file systems blocks cannot be shared, so that each is asked once."""

    def __init__(self) -> None:
        self._strangers: set[tuple[int, int]] = set()

    def copy(self, source: int, target: int) -> None:
        """Bring the content of one open file into another, which is empty."""
        status = os.fstat(source)
        if not self._share(source, target, status):
            for begin, end in _extents(source, status):
                _copy_range(source, target, begin, end)
            if os.fstat(target).st_size < status.st_size:
                # What is left is a hole at the end, or the file has become shorter meanwhile.
                os.ftruncate(target, os.fstat(source).st_size)

    def _share(self, source: int, target: int, status: os.stat_result) -> bool:
        pair = (status.st_dev, os.fstat(target).st_dev)
        if pair in self._strangers:
            return False
        try:
            fcntl.ioctl(target, _FICLONE, source)
        except OSError as error:
            if error.errno not in _CANNOT:
                raise
            self._strangers.add(pair)
            return False
        return os.fstat(target).st_size == status.st_size


def _extents(fd: int, status: os.stat_result) -> Iterator[tuple[int, int]]:
    """Where a file has data; only a file that takes less room than it is long is searched for holes."""
    if status.st_blocks * 512 >= status.st_size:
        yield 0, status.st_size
        return
    at = 0
    while at < status.st_size:
        try:
            begin = os.lseek(fd, at, os.SEEK_DATA)
            at = os.lseek(fd, begin, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.EINVAL:
                yield at, status.st_size
            elif error.errno != errno.ENXIO:
                raise
            return
        yield begin, at


def _copy_range(source: int, target: int, begin: int, end: int) -> None:
    at = begin
    while at < end:
        try:
            count = os.copy_file_range(source, target, min(end - at, _CHUNK), at, at)
        except OSError as error:
            if error.errno not in _CANNOT:
                raise
            count = _copy_through(source, target, at, min(end - at, _CHUNK))
        if count == 0:
            return
        at += count


def _copy_through(source: int, target: int, at: int, count: int) -> int:
    """As `os.copy_file_range`, through our memory."""
    return os.pwrite(target, os.pread(source, min(count, 1 << 20), at), at)
