"""Collections of small records and secrets that all servers share, in files of one data folder.

A database of several machines has them in tables: `store.postgres.records`.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from askback.core.errors import RefusalCode, Unavailable
from askback.fs.atomic import locked, sync_folder, write_beside, write_private

_MIN_SECRET_LENGTH = 24


class Record(Protocol):
    """One record of a `Collection`: a dataclass with the digest of its secret."""

    @property
    def digest(self) -> str: ...


R = TypeVar("R", bound=Record)
Version = tuple[int, int, int]


class Collection(Generic[R]):
    """Records of one kind, by digest: those of one file, cached until the file changes. Thread-safe."""

    def __init__(self, path: Path, kind: type[R]) -> None:
        self._path = path
        self._kind = kind
        self._cached: tuple[Version | None, Mapping[str, R]] = (None, {})

    def read(self) -> Mapping[str, R]:
        """All records. Raises `Unavailable` if they cannot be read."""
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
        """Yield the records to modify, and write them at the end of the block if changed. One caller at a time, of all
        programs. Blocks: call it in a thread."""
        with locked(self._path.with_suffix(".lock")):
            before = self.read()
            records = dict(before)
            yield records
            if records != before:
                write_private(self._path, msgspec.json.encode(list(records.values())))
                sync_folder(self._path.parent)

    async def current(self, *, exactly: bool = False) -> None:
        """Wait until `read` returns, without blocking, what is stored now, or was at most two seconds ago unless `exactly`.

        Raises `Unavailable` after a while.
        """


class Records:
    """Collections of records and shared secrets: one file of the data folder for each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collection(self, name: str, kind: type[R]) -> Collection[R]:
        """The collection with this name, which may be empty."""
        return Collection(self._folder / f"{name}.json", kind)

    def of_run(self, run_id: str, folder: Path, name: str, kind: type[R]) -> Collection[R]:
        """A collection that ends with its run. `folder` is the run's on this machine."""
        return Collection(folder / f"{name}.json", kind)

    def secret(self, name: str) -> str:
        """A secret of 256 bits, the same for every server. Created if missing. Blocks."""
        return stored_secret(self._folder / name)

    def known_secret(self, name: str) -> str | None:
        """The secret, if there is one. Blocks."""
        return found_secret(self._folder / name)

    async def current(self, *, exactly: bool = False) -> None:
        """As `Collection.current`, for the collections that admit requests."""


def fresh_secret() -> str:
    return secrets.token_urlsafe(32)


def stored_secret(path: Path) -> str:
    """A 256-bit secret in a file that only the user can read. Created if missing."""
    with suppress(FileNotFoundError):
        return _read_secret(path)
    fresh = write_beside(path, f"{fresh_secret()}\n".encode())
    # If two programs start at once, both use the secret of the first.
    with suppress(FileExistsError):
        os.link(fresh, path)
    fresh.unlink()
    sync_folder(path.parent)
    return _read_secret(path)


def found_secret(path: Path) -> str | None:
    """The secret in a file, if there is one."""
    try:
        return _read_secret(path)
    except FileNotFoundError:
        return None


def _read_secret(path: Path) -> str:
    secret = path.read_text().strip()
    if len(secret) < _MIN_SECRET_LENGTH:
        message = f"{path} contains no secret, or one that is too short; remove the file to create a new one at the next start"
        raise Unavailable(RefusalCode.STORE_UNUSABLE, message)
    return secret
