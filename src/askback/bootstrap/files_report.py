"""What is at the address of `files`, and whether it is the store of the database. Nothing is created or changed there."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from askback.bootstrap.files import (
    checked_address,
    files_at,
    foreign,
    found_mark,
    refuse_emptied,
    refuse_without_files,
)
from askback.core.errors import RefusalCode, Unavailable
from askback.settings import Settings
from askback.store.base import Store
from askback.stored_files import Files
from askback.stored_files.addresses import StoreAddress
from askback.stored_files.mark import check_mark, new_id, put_mark, read_mark


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesReport:
    place: str | None
    """None if the setting `files` is not set."""
    expected: str | None
    """The id of the store that the database uses; None if it uses none yet."""
    found: str | None = None
    """The id of the store at the address; None if it has no mark, or cannot be used."""
    reachable: bool = False
    problem: str | None = None

    @property
    def matches(self) -> bool | None:
        """None if there is nothing to compare."""
        return None if self.expected is None or not self.reachable else self.expected == self.found


async def examine(settings: Settings, store: Store) -> FilesReport:
    recorded = await store.file_store()
    expected = recorded.id if recorded is not None and recorded.confirmed else None
    address = checked_address(settings)
    if address is None:
        return FilesReport(place=None, expected=expected, problem=await _without_files(store))
    files = files_at(address)
    found, reachable = None, False
    try:
        if expected is not None:
            found, reachable = await read_mark(files), True
            await check_mark(files, expected)
        else:
            found = await found_mark(files, address)
            reachable = not isinstance(address, Path) or await asyncio.to_thread(address.is_dir)
            await _check_new(store, files, address, found)
    except Unavailable as error:
        return FilesReport(
            place=files.place, expected=expected, found=found, reachable=reachable, problem=error.message
        )
    return FilesReport(place=files.place, expected=expected, found=found, reachable=reachable)


async def _check_new(store: Store, files: Files, address: Path | StoreAddress, found: str | None) -> None:
    """As the first start does it, which marks the store. Raises `Unavailable`."""
    proposed = await store.file_store()
    if found is None:
        await refuse_emptied(store, files, address)
    elif proposed is None or found != proposed.id:
        raise foreign(files.place, found)


async def try_out(settings: Settings) -> None:
    """Write, read and remove a small file. Raises `Unavailable`."""
    await files_at(given_address(settings)).check()


async def adopt(settings: Settings, store: Store) -> str:
    """Make the store at the address that of the database, whatever was recorded before. Returns its id."""
    files, recorded = files_at(given_address(settings)), await store.file_store()
    found = await read_mark(files)
    if found is None:
        found = await put_mark(files, (recorded or await store.propose_file_store(new_id())).id)
    await store.replace_file_store(found)
    return found


def given_address(settings: Settings) -> Path | StoreAddress:
    address = checked_address(settings)
    if address is None:
        message = "the setting `files` is not set; set it to the address of the store"
        raise Unavailable(RefusalCode.FILES_UNAVAILABLE, message)
    return address


async def _without_files(store: Store) -> str | None:
    try:
        await refuse_without_files(store)
    except Unavailable as error:
        return error.message
    return None
