"""Which store belongs to a database: the id of a store, and stores that are used only if they have the right one.

The id is in a small file of the store, and in the database. An unmounted share is an empty folder, and a wrong
bucket is a bucket. Neither has the id. The rule: only what the right store does not have is missing. A store without its
id, or with another one, cannot be used, exactly like one that is down. Nothing is stored there, and nothing is removed on its
word.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from askback.blobs.base import FileMissing, Files, StoredFile, unavailable, wrong_store

ID_FILE = "askback-store.json"
_ABOUT = "Askback knows its file store by this file. If you move the files, copy it, too."
_MAX_BYTES = 10_000
_ADVICE = (
    f"is `files` right, and the share mounted? If you moved the files, copy {ID_FILE}, too; see docs/guides/files.md"
)


class _Id(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    about: str = _ABOUT


def new_id() -> str:
    return secrets.token_hex(8)


def read_id(files: Files) -> str | None:
    """The id of the store; None if it has none. Raises `Unavailable`, also for one that cannot be read."""
    try:
        content = files.get(ID_FILE, _MAX_BYTES)
    except FileMissing:
        return None
    try:
        return msgspec.json.decode(content, type=_Id).id
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise wrong_store(files.place, f"its file {ID_FILE} is damaged; restore it") from None


def put_id(files: Files, store_id: str) -> str:
    """Give a store an id, unless it has one. Returns the id that it has now."""
    files.put(ID_FILE, msgspec.json.encode(_Id(id=store_id)))
    found = read_id(files)
    if found is None:
        raise wrong_store(files.place, f"{ID_FILE} was written, and is not there")
    return found


def check_id(files: Files, expected: str) -> None:
    """Raises `WrongStore` if this is not the store that the database uses."""
    found = read_id(files)
    if found is None:
        raise wrong_store(
            files.place, f"it has no file {ID_FILE}, and this database uses the store {expected}; {_ADVICE}"
        )
    if found != expected:
        raise wrong_store(files.place, f"it is the store {found}, and this database uses {expected}; {_ADVICE}")


class IdentifiedFiles(Files):
    """A store that verifies its id before it trusts an absence, and before it writes."""

    def __init__(
        self, files: Files, *, settle: Callable[[], str] | None, known: str | None = None, trusted_sec: float
    ) -> None:
        """`settle` finds the id, and gives one to a store that is used for the first time. None: this program only reads.

        `known`: the id, if the database has it. `trusted_sec`: how long an id that was seen counts for further writes.
        """
        self._files = files
        self._settle = settle
        self._known = known
        self._trusted_sec = trusted_sec
        self._seen_at = float("-inf")

    @property
    def place(self) -> str:
        return self._files.place

    def put(self, key: str, content: bytes | Path, *, replace: bool = False) -> None:
        self._trust()
        self._files.put(key, content, replace=replace)
        # It may have been unmounted meanwhile: then the file is not where it belongs.
        self._trust()

    def get(self, key: str, max_bytes: int) -> bytes:
        with self._missing_only_here():
            return self._files.get(key, max_bytes)

    def pieces(self, key: str) -> Iterator[bytes]:
        with self._missing_only_here():
            yield from self._files.pieces(key)

    def size(self, key: str) -> int | None:
        self._begin()
        found = self._files.size(key)
        if found is None:
            self.confirm()
        return found

    def list(self, folder: str) -> Sequence[StoredFile]:
        self._begin()
        found = self._files.list(folder)
        self.confirm()
        return found

    def delete(self, keys: Sequence[str]) -> None:
        self._trust()
        self._files.delete(keys)

    def check(self) -> str:
        self.confirm()
        return self._files.check()

    @contextmanager
    def _missing_only_here(self) -> Iterator[None]:
        self._begin()
        try:
            yield
        except FileMissing:
            self.confirm()
            raise

    def _begin(self) -> None:
        """Before the store is used for the first time. Raises `Unavailable` if the id cannot be found now."""
        if self._known is None and self._settle is not None:
            self._known = self._settle()

    def _trust(self) -> None:
        """Verify the id before a write, unless it was verified in the last `trusted_sec` seconds."""
        if time.monotonic() - self._seen_at >= self._trusted_sec:
            self.confirm()

    def confirm(self) -> None:
        """Raises `Unavailable` unless this is the store of the database."""
        self._begin()
        if self._known is None:
            raise unavailable(self.place, "no server has used it with this database yet")
        check_id(self._files, self._known)
        self._seen_at = time.monotonic()
