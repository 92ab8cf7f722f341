"""A small file of records, each found by the digest of a secret. Only its owner can read it, and it never holds the secret.

A change by another process is seen at the next read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from askback.core.errors import RefusalCode, Unavailable
from askback.files.atomic import locked, write_private


class Record(Protocol):
    """What such a file holds: a dataclass with the digest of its secret."""

    @property
    def digest(self) -> str: ...


R = TypeVar("R", bound=Record)
Version = tuple[int, int, int]


class RecordFile(Generic[R]):
    """The records of one file, read again only when the file has changed. May be used by several threads."""

    def __init__(self, path: Path, kind: type[R]) -> None:
        self._path = path
        self._kind = kind
        self._cached: tuple[Version | None, Mapping[str, R]] = (None, {})

    def read(self) -> Mapping[str, R]:
        """All records by their digests. Raises `Unavailable` if the file is damaged."""
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
            message = f"{self._path} cannot be read: {error}; repair it, or remove it with everything in it"
            raise Unavailable(RefusalCode.STORE_UNUSABLE, message) from None
        return records

    @contextmanager
    def changing(self) -> Iterator[dict[str, R]]:
        """The records, to be changed: written at the end of the block if they differ. One writer at a time."""
        with locked(self._path.with_suffix(".lock")):
            before = self.read()
            records = dict(before)
            yield records
            if records != before:
                write_private(self._path, msgspec.json.encode(list(records.values())))
