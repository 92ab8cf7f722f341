"""Files that are written atomically: whole files, and small record files with the digests of secrets."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from askback.core.errors import RefusalCode, Unavailable


def write_private(path: Path, content: bytes) -> None:
    """Replace the file atomically: a reader sees either the old or the new content, even after a power failure."""
    partial = write_beside(path, content)
    try:
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_beside(path: Path, content: bytes) -> Path:
    """Write a new file in the same folder, and return its path."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(fd)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return partial


def make_private(folder: Path) -> None:
    """Create a folder and its missing parents for their owner alone. `Path.mkdir` gives its mode to the last one only."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        if folder.parent == folder:
            raise
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def sync_folder(folder: Path) -> None:
    """Make the entries of a folder survive a power failure."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file at `path`, waiting for it if needed. One thread of one process holds it at a time."""
    make_private(path.parent)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


class Record(Protocol):
    """One record of a `RecordFile`: a dataclass with the digest of its secret."""

    @property
    def digest(self) -> str: ...


R = TypeVar("R", bound=Record)
Version = tuple[int, int, int]


class RecordFile(Generic[R]):
    """The records of one file, cached until the file changes. Thread-safe."""

    def __init__(self, path: Path, kind: type[R]) -> None:
        self._path = path
        self._kind = kind
        self._cached: tuple[Version | None, Mapping[str, R]] = (None, {})

    def read(self) -> Mapping[str, R]:
        """All records by digest. Raises `Unavailable` if the file is damaged."""
        version, records = self._cached
        try:
            status = self._path.stat()
            found = (status.st_mtime_ns, status.st_ino, status.st_size)
            if found != version:
                decoded = msgspec.json.decode(self._path.read_bytes(), type=list[self._kind])  # type: ignore[name-defined]
                records = {record.digest: record for record in decoded}
                self._cached = (found, records)
        except FileNotFoundError:
            self._cached = (None, records := {})
        except (msgspec.MsgspecError, UnicodeDecodeError, OSError) as error:
            message = f"{self._path} cannot be read: {error}; repair the file, or delete it, which discards its records"
            raise Unavailable(RefusalCode.STORE_UNUSABLE, message) from None
        return records

    @contextmanager
    def changing(self) -> Iterator[dict[str, R]]:
        """Yield the records to modify, and write them at the end of the block if changed. Holds the file's lock."""
        with locked(self._path.with_suffix(".lock")):
            before = self.read()
            records = dict(before)
            yield records
            if records != before:
                write_private(self._path, msgspec.json.encode(list(records.values())))
                sync_folder(self._path.parent)

    async def current(self, *, exactly: bool = False) -> None:
        """The file is read again as soon as it changes."""
