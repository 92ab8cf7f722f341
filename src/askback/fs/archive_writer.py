"""Packs trees that an engine wrote into one `tar.zst`.

Reads through directory descriptors without following a link. Regular files, folders and links are packed; sockets, pipes
and devices are left out, and a hard link becomes a separate file. Holes stay holes. The reader is `archive_reader`.
"""

# pathlib cannot work relative to a directory descriptor.
# ruff: noqa: PTH101
from __future__ import annotations

import errno
import itertools
import os
import stat
import tarfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from askback.files import beneath
from askback.files.tree import extents

END = "askback.end"
"""The last entry: an archive without it was cut off."""
LEVEL = 1
"""Of zstandard. Higher levels take ten times as long for a fifth of the size."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PIECE = 1 << 20
_BLOCK = tarfile.BLOCKSIZE
_REPLACED = frozenset((errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.ENODEV))
"""It is a link or a socket now."""
_MAX_EXTENTS = 10_000
"""A file with more parts than this is packed with its holes as zeros."""

Parts = tuple[str, ...]
"""A path below the root."""
State = tuple[int, int, int]


class ArchiveRefused(Exception):
    """The trees are larger than allowed, or cannot be read. The message is for people."""


class TreeChanged(Exception):
    """Something changed the trees while they were packed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveLimits:
    max_bytes: int = 20_000_000_000
    """Of all contents, without holes."""
    max_entries: int = 200_000
    max_depth: int = 200


def pack(
    root: Path,
    names: Sequence[str],
    target: BinaryIO,
    *,
    leave_out: Collection[str] = (),
    limits: ArchiveLimits | None = None,
    checkpoint: Callable[[], None] = lambda: None,
) -> None:
    """Write the files and folders `names` below `root` as one archive. One that does not exist is left out.

    `leave_out` has paths below `root`. An engine must not control `root` itself. Raises `TreeChanged` if anything was
    written meanwhile, and `ArchiveRefused`.
    """
    # An extra.
    import zstandard

    compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
    with _opened(os.open(root, _FOLDER)) as top, compressor.stream_writer(target, closefd=False) as stream:
        packing = _Packing(top, stream.write, frozenset(leave_out), limits or ArchiveLimits(), checkpoint)
        try:
            for name in names:
                packing.add(tuple(name.split("/")))
            packing.end()
        finally:
            packing.lock_again()


class _Packing:
    def __init__(
        self,
        top: int,
        write: Callable[[bytes], object],
        leave_out: frozenset[str],
        limits: ArchiveLimits,
        checkpoint: Callable[[], None],
    ) -> None:
        self._top = top
        self._write = write
        self._leave_out = leave_out
        self._limits = limits
        self._checkpoint = checkpoint
        self._entries = 0
        self._bytes = 0
        self._unlocked: list[tuple[Parts, int]] = []
        self._seen: dict[Parts, dict[str, State]] = {}
        """What the files of each folder were when they were packed."""

    def add(self, path: Parts) -> None:
        with suppress(FileNotFoundError, NotADirectoryError), self._folder(path[:-1]) as folder:
            for each in self._pack_entry(folder, path):
                self._pack_tree(each)

    def end(self) -> None:
        """End the archive, and check that nothing was written since its first file was read."""
        self._header(tarfile.TarInfo(END))
        self._write(bytes(2 * _BLOCK))
        for path, files in self._seen.items():
            self._checkpoint()
            with suppress(FileNotFoundError, NotADirectoryError), self._folder(path) as folder:
                for name, before in files.items():
                    # A file that was removed meanwhile is as it was at some moment.
                    with suppress(FileNotFoundError):
                        _check_same(before, os.stat(name, dir_fd=folder, follow_symlinks=False), (*path, name))

    def lock_again(self) -> None:
        """Restore the modes of folders that could not be read."""
        for path, mode in reversed(self._unlocked):
            with suppress(OSError), self._folder(path) as folder:
                os.fchmod(folder, mode)

    def _pack_tree(self, top: Parts) -> None:
        """Without recursion: an engine can nest folders deeper than Python's stack."""
        pending = [top]
        while pending:
            self._checkpoint()
            path = pending.pop()
            # A folder that was removed meanwhile, or replaced, is empty.
            with suppress(FileNotFoundError, NotADirectoryError), self._folder(path) as folder:
                for name in self._names(folder):
                    with suppress(FileNotFoundError):
                        pending += self._pack_entry(folder, (*path, name))

    def _pack_entry(self, folder: int, path: Parts) -> Iterator[Parts]:
        """Pack a file, a link, or a folder without its content. Yields the folder."""
        name = path[-1]
        if "/".join(path) in self._leave_out:
            return
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        self._count(path)
        if stat.S_ISREG(status.st_mode):
            self._pack_file(folder, path)
        elif stat.S_ISLNK(status.st_mode):
            entry = _entry(path, status, tarfile.SYMTYPE)
            entry.linkname = os.readlink(name, dir_fd=folder)
            self._header(entry)
        elif stat.S_ISDIR(status.st_mode):
            self._unlock(folder, path, stat.S_IMODE(status.st_mode))
            self._header(_entry(path, status, tarfile.DIRTYPE))
            yield path

    def _names(self, folder: int) -> list[str]:
        """Sorted. One folder can have more names than fit into memory."""
        left = self._limits.max_entries - self._entries
        with os.scandir(folder) as found:
            names = [entry.name for entry in itertools.islice(found, left + 1)]
        if len(names) > left:
            raise self._too_many()
        return sorted(names)

    def _too_many(self) -> ArchiveRefused:
        return ArchiveRefused(f"there are more than {self._limits.max_entries:,} files and folders")

    def _count(self, path: Parts) -> None:
        self._entries += 1
        if self._entries > self._limits.max_entries:
            raise self._too_many()
        if len(path) > self._limits.max_depth:
            raise ArchiveRefused(f"its folders are nested deeper than {self._limits.max_depth} levels")

    def _pack_file(self, folder: int, path: Parts) -> None:
        with _opened(_open_file(folder, path[-1])) as file:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                return
            self._pack_content(file, path, status)
            _check_same(_state(status), os.fstat(file), path)
        self._seen.setdefault(path[:-1], {})[path[-1]] = _state(status)

    def _pack_content(self, file: int, path: Parts, status: os.stat_result) -> None:
        parts = _data_ranges(file, status)
        size = sum(end - begin for begin, end in parts)
        self._bytes += size
        if self._bytes > self._limits.max_bytes:
            raise ArchiveRefused(f"the files have more than {self._limits.max_bytes // 1_000_000:,} MB")
        entry, index = _entry(path, status, tarfile.REGTYPE), b""
        if size < status.st_size:
            index = _index(parts, status.st_size)
            entry.pax_headers = {
                **entry.pax_headers,
                "GNU.sparse.major": "1",
                "GNU.sparse.minor": "0",
                "GNU.sparse.name": entry.name,
                "GNU.sparse.realsize": str(status.st_size),
            }
        entry.size = len(index) + size
        self._header(entry)
        self._write(index)
        for begin, end in parts:
            self._pack_range(file, path, begin, end)
        self._write(bytes(-entry.size % _BLOCK))

    def _pack_range(self, file: int, path: Parts, begin: int, end: int) -> None:
        while begin < end:
            piece = os.pread(file, min(_PIECE, end - begin), begin)
            if not piece:
                raise TreeChanged(f"{'/'.join(path)} was truncated")
            self._write(piece)
            begin += len(piece)
            self._checkpoint()

    def _header(self, entry: tarfile.TarInfo) -> None:
        self._write(entry.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))

    def _unlock(self, folder: int, path: Parts, mode: int) -> None:
        if mode & 0o500 != 0o500:
            with suppress(PermissionError):
                beneath.unlock(folder, path[-1])
                self._unlocked.append((path, mode))

    @contextmanager
    def _folder(self, path: Parts) -> Iterator[int]:
        """Raises `NotADirectoryError` for a link, or anything else that is no folder."""
        folder = os.dup(self._top)
        try:
            for part in path:
                folder, above = _step(folder, part), folder
                os.close(above)
            yield folder
        finally:
            os.close(folder)


def _entry(path: Parts, status: os.stat_result, kind: bytes) -> tarfile.TarInfo:
    entry = tarfile.TarInfo("/".join(path))
    entry.type = kind
    entry.mode = stat.S_IMODE(status.st_mode) & 0o777
    seconds, nanoseconds = divmod(status.st_mtime_ns, 1_000_000_000)
    entry.pax_headers = {"mtime": f"{seconds}.{nanoseconds:09d}"}
    return entry


def _data_ranges(file: int, status: os.stat_result) -> list[tuple[int, int]]:
    """The ranges of a file that hold data. All of it, if they are too many."""
    parts: list[tuple[int, int]] = []
    for part in extents(file, status):
        parts.append(part)
        if len(parts) > _MAX_EXTENTS:
            return [(0, status.st_size)]
    return parts if status.st_size else []


def _index(parts: Sequence[tuple[int, int]], size: int) -> bytes:
    """Where the parts of a sparse file belong, as GNU tar writes it."""
    ranges = [*((begin, end - begin) for begin, end in parts), (size, 0)]
    text = f"{len(ranges)}\n" + "".join(f"{begin}\n{length}\n" for begin, length in ranges)
    return text.encode() + bytes(-len(text) % _BLOCK)


def _check_same(before: State, now: os.stat_result, path: Parts) -> None:
    if _state(now) != before:
        raise TreeChanged(f"{'/'.join(path)} was written to")


def _state(status: os.stat_result) -> State:
    return status.st_ino, status.st_size, status.st_ctime_ns


def _step(folder: int, name: str) -> int:
    """Open a folder inside an open folder. Changes nothing."""
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except OSError as error:
        if error.errno in _REPLACED:
            raise NotADirectoryError(errno.ENOTDIR, f"{name} is a link") from error
        raise


def _open_file(folder: int, name: str) -> int:
    """Open a file for reading, even if its engine has made it unreadable."""
    try:
        return os.open(name, _FILE, dir_fd=folder)
    except PermissionError:
        if not hasattr(os, "O_PATH"):
            raise
    except OSError as error:
        if error.errno in _REPLACED:
            raise TreeChanged(f"{name} was replaced") from None
        raise
    with _opened(os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)) as held:
        status = os.fstat(held)
        if not stat.S_ISREG(status.st_mode):
            raise TreeChanged(f"{name} was replaced")
        # chmod does not work on an O_PATH descriptor, but on its /proc name. That name is this very file.
        place = f"/proc/self/fd/{held}"
        os.chmod(place, stat.S_IMODE(status.st_mode) | stat.S_IRUSR)
        try:
            return os.open(place, os.O_RDONLY | os.O_CLOEXEC)
        finally:
            os.chmod(place, stat.S_IMODE(status.st_mode))


@contextmanager
def _opened(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)
