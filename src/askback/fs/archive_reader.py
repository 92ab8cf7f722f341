"""Unpacks what `archive_writer` has packed, and the archives of skill packages.

An archive may say anything: nothing is written outside the folder that it is unpacked to, no link is followed, and what
is read at once is small.
"""

from __future__ import annotations

import errno
import os
import tarfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

from askback.fs import beneath
from askback.fs.archive_writer import END, MAX_ALL_EXTENTS, MAX_EXTENTS, ArchiveLimits
from askback.fs.copies import write_or_skip

_PIECE = 1 << 20
_MAX_AT_ONCE = 1 << 20
"""The longest header. A path has at most 4,096 bytes."""
_MAX_HEADERS = 1 << 19
"""Bytes of all headers of one entry, with its map of holes: `archive_writer` makes a map of at most 10,000 parts."""
_MAX_WINDOW = 1 << 27
_PER_ENTRY = 1 << 16
"""How much an archive may have besides contents, for each entry that is allowed: headers, and the maps of holes."""
_CANNOT_BE = frozenset((errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ, errno.ENOENT))
"""What a file system reports for names, links and sizes that it cannot have."""


class ArchiveDamaged(Exception):
    """It is not a whole archive that Askback has packed. The message is for people."""


def unpack(
    archive: BinaryIO,
    base: Path,
    *,
    names: Collection[str] | None = None,
    limits: ArchiveLimits | None = None,
    checkpoint: Callable[[], None] = lambda: None,
) -> None:
    """Unpack into `base`, an empty folder. Only paths below one of `names` are accepted. Raises `ArchiveDamaged`.

    None: an archive of plain files without an end, of which the caller knows the digest.
    """
    # An extra.
    import zstandard

    limits = limits or ArchiveLimits()
    decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
    with decompressor.stream_reader(archive, closefd=False) as stream, _faults(zstandard.ZstdError):
        content = _Forward(stream, limits.max_bytes + limits.max_entries * _PER_ENTRY, checkpoint)
        _Unpacking(content, base, names, limits, checkpoint).run()
        # The checksum is at the end.
        content.drain()


@contextmanager
def _faults(corrupt: type[Exception]) -> Iterator[None]:
    try:
        yield
    except (corrupt, tarfile.TarError, ValueError, OverflowError, EOFError, RecursionError) as error:
        raise ArchiveDamaged(f"the archive is damaged: {error}") from error
    except OSError as error:
        if error.errno not in _CANNOT_BE:
            raise
        raise ArchiveDamaged(f"the archive has an entry that cannot be restored here: {error.strerror}") from error


class _Forward:
    """The content of an archive, which can only be read forward.

    It is bounded as a whole: a few bytes can stand for terabytes, also where no file is.
    """

    def __init__(self, stream: Any, max_bytes: int, checkpoint: Callable[[], None]) -> None:
        self._stream = stream
        self._max_bytes = max_bytes
        self._checkpoint = checkpoint
        self._at = 0
        self._headers_end = _MAX_HEADERS

    def begin_entry(self) -> None:
        """What is read until `end_headers` are headers."""
        self._headers_end = self._at + _MAX_HEADERS

    def end_headers(self) -> None:
        self._headers_end = self._max_bytes

    def tell(self) -> int:
        return self._at

    def seekable(self) -> bool:
        return False

    def read(self, size: int = -1, /) -> bytes:
        if not 0 <= size <= _MAX_AT_ONCE:
            raise ArchiveDamaged("the archive is damaged: it has an entry that is too long")
        self._checkpoint()
        if self._at > min(self._max_bytes, self._headers_end):
            raise ArchiveDamaged("the archive has more bytes than allowed")
        pieces = []
        while size > 0 and (piece := self._stream.read(size)):
            pieces.append(piece)
            size -= len(piece)
            self._at += len(piece)
        return b"".join(pieces)

    def seek(self, at: int, whence: int = os.SEEK_SET, /) -> int:
        if whence != os.SEEK_SET or at < self._at:
            raise ArchiveDamaged("the archive is damaged: its entries overlap")
        while self._at < at:
            if not self.read(min(_PIECE, at - self._at)):
                raise ArchiveDamaged("the archive was cut off")
        return self._at

    def drain(self) -> None:
        while self.read(_PIECE):
            pass


@dataclass(slots=True)
class _Unpacking:
    content: _Forward
    base: Path
    names: Collection[str] | None
    limits: ArchiveLimits
    checkpoint: Callable[[], None]
    _entries: int = 0
    _bytes: int = 0
    _parts: int = 0
    """Of all maps of holes."""
    _folders: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Their modes and times, which are set when everything is there."""

    def run(self) -> None:
        # `TarFile` needs no more of a file than to read and to seek.
        file = cast("BinaryIO", self.content)
        with tarfile.TarFile(fileobj=file, mode="r", encoding="utf-8", errors="surrogateescape") as tar:
            last = None
            while True:
                self.content.begin_entry()
                entry = tar.next()
                self.content.end_headers()
                if entry is None:
                    break
                self.checkpoint()
                # It remembers every entry otherwise.
                tar.members.clear()  # type: ignore[attr-defined]
                last = entry.name
                if last != END:
                    self._unpack(entry)
        if last != END and self.names is not None:
            raise ArchiveDamaged("the archive was cut off")
        # Deepest folders first: one without permissions cannot be entered any more.
        for name, (mode, mtime_ns) in sorted(self._folders.items(), key=lambda each: -each[0].count("/")):
            if beneath.has_folder(self.base, name):
                beneath.settle_folder(self.base, name, mode, mtime_ns)

    def _unpack(self, entry: tarfile.TarInfo) -> None:
        parts = entry.name.split("/")
        self._entries += 1
        if self._entries > self.limits.max_entries or len(parts) > self.limits.max_depth:
            raise ArchiveDamaged("the archive has more files, or deeper folders, than allowed")
        if self.names is None and not entry.isreg():
            raise ArchiveDamaged(f"the archive has an entry that is not a plain file: {entry.name[:100]!r}")
        if self.names is not None and parts[0] not in self.names:
            raise ArchiveDamaged(f"the archive has an entry that does not belong to a run: {entry.name[:100]!r}")
        mtime_ns = _mtime_ns(entry)
        if entry.isdir():
            beneath.make_folder(self.base, entry.name)
            self._folders[entry.name] = (entry.mode & 0o777, mtime_ns)
        elif entry.issym():
            beneath.link(self.base, entry.name, entry.linkname, mtime_ns)
        elif entry.isreg():
            self._unpack_file(entry, mtime_ns)
        else:
            raise ArchiveDamaged(f"the archive has an entry of an unknown type: {entry.name[:100]!r}")

    def _unpack_file(self, entry: tarfile.TarInfo, mtime_ns: int) -> None:
        # Of a sparse file, the entry has the ranges with data, one after the other.
        sparse: list[tuple[int, int]] | None = getattr(entry, "sparse", None)
        parts = [(0, entry.size)] if sparse is None else sparse
        self._parts += 0 if sparse is None else len(sparse)
        if len(parts) > MAX_EXTENTS + 1 or self._parts > MAX_ALL_EXTENTS + self._entries:
            raise ArchiveDamaged("the archive has maps of holes with more parts than allowed")
        self._bytes += sum(size for _, size in parts)
        if self._bytes > self.limits.max_bytes:
            raise ArchiveDamaged("the archive has more bytes than allowed")
        self.content.seek(entry.offset_data)
        with beneath.create(self.base, entry.name) as file:
            for begin, size in parts:
                file.seek(begin)
                self._copy(file, size)
            file.truncate(entry.size)
            file.flush()
            os.fchmod(file.fileno(), entry.mode & 0o777)
            os.utime(file.fileno(), ns=(mtime_ns, mtime_ns))

    def _copy(self, file: BinaryIO, size: int) -> None:
        while size > 0:
            piece = self.content.read(min(_PIECE, size))
            if not piece:
                raise ArchiveDamaged("the archive was cut off")
            # What was packed as zeros takes no more room here than there.
            write_or_skip(file, piece)
            size -= len(piece)


def _mtime_ns(entry: tarfile.TarInfo) -> int:
    """Exactly, which `TarInfo.mtime` is not: it is a float."""
    seconds, _, fraction = entry.pax_headers.get("mtime", "0").partition(".")
    return int(seconds) * 1_000_000_000 + int(fraction[:9].ljust(9, "0"))
