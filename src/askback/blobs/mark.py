"""The mark of a file store: a small file with the id by which its database knows it.

An unmounted share is an empty folder, and a wrong bucket is a bucket. Neither has the mark.
"""

from __future__ import annotations

import secrets

import msgspec

from askback.blobs import FileMissing, Files
from askback.blobs.errors import wrong_store

MARK = "askback-store.json"
_ABOUT = "Askback knows its file store by this file. If you move the files, copy it, too."
_MAX_BYTES = 10_000
_ADVICE = f"is `files` right, and the share mounted? If you moved the files, copy {MARK}, too; see docs/guides/files.md"


class _Mark(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    about: str = _ABOUT


def new_id() -> str:
    return secrets.token_hex(8)


async def read_mark(files: Files) -> str | None:
    """The id of the store; None if it has no mark. Raises `Unavailable`, also for a mark that cannot be read."""
    try:
        content = await files.get(MARK, _MAX_BYTES)
    except FileMissing:
        return None
    try:
        return msgspec.json.decode(content, type=_Mark).id
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise wrong_store(files.place, f"its file {MARK} is damaged; restore it") from None


async def put_mark(files: Files, store_id: str) -> str:
    """Mark a store, unless it is marked. Returns the id that it has now."""
    await files.put(MARK, msgspec.json.encode(_Mark(id=store_id)))
    found = await read_mark(files)
    if found is None:
        raise wrong_store(files.place, f"{MARK} was written, and is not there")
    return found


async def check_mark(files: Files, expected: str) -> None:
    """Raises `WrongStore` if this is not the store that the database uses."""
    found = await read_mark(files)
    if found is None:
        raise wrong_store(files.place, f"it has no file {MARK}, and this database uses the store {expected}; {_ADVICE}")
    if found != expected:
        raise wrong_store(files.place, f"it is the store {found}, and this database uses {expected}; {_ADVICE}")
