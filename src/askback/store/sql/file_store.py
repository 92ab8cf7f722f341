"""The row that names the store of `files`, and the runs whose files are there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from askback.store.file_store import FileStore, StoredRunCount
from askback.store.sql.connection import Connection
from askback.store.sql.writes import Change, Write


def read(connection: Connection) -> FileStore | None:
    found = connection.fetch(connection.statements("file_store")["read"])
    return next((FileStore(id=store_id, confirmed=bool(confirmed)) for store_id, confirmed in found), None)


def count_stored_runs(connection: Connection) -> StoredRunCount:
    found: dict[str, int] = dict(connection.fetch(connection.statements("file_store")["count_stored_runs"]))
    kinds = ("stored", "not_stored", "not_started", "running")
    return StoredRunCount(**{kind: found.get(kind, 0) for kind in kinds}, unfinished=sum(found.values()))


def some_archive_keys(connection: Connection, limit: int) -> Sequence[str]:
    found = connection.fetch(connection.statements("file_store")["some_archive_keys"], {"limit": limit})
    return [key for (key,) in found]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal(Write):
    id: str

    def write(self, connection: Connection) -> Change:
        connection.execute(connection.statements("file_store")["propose"], {"id": self.id})
        return Change()


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation(Write):
    id: str

    def write(self, connection: Connection) -> Change:
        connection.execute(connection.statements("file_store")["confirm"], {"id": self.id})
        return Change()


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement(Write):
    id: str | None

    def write(self, connection: Connection) -> Change:
        sql = connection.statements("file_store")
        connection.execute(sql["forget"])
        if self.id is not None:
            connection.execute(sql["put"], {"id": self.id})
        return Change()
