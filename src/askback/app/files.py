"""Which file store is used, and whether it is the one of the database."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from askback.app.database import open_store
from askback.blobs import Files
from askback.blobs.addresses import StoreAddress, read_address
from askback.blobs.blocking import BlockingFiles
from askback.blobs.errors import WrongStore, unavailable, wrong_store
from askback.blobs.folder import FolderFiles
from askback.blobs.mark import MARK, new_id, put_mark, read_mark
from askback.blobs.marked import MarkedFiles, StoreIdentity
from askback.core.errors import Invalid, RefusalCode, Unavailable
from askback.fs.atomic import make_private
from askback.settings.model import Settings
from askback.store.base import Store

log = logging.getLogger(__name__)

_NEEDED = ("obstore", "zstandard")
INSTALL = "install it with: pip install 'askback[files]' (with pipx: pipx inject askback 'askback[files]')"
_TRUSTED_SEC = 10.0
"""How long the mark of an object store counts for further writes."""
_SAMPLE = 50
"""How many archives are looked for in a store without a mark. Some may be too large to be stored."""
_GUIDE = "see docs/guides/files.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedFiles:
    """The store of a program: for its event loop, and for its threads."""

    files: MarkedFiles
    blocking: BlockingFiles


async def open_files(settings: Settings, store: Store, *, read_only: bool) -> OpenedFiles | None:
    """The store that the settings name. Raises `Unavailable` if it is not the one of the database.

    A program starts while an object store is down. One that only looks (`read_only`) starts in any case, and marks nothing.
    """
    address = checked_address(settings)
    if address is None:
        if not read_only:
            await refuse_without_files(store)
        return None
    raw, loop = files_at(address), asyncio.get_running_loop()

    async def settle() -> str:
        found = identified(store, raw, address)
        if asyncio.get_running_loop() is loop:
            return await found
        # From a thread: the database belongs to this loop.
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(found, loop))

    identity = StoreIdentity(None if read_only else settle)
    opened = OpenedFiles(
        files=_marked(raw, identity, address),
        blocking=BlockingFiles(_marked(files_at(address), identity, address)),
    )
    recorded = await store.file_store()
    if recorded is not None and recorded.confirmed:
        identity.known = recorded.id
    if not read_only:
        await _confirm(opened.files, address)
    return opened


async def _confirm(files: MarkedFiles, address: Path | StoreAddress) -> None:
    # A store that does not answer delays the start.
    log.info("looking at the file store %s", files.place)
    try:
        await files.confirm()
    except Unavailable as error:
        if isinstance(error, WrongStore) or isinstance(address, Path):
            raise
        log.error("the file store is down, starting without it: %s", error.message)


def command_files(settings: Settings) -> BlockingFiles | None:
    """The store for a command without an open program. The database is opened only if a file is stored or missing."""
    address = checked_address(settings)
    if address is None:
        return None

    async def settle() -> str:
        store = await open_store(settings)
        try:
            return await identified(store, files_at(address), address)
        finally:
            await store.close()

    return BlockingFiles(_marked(files_at(address), StoreIdentity(settle), address))


async def identified(store: Store, files: Files, address: Path | StoreAddress) -> str:
    """The id of the store that belongs to the database. A store that is used for the first time is marked.

    The id is in the database before it is in the store: programs that start at the same time agree on it there, and a mark
    with another id is that of another database.
    """
    recorded = await store.propose_file_store(new_id())
    if recorded.confirmed:
        return recorded.id
    found = await found_mark(files, address)
    if found is None:
        await refuse_emptied(store, files, address)
        if isinstance(address, Path):
            await asyncio.to_thread(_make_folder, address)
        found = await put_mark(files, recorded.id)
    if found != recorded.id:
        raise foreign(files.place, found)
    await store.confirm_file_store(recorded.id)
    log.info("the file store %s belongs to this database now: %s", files.place, recorded.id)
    return recorded.id


async def found_mark(files: Files, address: Path | StoreAddress) -> str | None:
    """The id of the store at the address; None if it has no mark, also because its folder does not exist yet."""
    if isinstance(address, Path) and not await asyncio.to_thread(address.is_dir):
        return None
    return await read_mark(files)


async def refuse_emptied(store: Store, files: Files, address: Path | StoreAddress) -> None:
    """A store without a mark is new, or that of a version without marks. Raises `WrongStore` if it can be neither."""
    needed = await store.some_archive_keys(_SAMPLE)
    if not needed:
        return
    if not isinstance(address, Path) or await asyncio.to_thread(address.is_dir):
        for key in needed:
            if await files.size(key) is not None:
                return
    raise wrong_store(
        files.place,
        f"it has no file {MARK}, and none of the files that waiting and queued runs need; check that `files` names the"
        " right place, and that the share is mounted. If these files are lost, use the store as it is with:"
        f" askback files adopt; {_GUIDE}",
    )


async def refuse_without_files(store: Store) -> None:
    """Files of runs would be missing, and those of new turns would be on this machine alone."""
    recorded = await store.file_store()
    if recorded is not None and recorded.confirmed:
        message = (
            f"the files of these runs are in a store ({recorded.id}), and the setting `files` is not set; set it to the"
            f" address of that store, or give the store up with: askback files forget; {_GUIDE}"
        )
        raise Unavailable(RefusalCode.FILES_UNAVAILABLE, message)


def checked_address(settings: Settings) -> Path | StoreAddress | None:
    """Where the files are. Raises `Invalid` if a package of the extra `files` is missing."""
    if settings.files is None:
        return None
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        problem = f"files: not installed: {', '.join(missing)}; {INSTALL}, or remove the setting"
        raise Invalid(RefusalCode.SETTINGS_INVALID, "files cannot be stored", [problem])
    return read_address(settings.files)


def files_at(address: Path | StoreAddress) -> Files:
    """The files there, whosever they are. Nothing is created."""
    if isinstance(address, Path):
        return FolderFiles(address)
    # An extra.
    from askback.blobs.object_store import ObjectStoreFiles

    return ObjectStoreFiles(address)


def shared_folder(settings: Settings) -> list[Path]:
    """The folder of the stored files, which engines must not see. Empty if they are elsewhere."""
    address = None if settings.files is None else read_address(settings.files)
    return [address] if isinstance(address, Path) else []


def _marked(files: Files, identity: StoreIdentity, address: Path | StoreAddress) -> MarkedFiles:
    return MarkedFiles(files, identity, trusted_sec=0.0 if isinstance(address, Path) else _TRUSTED_SEC)


def _make_folder(folder: Path) -> None:
    try:
        make_private(folder)
    except OSError as error:
        raise unavailable(str(folder), error.strerror or "it cannot be created") from None


def foreign(place: str, found: str) -> WrongStore:
    return wrong_store(
        place,
        f"it is the store {found} of another database, which would remove files that it does not know; choose another"
        " folder or prefix. If this database was restored from a backup, or replaces the other one, use it with:"
        f" askback files adopt; {_GUIDE}",
    )
