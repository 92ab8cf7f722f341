"""Lists and removes whole trees that an engine can write to, and copies the contents of files."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import IO

from askback.fs.beneath import remove_at
from askback.fs.walk import Tree, closing

READABLE = 0o500
WRITABLE = 0o700
_ZEROS = bytes(4096)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The entries of a tree by relative path; '' is the top. A folder precedes its entries."""

    folders: dict[str, os.stat_result] = field(default_factory=dict)
    files: dict[str, os.stat_result] = field(default_factory=dict)
    links: dict[str, os.stat_result] = field(default_factory=dict)
    specials: dict[str, os.stat_result] = field(default_factory=dict)
    """Sockets, pipes and devices."""


def list_tree(tree: Tree) -> Listing:
    """List a whole tree. A folder that was removed or replaced meanwhile is left out."""
    listing = Listing()
    kinds = {stat.S_IFREG: listing.files, stat.S_IFLNK: listing.links}
    for folder in tree.walk(remember=True):
        listing.folders[folder.path] = tree.listed[folder.path]
        prefix = folder.place("")
        for name, status in folder.entries():
            kind = stat.S_IFMT(status.st_mode)
            if kind == stat.S_IFDIR:
                folder.descend(name, status)
            else:
                kinds.get(kind, listing.specials)[prefix + name] = status
    return listing


def remove_tree(base: Path) -> None:
    """Remove a tree, even if an engine has taken permissions away or replaced the folder with something else."""
    with (
        suppress(FileNotFoundError),
        closing(os.open(base.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as parent,
    ):
        remove_at(parent, base.name)


_FICLONE = 0x40049409
_CHUNK = 1 << 24
_CANNOT = frozenset({errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM})
"""Errors that mean the kernel or the file system does not support the call, rather than that it failed."""


class Cloner:
    """Copies files, sharing blocks where possible. Remembers which pairs of file systems cannot share blocks."""

    def __init__(self) -> None:
        self._strangers: set[tuple[int, int]] = set()

    def copy(self, source: int, target: int) -> None:
        """Copy the content of one open file into another, empty one."""
        status = os.fstat(source)
        if not self._share(source, target, status):
            for begin, end in extents(source, status):
                _copy_range(source, target, begin, end)
            if os.fstat(target).st_size < status.st_size:
                # The rest is a hole at the end, or the file was truncated meanwhile.
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


def extents(fd: int, status: os.stat_result) -> Iterator[tuple[int, int]]:
    """The ranges of a file that hold data. Only a file with fewer blocks than its size is searched for holes."""
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


def write_or_skip(file: IO[bytes], piece: bytes) -> None:
    """Write a piece of a new file, and leave holes for its blocks of zeros. Truncate the file where it ends."""
    if _ZEROS not in piece:
        file.write(piece)
        return
    blocks = [piece[at : at + len(_ZEROS)] for at in range(0, len(piece), len(_ZEROS))]
    for is_hole, group in groupby(blocks, key=lambda block: not block.strip(b"\0")):
        part = b"".join(group)
        if is_hole:
            file.seek(len(part), os.SEEK_CUR)
        else:
            file.write(part)


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
    """As `os.copy_file_range`, through user space."""
    return os.pwrite(target, os.pread(source, min(count, 1 << 20), at), at)
