"""Packs trees that an engine wrote into one `tar.zst`.

Reads through directory descriptors without following a link. Regular files, folders and links are packed; sockets, pipes
and devices are left out, and a hard link becomes a separate file. Holes stay holes. The reader is `archive_reader`.
"""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from askback.fs.copies import extents
from askback.fs.walk import (
    READABLE,
    EntryReplaced,
    FileLeased,
    FileState,
    Folder,
    Tree,
    TreeTooLarge,
    closing,
    open_file,
    open_tree,
    read_link,
)

END = "askback.end"
"""The last entry: an archive without it was cut off."""
LEVEL = 1
"""Of zstandard. Higher levels take ten times as long for a fifth of the size."""
_PIECE = 1 << 20
_BLOCK = tarfile.BLOCKSIZE
MAX_EXTENTS = 10_000
"""A file with more parts than this is packed with its holes as zeros."""
MAX_ALL_EXTENTS = 1_000_000
"""The same for the parts of all sparse files of an archive together."""


class ArchiveRefused(Exception):
    """The trees are larger than allowed, or cannot be read. The message is for people."""


class TreeChangedWhilePacking(Exception):
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

    `leave_out` has paths below `root`. An engine must not control `root` itself. Raises `TreeChangedWhilePacking` if anything was
    written meanwhile, and `ArchiveRefused`.
    """
    # An extra.
    import zstandard

    compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
    with open_tree(root, need=READABLE) as tree, compressor.stream_writer(target, closefd=False) as stream:
        packing = _Packing(tree, stream.write, frozenset(leave_out), limits or ArchiveLimits(), checkpoint)
        try:
            for name in names:
                packing.add(name)
            packing.end()
        except TreeTooLarge as error:
            raise ArchiveRefused(str(error)) from None
        finally:
            tree.lock_again()


@dataclass(slots=True)
class _Packing:
    tree: Tree
    write: Callable[[bytes], object]
    leave_out: Collection[str]
    limits: ArchiveLimits
    checkpoint: Callable[[], None]
    _entries: int = 0
    _bytes: int = 0
    _extents: int = 0
    _seen: dict[str, dict[str, FileState]] = field(default_factory=dict)
    """What the files of each folder were when they were packed."""

    def add(self, path: str) -> None:
        above, _, name = path.rpartition("/")
        with suppress(FileNotFoundError):
            around = Folder(above, self.tree.reach(above))
            self._pack_entry(around, name, self.tree.stat(path))
            for top, status in around.below:
                self._pack_tree(top, status)

    def end(self) -> None:
        """End the archive, and check that nothing was written since its first file was read."""
        self._header(tarfile.TarInfo(END))
        self.write(bytes(2 * _BLOCK))
        for path, files in self._seen.items():
            self.checkpoint()
            # What was removed meanwhile is as it was at some moment.
            with suppress(FileNotFoundError):
                folder = Folder(path, self.tree.folder(path))
                for name, before in files.items():
                    with suppress(FileNotFoundError):
                        status = os.stat(name, dir_fd=folder.fd, follow_symlinks=False)
                        _check_same(before, status, folder.place(name))

    def _pack_tree(self, top: str, status: os.stat_result) -> None:
        # A folder that was removed meanwhile, or replaced, is empty.
        for folder in self.tree.walk(top, status, remember=True):
            self.checkpoint()
            for name, status in folder.sorted_entries(self.limits.max_entries - self._entries + 1):
                with suppress(FileNotFoundError):
                    self._pack_entry(folder, name, status)

    def _pack_entry(self, folder: Folder, name: str, status: os.stat_result) -> None:
        """Pack a file, a link, or a folder without its content, which follows."""
        path = folder.place(name)
        if path in self.leave_out:
            return
        self._count(path)
        if stat.S_ISREG(status.st_mode):
            self._pack_file(folder, name, status)
        elif stat.S_ISLNK(status.st_mode):
            entry = _entry(path, status, tarfile.SYMTYPE)
            entry.linkname = read_link(folder.fd, name)
            self._header(entry)
        elif stat.S_ISDIR(status.st_mode):
            self._header(_entry(path, status, tarfile.DIRTYPE))
            folder.descend(name, status)

    def _count(self, path: str) -> None:
        self._entries += 1
        if self._entries > self.limits.max_entries:
            raise ArchiveRefused(f"there are more than {self.limits.max_entries:,} files and folders")
        if path.count("/") >= self.limits.max_depth:
            raise ArchiveRefused(f"its folders are nested deeper than {self.limits.max_depth} levels")

    def _pack_file(self, folder: Folder, name: str, listed: os.stat_result) -> None:
        path = folder.place(name)
        try:
            opened = open_file(folder.fd, name, listed, unlock=True)
        except EntryReplaced:
            raise TreeChangedWhilePacking(f"{path} was replaced") from None
        except FileLeased as leased:
            raise TreeChangedWhilePacking(f"{path} cannot be read: {leased.strerror}") from None
        with closing(opened) as file:
            status = os.fstat(file)
            self._pack_content(file, path, status)
            _check_same(FileState.of(status), os.fstat(file), path)
        self._seen.setdefault(folder.path, {})[name] = FileState.of(status)

    def _pack_content(self, file: int, path: str, status: os.stat_result) -> None:
        parts = _data_ranges(file, status, min(MAX_EXTENTS, MAX_ALL_EXTENTS - self._extents))
        size = sum(end - begin for begin, end in parts)
        self._bytes += size
        if self._bytes > self.limits.max_bytes:
            raise ArchiveRefused(f"the files have more than {self.limits.max_bytes // 1_000_000:,} MB")
        entry, index = _entry(path, status, tarfile.REGTYPE), b""
        if size < status.st_size:
            self._extents += len(parts)
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
        self.write(index)
        for begin, end in parts:
            self._pack_range(file, path, begin, end)
        self.write(bytes(-entry.size % _BLOCK))

    def _pack_range(self, file: int, path: str, begin: int, end: int) -> None:
        while begin < end:
            piece = os.pread(file, min(_PIECE, end - begin), begin)
            if not piece:
                raise TreeChangedWhilePacking(f"{path} was truncated")
            self.write(piece)
            begin += len(piece)
            self.checkpoint()

    def _header(self, entry: tarfile.TarInfo) -> None:
        self.write(entry.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))


def _entry(path: str, status: os.stat_result, kind: bytes) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.type = kind
    entry.mode = stat.S_IMODE(status.st_mode) & 0o777
    seconds, nanoseconds = divmod(status.st_mtime_ns, 1_000_000_000)
    entry.pax_headers = {"mtime": f"{seconds}.{nanoseconds:09d}"}
    return entry


def _data_ranges(file: int, status: os.stat_result, most: int) -> list[tuple[int, int]]:
    """The ranges of a file that hold data. All of it, if they are more than `most`."""
    parts: list[tuple[int, int]] = []
    for part in extents(file, status):
        parts.append(part)
        if len(parts) > most:
            return [(0, status.st_size)]
    return parts if status.st_size else []


def _index(parts: Sequence[tuple[int, int]], size: int) -> bytes:
    """Where the parts of a sparse file belong, as GNU tar writes it."""
    ranges = [*((begin, end - begin) for begin, end in parts), (size, 0)]
    text = f"{len(ranges)}\n" + "".join(f"{begin}\n{length}\n" for begin, length in ranges)
    return text.encode() + bytes(-len(text) % _BLOCK)


def _check_same(before: FileState, now: os.stat_result, path: str) -> None:
    if FileState.of(now) != before:
        raise TreeChangedWhilePacking(f"{path} was written to")
