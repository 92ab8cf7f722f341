"""Reads files that an engine left: only regular files inside the folder, whatever links the engine created there."""

from __future__ import annotations

import os
import re
import threading
import unicodedata
import zipfile
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Self, cast

from askback.background.pools import Pool
from askback.core.errors import raise_if_temporary
from askback.fs.regular import open_regular
from askback.fs.walk import FOLDER, closing, open_folder

_CHUNK = 1 << 20
_FILES_PER_PIECE = 64
_UNFIT = re.compile(r"[\x00-\x1f\x7f-\x9f\\:*?\"<>|\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Not allowed in a zip: separators and drives of other systems, control characters, and bidirectional controls."""


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


def is_text(name: str) -> bool:
    """Whether a file's name is valid text; on disk it can be any bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


class Bundle:
    """Files as one zip, created piece by piece. A file that was removed in the meantime is skipped."""

    def __init__(self, files: Iterable[tuple[str, int]], opened: Callable[[str], BinaryIO | None]) -> None:
        """`files`: path and size of each. No more of a file is read than its size."""
        self._shown: Callable[[str], str] = str
        self._pieces = _zipped(files, opened, lambda path: self._shown(path))
        self._lock = threading.Lock()

    def with_names(self, shown: Callable[[str], str] | None) -> Self:
        """The same files under the names that `shown` makes of their paths."""
        self._shown = shown or str
        return self

    def next_piece(self) -> bytes | None:
        """The next bytes, possibly empty; None at the end. Takes a fraction of a second, whatever the files are."""
        with self._lock:
            return next(self._pieces, None)

    def close(self) -> None:
        """Close all files. Waits for a piece that another thread is creating."""
        with self._lock:
            self._pieces.close()

    async def pieces(self, pool: Pool) -> AsyncGenerator[bytes]:
        """No thread is held between pieces, so a slow or lost client does not occupy one."""
        try:
            while (piece := await pool.run(self.next_piece, admitted=True)) is not None:
                if piece:
                    yield piece
        finally:
            pool.post(self.close)


class _Sink:
    """Collects what was written since the last `take`."""

    def __init__(self) -> None:
        self._written = bytearray()

    def write(self, data: bytes) -> int:
        self._written += data
        return len(data)

    def flush(self) -> None:
        """Nothing is buffered."""

    def take(self) -> bytes:
        taken = bytes(self._written)
        self._written.clear()
        return taken


def _zipped(
    files: Iterable[tuple[str, int]], opened: Callable[[str], BinaryIO | None], shown: Callable[[str], str]
) -> Generator[bytes]:
    sink, entry_names = _Sink(), EntryNames()
    with zipfile.ZipFile(cast(BinaryIO, sink), "w", zipfile.ZIP_DEFLATED) as archive:
        for number, (path, size) in enumerate(files, start=1):
            source = opened(path)
            if source is not None:
                for _ in _added(archive, entry_names.add(shown(path)), source, size):
                    yield sink.take()
            if number % _FILES_PER_PIECE == 0:
                yield sink.take()
    yield sink.take()


class EntryNames:
    """Names for the entries of one archive, without characters that some system treats specially.

    No name is that of another entry or of its folder, also where upper and lower case are the same.
    """

    def __init__(self) -> None:
        self._files: set[int] = set()
        self._folders: set[int] = set()
        self._last: dict[str, int] = {}
        """The last number that was tried for a name: many files may have the same one."""

    def add(self, path: str) -> str:
        name = clean = _UNFIT.sub("_", path)
        *folders, file = _places(name)
        while file in self._files or file in self._folders or not self._files.isdisjoint(folders):
            self._last[clean] = number = self._last.get(clean, 1) + 1
            first, slash, rest = clean.partition("/")
            # A file that has the name of the folder stays in the way of every name in that folder.
            is_below_file = not self._files.isdisjoint(folders)
            name = f"{first}~{number}{slash}{rest}" if is_below_file else f"{clean}~{number}"
            *folders, file = _places(name)
        self._files.add(file)
        self._folders.update(folders)
        return name


def _places(name: str) -> Iterator[int]:
    """The folders of an entry and the entry itself, as hashes: a path may have thousands of folders.

    Names that some file system does not distinguish have the same places.
    """
    place = 0
    for part in unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()).split("/"):
        place = hash((place, part))
        yield place


def _added(archive: zipfile.ZipFile, path: str, source: BinaryIO, size: int) -> Iterator[None]:
    """Up to the size when it was listed: a file that an engine keeps writing to would never end."""
    with source, archive.open(path, "w", force_zip64=True) as entry:
        left = size
        while left > 0 and (chunk := source.read(min(left, _CHUNK))):
            left -= len(chunk)
            entry.write(chunk)
            if left > 0:
                yield
