"""Copies a tree that an engine wrote into a new folder.

Reads through directory descriptors without following a link, and changes nothing in the source. Regular files, folders
and links that stay inside the tree are copied; links that lead out, sockets, pipes and devices are left out.
"""

# Strings instead of pathlib where a run must start fast.
# ruff: noqa: PTH102, PTH115, PTH116, PTH211
from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import IO

from askback.fs import beneath
from askback.fs.walk import FILE, FileLeased, Folder, TreeTooLarge, closing, open_file, open_tree, read_link

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_CHUNK = 1 << 20
_ZEROS = bytes(4096)
_FICLONE = 0x40049409
_CLONE_CHUNK = 1 << 24
_CANNOT = frozenset({errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM})
"""Errors that mean the kernel or the file system does not support the call, rather than that it failed."""


def copy_plain_tree(source: Path, target: Path) -> None:
    """Copy a tree that nobody else changes. Modes are kept, as far as the umask allows; times are not.

    Takes a third of the system calls of `shutil.copytree`.
    """
    pending = [(os.fspath(source), os.fspath(target))]
    while pending:
        folder, copy = pending.pop()
        os.mkdir(copy, stat.S_IMODE(os.stat(folder).st_mode) | stat.S_IRWXU)
        with os.scandir(folder) as entries:
            for entry in entries:
                place = f"{copy}/{entry.name}"
                if entry.is_symlink():
                    os.symlink(os.readlink(entry.path), place)
                elif entry.is_dir():
                    pending.append((entry.path, place))
                else:
                    _copy_plain_file(entry.path, place)


def _copy_plain_file(source: str, target: str) -> None:
    file = os.open(source, FILE)
    try:
        status = os.fstat(file)
        copy = os.open(target, _NEW_FILE, stat.S_IMODE(status.st_mode))
        try:
            while content := os.read(file, _CHUNK):
                while content:
                    content = content[os.write(copy, content) :]
        finally:
            os.close(copy)
    finally:
        os.close(file)


class CopyRefused(Exception):
    """The tree is larger than allowed, or a part of it cannot be read. The message is for people."""


class SourceChanged(CopyRefused):
    """Something changed the tree while it was copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyLimits:
    """0 means no limit of bytes. `reserve_bytes` must stay free on the disk."""

    max_bytes: int = 0
    reserve_bytes: int = 0
    max_entries: int = 100_000
    max_depth: int = 200


class TreeCopy:
    """Copies trees below `base`. Several copies share the limits."""

    def __init__(self, base: Path, limits: CopyLimits, checkpoint: Callable[[], None]) -> None:
        self._base = base
        self._limits = limits
        self._checkpoint = checkpoint
        self._cloner = Cloner(checkpoint)
        self._bytes = 0
        self._entries = 0
        self._made: list[str] = []

    def copy(self, root: Path, path: str, name: str, *, links: bool = True, leave_out: Collection[str] = ()) -> None:
        """Copy the folder `path` below `root` to `name` below `base`. A source that does not exist is an empty folder.

        An engine must not control `root` itself. `links`: whether links inside the tree are copied. `leave_out`: casefolded
        names that are left out at the top.
        """
        beneath.make_folder(self._base, name)
        with ExitStack() as opened:
            try:
                tree = opened.enter_context(open_tree(root, *path.split("/")))
            except FileNotFoundError:
                return
            except (NotADirectoryError, PermissionError):
                # A link, or something else that an engine put in the place of the folder.
                raise CopyRefused(f"{path} is not a folder that can be read") from None
            try:
                for folder in tree.walk(failed=_refuse):
                    self._checkpoint()
                    self._copy_folder(folder, name, links, leave_out)
            except TreeTooLarge as error:
                raise CopyRefused(str(error)) from None

    def sync(self) -> None:
        """Make the copies durable. At the end, because that is several times faster than one by one."""
        for name in self._made:
            with closing(os.open(self._base / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)) as fd:
                os.fsync(fd)

    def _copy_folder(self, folder: Folder, top: str, links: bool, leave_out: Collection[str]) -> None:
        """Copy the files and links of one folder. Its folders follow."""
        depth = folder.depth
        for name, status in folder.sorted_entries(self._limits.max_entries - self._entries + 1):
            if not depth and name.casefold() in leave_out:
                continue
            self._count(depth)
            target = f"{top}/{folder.place(name)}"
            with _reading(target):
                if stat.S_ISDIR(status.st_mode):
                    beneath.make_folder(self._base, target)
                    folder.descend(name, status)
                elif stat.S_ISREG(status.st_mode):
                    self._copy_file(folder.fd, name, status, target)
                elif stat.S_ISLNK(status.st_mode) and links:
                    leads_to = read_link(folder.fd, name)
                    if stays_inside(leads_to, depth):
                        beneath.link(self._base, target, leads_to)

    def _count(self, depth: int) -> None:
        self._entries += 1
        if self._entries > self._limits.max_entries:
            raise CopyRefused(f"there are more than {self._limits.max_entries:,} files and folders")
        if depth > self._limits.max_depth:
            raise CopyRefused(f"its folders are nested deeper than {self._limits.max_depth} levels")

    def _copy_file(self, folder: int, name: str, listed: os.stat_result, target: str) -> None:
        try:
            opened = open_file(folder, name, listed)
        except (PermissionError, FileLeased):
            raise CopyRefused(f"{target} cannot be read") from None
        with closing(opened) as source:
            status = os.fstat(source)
            self.copy_open_file(source, target, stat.S_IMODE(status.st_mode) & 0o777, status.st_mtime_ns)

    def copy_open_file(self, source: int, target: str, mode: int, mtime_ns: int) -> None:
        """Copy an open regular file."""
        self._add_bytes(os.fstat(source))
        with beneath.create(self._base, target) as file:
            self._cloner.copy(source, file.fileno())
            os.fchmod(file.fileno(), mode | 0o600)
            os.utime(file.fileno(), ns=(mtime_ns, mtime_ns))
        self._made.append(target)

    def make_folder(self, target: str) -> None:
        beneath.make_folder(self._base, target)

    def make_link(self, target: str, leads_to: str) -> None:
        beneath.link(self._base, target, leads_to)

    def _add_bytes(self, status: os.stat_result) -> None:
        self._bytes += max(status.st_blocks * 512, min(status.st_size, 512))
        limit = self._limits.max_bytes
        if limit and self._bytes > limit:
            raise CopyRefused(f"the files take more than {limit // 1_048_576} MB, the limit for one run (limits.disk)")
        disk = os.statvfs(self._base)
        if disk.f_bavail * disk.f_frsize < self._limits.reserve_bytes + status.st_blocks * 512:
            raise CopyRefused("the disk has too little free space (limits.disk_reserve)")


def stays_inside(leads_to: str, depth: int) -> bool:
    """Whether a link in a folder of this depth stays in its tree.

    `..` is accepted only at the start: after another link, it would lead somewhere else than it seems.
    """
    parts = leads_to.split("/")
    up = next((count for count, part in enumerate(parts) if part != ".."), len(parts))
    return bool(leads_to) and not leads_to.startswith("/") and up <= depth and ".." not in parts[up:]


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """Raise `SourceChanged` if something else is where an entry was listed."""
    try:
        yield
    except FileNotFoundError:
        raise SourceChanged(f"{path} was changed while it was copied") from None


def _refuse(path: str, error: OSError) -> None:
    with _reading(path):
        raise CopyRefused(f"{path} is not a folder that can be read") if isinstance(error, PermissionError) else error


class Cloner:
    """Copies files, sharing blocks where possible. Remembers which pairs of file systems cannot share blocks."""

    def __init__(self, checkpoint: Callable[[], None] = lambda: None) -> None:
        self._checkpoint = checkpoint
        self._strangers: set[tuple[int, int]] = set()

    def copy(self, source: int, target: int) -> None:
        """Copy the content of one open file into another, empty one."""
        status = os.fstat(source)
        if not self._share(source, target, status):
            for begin, end in extents(source, status):
                _copy_range(source, target, begin, end, self._checkpoint)
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


def _copy_range(source: int, target: int, begin: int, end: int, checkpoint: Callable[[], None]) -> None:
    at = begin
    while at < end:
        checkpoint()
        try:
            count = os.copy_file_range(source, target, min(end - at, _CLONE_CHUNK), at, at)
        except OSError as error:
            if error.errno not in _CANNOT:
                raise
            count = os.pwrite(target, os.pread(source, min(end - at, 1 << 20), at), at)
        if count == 0:
            return
        at += count
