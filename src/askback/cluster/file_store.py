"""The file store of a database: it has the id that the database has, so another store is never mistaken for it.

The id is in the database before it is in the store: instances that start at the same time agree on it there, and a store
with another id is that of another database.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from askback.blobs.base import Files, StoreAddress, WrongStore, unavailable, wrong_store
from askback.blobs.identity import ID_FILE, check_id, new_id, put_id, read_id
from askback.core.errors import NotFound, RefusalCode, Unavailable
from askback.core.runs import Run
from askback.fs.atomic import make_private
from askback.store.base import Store
from askback.workspace.archives import is_only_on_one_machine

log = logging.getLogger(__name__)

_SAMPLE = 50
"""How many archives are looked for in a store without an id. Some may be too large to be stored."""
_AT_ONCE = 16
_MOST_LOOKED_FOR = 2000
"""How many archives a report looks for, each with one request."""
_GUIDE = "see docs/guides/files.md"

Address = Path | StoreAddress


async def identify(store: Store, files: Files, address: Address) -> str:
    """The id of the file store that belongs to the database. One that is used for the first time gets it."""
    recorded = await store.propose_file_store(new_id())
    if recorded.confirmed:
        return recorded.id
    found = await asyncio.to_thread(_find_id, files, address)
    if found is None:
        await _refuse_emptied(store, files, address)
        if isinstance(address, Path):
            try:
                await asyncio.to_thread(make_private, address)
            except OSError as error:
                raise unavailable(str(address), error.strerror or "it cannot be created") from None
        found = await asyncio.to_thread(put_id, files, recorded.id)
    if found != recorded.id:
        raise _foreign(files.place, found)
    await store.confirm_file_store(recorded.id)
    log.info("the file store %s belongs to this database now: %s", files.place, recorded.id)
    return recorded.id


async def adopt(store: Store, files: Files) -> str:
    """Make this file store the one of the database, whatever was recorded before. Returns its id."""
    recorded = await store.file_store()
    found = await asyncio.to_thread(read_id, files)
    if found is None:
        recorded = recorded or await store.propose_file_store(new_id())
        found = await asyncio.to_thread(put_id, files, recorded.id)
    await store.replace_file_store(found)
    return found


def _find_id(files: Files, address: Address) -> str | None:
    """The id of the store at the address; None if it has none, also because its folder does not exist yet."""
    return None if isinstance(address, Path) and not address.is_dir() else read_id(files)


async def refuse_without_files(store: Store) -> None:
    """Files of runs would be missing, and those of new turns would be on this machine alone."""
    recorded = await store.file_store()
    if recorded is not None and recorded.confirmed:
        message = (
            f"the files of these runs are in a store ({recorded.id}), and the setting `files` is not set; set it to the"
            f" address of that store, or give the store up with: askback files forget; {_GUIDE}"
        )
        raise Unavailable(RefusalCode.FILES_UNAVAILABLE, message)


async def _refuse_emptied(store: Store, files: Files, address: Address) -> None:
    """A store without an id is new, or that of a version without ids. Raises `WrongStore` if it can be neither."""
    needed = await store.some_archive_keys(_SAMPLE)
    if not needed:
        return
    if not isinstance(address, Path) or await asyncio.to_thread(address.is_dir):
        for key in needed:
            if await asyncio.to_thread(files.size, key) is not None:
                return
    raise wrong_store(
        files.place,
        f"it has no file {ID_FILE}, and none of the files that waiting and queued runs need; check that `files` names the"
        " right place, and that the share is mounted. If these files are lost, use the store as it is with:"
        f" askback files adopt; {_GUIDE}",
    )


def _foreign(place: str, found: str) -> WrongStore:
    return wrong_store(
        place,
        f"it is the store {found} of another database, which would remove files that it does not know; choose another"
        " folder or prefix. If this database was restored from a backup, or replaces the other one, use it with:"
        f" askback files adopt; {_GUIDE}",
    )


# Reports. Nothing is created or changed.


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesReport:
    place: str | None
    """None if the setting `files` is not set."""
    expected: str | None
    """The id of the store that the database uses; None if it uses none yet."""
    found: str | None = None
    """The id of the store at the address; None if it has none, or cannot be used."""
    reachable: bool = False
    problem: str | None = None

    @property
    def matches(self) -> bool | None:
        """None if there is nothing to compare."""
        return None if self.expected is None or not self.reachable else self.expected == self.found


async def report_without_files(store: Store) -> FilesReport:
    recorded = await store.file_store()
    expected = recorded.id if recorded is not None and recorded.confirmed else None
    try:
        await refuse_without_files(store)
    except Unavailable as error:
        return FilesReport(place=None, expected=expected, problem=error.message)
    return FilesReport(place=None, expected=expected)


async def report(store: Store, files: Files, address: Address) -> FilesReport:
    """What is at the address, and whether it is the store of the database."""
    recorded = await store.file_store()
    expected = recorded.id if recorded is not None and recorded.confirmed else None
    found, reachable, problem = None, False, None
    try:
        if expected is not None:
            found, reachable = await asyncio.to_thread(read_id, files), True
            await asyncio.to_thread(check_id, files, expected)
        else:
            found = await asyncio.to_thread(_find_id, files, address)
            reachable = not isinstance(address, Path) or await asyncio.to_thread(address.is_dir)
            # As the first start does it, which gives the store its id.
            if found is None:
                await _refuse_emptied(store, files, address)
            elif recorded is None or found != recorded.id:
                raise _foreign(files.place, found)
    except Unavailable as error:
        problem = error.message
    return FilesReport(place=files.place, expected=expected, found=found, reachable=reachable, problem=problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentReport:
    """Which archives of waiting and queued runs are in the store."""

    looked_for: int
    """How many were looked for. If runs are very many, these are some of them."""
    missing: tuple[str, ...]
    """The IDs of runs whose archive is not there: their sessions are lost."""
    not_kept: int
    """Runs with the warning that they could not be stored. They continue only on the machine of their last turn."""


async def report_contents(store: Store, files: Files) -> ContentReport:
    """Raises `Unavailable`. The file store must be the right one, see `report`."""
    keys = await store.some_archive_keys(_MOST_LOOKED_FOR)

    def look() -> list[str]:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return [key for key, size in zip(keys, pool.map(files.size, keys), strict=True) if size is None]

    runs = [await _still_named(store, key) for key in await asyncio.to_thread(look)]
    lost = [run for run in runs if run is not None]
    missing = tuple(sorted(run.id for run in lost if not is_only_on_one_machine(run.kept or "")))
    return ContentReport(looked_for=len(keys), missing=missing, not_kept=len(lost) - len(missing))


async def _still_named(store: Store, key: str) -> Run | None:
    """The run that needs this archive; None if it has had another turn since, or is over."""
    try:
        run = await store.get(key.split("/")[1])
    except NotFound:
        return None
    return run if run.kept == key and not run.state.final else None
