"""Which store of `files` belongs to the runs of a database, and how many runs have their files there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStore:
    id: str
    confirmed: bool
    """Whether a store with this id was seen. Before that, the id is only proposed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRunCount:
    """The runs that wait or are queued, and those that run, by what the database says of their files."""

    stored: int
    """Their files were put into the store."""
    not_stored: int
    """They have had a turn, and their files are only on the machine of that turn."""
    not_started: int
    """They have had no turn, so there is no session to keep."""
    running: int
    """They run, and no earlier turn has put their files into the store: the turn that runs does so at its end."""
    unfinished: int
    """All of these, and those that need nothing from the store."""


class FileStoreRecord(Protocol):
    """A part of `store.base.Store`."""

    async def file_store(self) -> FileStore | None: ...

    async def propose_file_store(self, store_id: str) -> FileStore:
        """Record the id unless there is one. Returns what is recorded then: the same for all programs."""
        ...

    async def confirm_file_store(self, store_id: str) -> None:
        """The store with this id was seen."""
        ...

    async def replace_file_store(self, store_id: str | None) -> None:
        """Record another store, as one that was seen; None: no store."""
        ...

    async def count_stored_runs(self) -> StoredRunCount: ...

    async def some_archive_keys(self, limit: int) -> Sequence[str]:
        """The keys of some archives that runs need which wait or are queued."""
        ...
