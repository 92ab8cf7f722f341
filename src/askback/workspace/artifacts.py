"""Reads files that an engine left: only regular files inside the folder, whatever links the engine created there."""

from __future__ import annotations

import os
import re
import threading
import zipfile
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from askback.core.errors import raise_if_temporary
from askback.files.regular import open_regular
from askback.process.pools import Pool

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
        folder = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as fault:
        raise_if_temporary(fault)
        return None
    try:
        for part in parts[:-1]:
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = below
        found = open_regular(parts[-1], folder)
        return None if found is None else os.fdopen(found, "rb")
    except UnicodeEncodeError:
        return None
    except OSError as fault:
        raise_if_temporary(fault)
        return None
    finally:
        os.close(folder)


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
        self._pieces = _zipped(files, opened)
        self._lock = threading.Lock()

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


def _zipped(files: Iterable[tuple[str, int]], opened: Callable[[str], BinaryIO | None]) -> Generator[bytes]:
    sink = _Sink()
    with zipfile.ZipFile(cast(BinaryIO, sink), "w", zipfile.ZIP_DEFLATED) as archive:
        for number, (path, size) in enumerate(files, start=1):
            source = opened(path)
            if source is not None:
                for _ in _added(archive, _entry_name(archive, path), source, size):
                    yield sink.take()
            if number % _FILES_PER_PIECE == 0:
                yield sink.take()
    yield sink.take()


def _entry_name(archive: zipfile.ZipFile, path: str) -> str:
    """The path without characters that some system treats specially. Unique in the archive."""
    clean = name = _UNFIT.sub("_", path)
    number = 1
    while clean != path and name in archive.NameToInfo:
        number += 1
        name = f"{clean}~{number}"
    return name


def _added(archive: zipfile.ZipFile, path: str, source: BinaryIO, size: int) -> Iterator[None]:
    """Up to the size when it was listed: a file that an engine keeps writing to would never end."""
    with source, archive.open(path, "w", force_zip64=True) as entry:
        left = size
        while left > 0 and (chunk := source.read(min(left, _CHUNK))):
            left -= len(chunk)
            entry.write(chunk)
            if left > 0:
                yield
