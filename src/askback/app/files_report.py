"""What is at the address of `files`, and whether it is the store of the database. Nothing is created or changed there."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from askback.app.files import checked_address, files_at, foreign, found_mark, refuse_emptied, refuse_without_files
from askback.blobs import Files
from askback.blobs.addresses import StoreAddress
from askback.blobs.mark import check_mark, new_id, put_mark, read_mark
from askback.core.errors import NotFound, RefusalCode, Unavailable, WarningCode
from askback.core.runs import Run
from askback.settings.model import Settings
from askback.store.base import Store
from askback.worker.turn.keeping import ONLY_HERE

_AT_ONCE = 16
_MOST_LOOKED_FOR = 2000
"""How many archives are looked for, each with one request."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentReport:
    """Which archives of waiting and queued runs are in the store."""

    looked_for: int
    """How many were looked for. If runs are very many, these are some of them."""
    missing: tuple[str, ...]
    """The IDs of runs whose archive is not there: their sessions are lost."""
    not_kept: int
    """Runs with the warning that they could not be stored. They continue only on the machine of their last turn."""


async def examine_contents(settings: Settings, store: Store) -> ContentReport:
    """Raises `Unavailable`. The store must be the right one, see `examine`."""
    files, keys = files_at(given_address(settings)), await store.some_archive_keys(_MOST_LOOKED_FOR)
    free = asyncio.Semaphore(_AT_ONCE)

    async def absent(key: str) -> bool:
        async with free:
            return await files.size(key) is None

    found = await asyncio.gather(*map(absent, keys))
    runs = [await _still_named(store, key) for key, is_absent in zip(keys, found, strict=True) if is_absent]
    lost = [run for run in runs if run is not None]
    missing = tuple(sorted(run.id for run in lost if not _is_not_kept(run)))
    return ContentReport(looked_for=len(keys), missing=missing, not_kept=len(lost) - len(missing))


async def _still_named(store: Store, key: str) -> Run | None:
    """The run that needs this archive; None if it has had another turn since, or is over."""
    try:
        run = await store.get(key.split("/")[1])
    except NotFound:
        return None
    return run if run.kept == key and not run.state.final else None


def _is_not_kept(run: Run) -> bool:
    return any(each.code is WarningCode.FILES_NOT_KEPT and each.message.startswith(ONLY_HERE) for each in run.warnings)


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
