"""Which file store and which skills an instance uses, by its settings."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

from askback.app.known_engines import known_engines
from askback.app.storage import open_store, shelf_of
from askback.blobs.base import Files, StoreAddress, WrongStore, read_address
from askback.blobs.folder import FolderFiles
from askback.blobs.identity import IdentifiedFiles
from askback.cluster import file_store
from askback.core.errors import Invalid, RefusalCode, Unavailable
from askback.engines.registry import Engines
from askback.fs.records import Records
from askback.settings.model import Settings
from askback.settings.sections import in_bytes
from askback.skills.archive import ZipLimits
from askback.skills.library import Library
from askback.skills.package_archives import PackageArchives
from askback.store.base import Store

log = logging.getLogger(__name__)

_NEEDED = ("obstore", "zstandard")
INSTALL = "install it with: pip install 'askback[files]' (with pipx: pipx inject askback 'askback[files]')"
_TRUSTED_SEC = 10.0
"""How long the id of an object store counts for further writes."""


async def open_files(settings: Settings, store: Store, *, read_only: bool) -> IdentifiedFiles | None:
    """The file store that the settings name.

    Raises `Unavailable` if it is not the one of the database. An instance starts while an object store is down. One that
    is `read_only` starts in any case, and marks nothing.
    """
    address = checked_address(settings)
    if address is None:
        if not read_only:
            await file_store.refuse_without_files(store)
        return None
    raw, loop = files_at(address), asyncio.get_running_loop()

    def settle() -> str:
        # In a thread, like every call of the store: the database belongs to this loop.
        return asyncio.run_coroutine_threadsafe(file_store.identify(store, raw, address), loop).result()

    recorded = await store.file_store()
    known = recorded.id if recorded is not None and recorded.confirmed else None
    files = IdentifiedFiles(raw, settle=None if read_only else settle, known=known, trusted_sec=_trusted_sec(address))
    if not read_only:
        # A store that does not answer delays the start.
        log.info("looking at the file store %s", files.place)
        try:
            await asyncio.to_thread(files.confirm)
        except Unavailable as error:
            if isinstance(error, WrongStore) or isinstance(address, Path):
                raise
            log.error("the file store is down, starting without it: %s", error.message)
    return files


def command_files(settings: Settings) -> IdentifiedFiles | None:
    """The store for a command without an open instance. The database is opened only if a file is stored or missing."""
    address = checked_address(settings)
    if address is None:
        return None
    raw = files_at(address)

    async def identify_once() -> str:
        store = await open_store(settings)
        try:
            return await file_store.identify(store, raw, address)
        finally:
            await store.close()

    def settle() -> str:
        # In a thread without an event loop, which the caller may have.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(lambda: asyncio.run(identify_once())).result()

    return IdentifiedFiles(raw, settle=settle, trusted_sec=_trusted_sec(address))


def _trusted_sec(address: Path | StoreAddress) -> float:
    return 0.0 if isinstance(address, Path) else _TRUSTED_SEC


def files_at(address: Path | StoreAddress) -> Files:
    """The files at an address, whichever database they belong to. Creates nothing."""
    if isinstance(address, Path):
        return FolderFiles(address)
    # An extra.
    from askback.blobs.object_store import ObjectStoreFiles

    return ObjectStoreFiles(address)


def checked_address(settings: Settings) -> Path | StoreAddress | None:
    """Where the files are. Raises `Invalid` if a package of the extra `files` is missing."""
    if settings.files is None:
        return None
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        problem = f"files: not installed: {', '.join(missing)}; {INSTALL}, or remove the setting"
        raise Invalid(RefusalCode.SETTINGS_INVALID, "files cannot be stored", [problem])
    return read_address(settings.files)


def given_address(settings: Settings) -> Path | StoreAddress:
    address = checked_address(settings)
    if address is None:
        message = "the setting `files` is not set; set it to the address of the store"
        raise Unavailable(RefusalCode.FILES_UNAVAILABLE, message)
    return address


async def examine(settings: Settings, store: Store) -> file_store.FilesReport:
    """What is at the address of `files`, and whether it is the store of the database."""
    address = checked_address(settings)
    return await (
        file_store.report_without_files(store)
        if address is None
        else file_store.report(store, files_at(address), address)
    )


def shared_folder(settings: Settings) -> list[Path]:
    """The folder of the stored files, which engines must not see. Empty if they are elsewhere."""
    address = None if settings.files is None else read_address(settings.files)
    return [address] if isinstance(address, Path) else []


def open_library(
    settings: Settings,
    engines: Engines | None = None,
    records: Records | None = None,
    files: Files | None = None,
) -> Library:
    """The skills. `records` and `files` are those of an open instance. A command needs neither."""
    if files is None:
        files = command_files(settings)
    known = known_engines(settings) if engines is None else engines
    return Library(
        settings.data_dir,
        settings.skills_dir,
        ZipLimits(entries=settings.limits.zip_entries, total_bytes=in_bytes(settings.limits.zip_total)),
        known.config_names,
        shelf=shelf_of(settings, records),
        archives=None if files is None else PackageArchives(files),
    )
