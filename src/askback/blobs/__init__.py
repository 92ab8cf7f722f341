"""Files that belong to no machine: uploads, skill packages, artifacts, and the homes of runs between their turns."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}(/[A-Za-z0-9_][A-Za-z0-9._-]{0,199}){0,15}")


class FileMissing(Exception):
    """There is no file under this key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    key: str
    size: int
    stored_at: datetime


def checked(key: str) -> str:
    """The key. Raises `ValueError` for one that a store or a file system might read in another way."""
    if not _KEY.fullmatch(key):
        raise ValueError(f"{key!r} cannot be the key of a stored file")
    return key


class Files(Protocol):
    """Files under keys such as `runs/ID/kept/3.tar.zst`. A file is there as a whole or not at all, and durable once `put` returns.

    A part of a key begins with a letter, a digit or `_`; further characters are letters, digits, `.`, `_` and `-`.
    Every method has a time limit, and raises `Unavailable` (`FILES_UNAVAILABLE`) if the store cannot be used.
    """

    @property
    def place(self) -> str:
        """Where the files are, without secrets."""
        ...

    async def put(self, key: str, content: bytes | Path, *, replace: bool = False) -> None:
        """Store the content, or a copy of a local file. Without `replace`, a key that exists is left as it is.

        If two programs store a large file under one key at the same time, one of the two stays, as a whole.
        """
        ...

    async def get(self, key: str, max_bytes: int) -> bytes:
        """The content of a small file. Raises `FileMissing`, and `Invalid` if it is larger."""
        ...

    async def fetch(self, key: str, target: Path) -> None:
        """Write the content to a new local file, for its owner alone. Raises `FileMissing`; no part of a file stays."""
        ...

    def read(self, key: str) -> AsyncIterator[bytes]:
        """The content in pieces. Raises `FileMissing` before the first."""
        ...

    async def size(self, key: str) -> int | None:
        """None if there is no such file."""
        ...

    async def list(self, folder: str) -> Sequence[StoredFile]:
        """The files below a folder, such as `runs/ID/`, in any order."""
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove files. Those that do not exist are ignored."""
        ...

    async def check(self) -> str:
        """Where the files are, without secrets, after a file was written, read and removed there."""
        ...

    async def close(self) -> None: ...
