"""Files that belong to no machine: uploads, skill packages, artifacts, and the homes of runs between their turns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class FileMissing(Exception):
    """There is no file under this key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    key: str
    size: int


class Files(Protocol):
    """Files under keys such as `runs/ID/kept/3.tar.zst`. A file is there as a whole or not at all, and durable once `put` returns.

    Every method raises `Unavailable` if the store cannot be reached.
    """

    async def put(self, key: str, content: bytes | Path, *, replace: bool = False) -> None:
        """Store the content, or a copy of a local file. Without `replace`, a key that exists is left as it is."""
        ...

    async def get(self, key: str, max_bytes: int) -> bytes:
        """The content of a small file. Raises `FileMissing`, and `Invalid` if it is larger."""
        ...

    async def fetch(self, key: str, target: Path) -> None:
        """Write the content to a new local file. Raises `FileMissing`."""
        ...

    def read(self, key: str) -> AsyncIterator[bytes]:
        """The content in pieces. Raises `FileMissing` before the first."""
        ...

    async def size(self, key: str) -> int | None:
        """None if there is no such file."""
        ...

    async def list(self, prefix: str) -> Sequence[StoredFile]:
        """The files whose keys begin with this folder, such as `runs/ID/`."""
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove files. Those that do not exist are ignored."""
        ...

    async def check(self) -> str:
        """Where the files are, without secrets, after a file was written, read and removed there."""
        ...

    async def close(self) -> None: ...
