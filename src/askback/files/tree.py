"""What lies below a folder that an engine could write to: links are never followed, locked folders are unlocked.

It goes down without recursion, since an engine can nest folders deeper than Python's stack.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from askback.files.beneath import remove_at

READABLE = 0o500
WRITABLE = 0o700


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """By paths below the folder, which itself is ''. A folder stands before all that is in it."""

    folders: dict[str, os.stat_result] = field(default_factory=dict)
    files: dict[str, os.stat_result] = field(default_factory=dict)
    links: dict[str, os.stat_result] = field(default_factory=dict)
    specials: list[str] = field(default_factory=list)
    """Sockets, pipes and devices."""
    unlocked: list[tuple[Path, int]] = field(default_factory=list)
    """Folders that were given more rights, with those they had."""


def list_tree(base: Path, need: int) -> Listing:
    """List it, with at least the rights `need` for ourselves on every folder."""
    listing = Listing()
    status = base.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(f"{base} is not a folder any more; something else was put in its place")
    pending = [("", status)]
    while pending:
        path, status = pending.pop()
        _unlock(base / path, stat.S_IMODE(status.st_mode), need, listing)
        # What is gone meanwhile is left out.
        with suppress(FileNotFoundError), os.scandir(base / path) as entries:
            listing.folders[path] = status
            pending += _sort(f"{path}/" if path else "", entries, listing)
    return listing


def lock_again(listing: Listing) -> None:
    for path, mode in reversed(listing.unlocked):
        with suppress(FileNotFoundError):
            path.chmod(mode)


def remove_tree(base: Path) -> None:
    """Remove a folder with all that is in it, also where an engine has locked a folder, or put something in its place."""
    with suppress(FileNotFoundError):
        parent = os.open(base.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            remove_at(parent, base.name)
        finally:
            os.close(parent)


def _unlock(folder: Path, mode: int, need: int, listing: Listing) -> None:
    if mode & need != need:
        with suppress(PermissionError, FileNotFoundError):
            folder.chmod(mode | need)
            listing.unlocked.append((folder, mode))


def _sort(prefix: str, entries: Iterator[os.DirEntry[str]], listing: Listing) -> Iterator[tuple[str, os.stat_result]]:
    """Note all entries of one folder; yields the folders among them."""
    for entry in entries:
        path = prefix + entry.name
        with suppress(FileNotFoundError):
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                yield path, status
            elif stat.S_ISREG(status.st_mode):
                listing.files[path] = status
            elif stat.S_ISLNK(status.st_mode):
                listing.links[path] = status
            else:
                listing.specials.append(path)


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
