"""The tables and their version: checked when a store is opened, created and upgraded by a command."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from askback.core.errors import Unavailable
from askback.store.postgres import errors, queue_schema
from askback.store.postgres.connection import FOLDER, SCHEMA, PostgresConnection
from askback.store.sql.connection import migrations

_LOCK = f"SELECT pg_advisory_xact_lock(hashtextextended('{SCHEMA} migrations', 0))"
_UNFINISHED = "SELECT EXISTS (SELECT 1 FROM runs WHERE state IN ('queued', 'running', 'waiting_user'))"
_LEDGER = f"""
CREATE SCHEMA IF NOT EXISTS {SCHEMA};
CREATE TABLE IF NOT EXISTS migrations (version BIGINT PRIMARY KEY, applied_at TIMESTAMPTZ NOT NULL DEFAULT now())
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaStatus:
    """`found` is the version of the tables, 0 if there are none. `known` is the version that this program needs.

    `queue` has the migrations of Procrastinate that the tables have had, and `queue_known` those of the installed package.
    """

    server: str
    found: int
    known: int
    queue: tuple[str, ...]
    queue_known: tuple[str, ...]

    @property
    def fits(self) -> bool:
        return self.found == self.known and self.queue == self.queue_known

    @property
    def newer_queue(self) -> bool:
        """Whether the tables are those of a newer Procrastinate than the installed one."""
        return bool(set(self.queue) - set(self.queue_known))


@cache
def scripts() -> tuple[str, ...]:
    return migrations(FOLDER.joinpath("migrations"))


def status(connection: PostgresConnection) -> SchemaStatus:
    """Raises `Unavailable` for a server that is too old, or a database with the wrong encoding."""
    _check_server(connection)
    server = str(connection.value("SHOW server_version")).split()[0]
    return SchemaStatus(
        server=server,
        found=_version(connection),
        known=len(scripts()),
        queue=queue_schema.applied(connection),
        queue_known=queue_schema.known(),
    )


def check(connection: PostgresConnection) -> None:
    """Raise `Unavailable` unless the tables fit."""
    now = status(connection)
    if not now.fits:
        raise misfit(_address(connection), now)


def misfit(address: str, now: SchemaStatus) -> Unavailable:
    """Why a program refuses these tables."""
    if now.found > now.known:
        return errors.newer(address, now.found, now.known)
    if now.newer_queue:
        return errors.newer_queue(address, now.queue[-1])
    return errors.unfit(address, now.found, now.known)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFolder:
    """The data folder of a program."""

    id: str
    runs_dir: str
    """Where the folders of its runs are."""
    shared: bool
    """Whether the files of its runs are also in the store of `files`, where other data folders find them."""


def claim(connection: PostgresConnection, folder: DataFolder) -> None:
    """Raise `Unavailable` if the database belongs to another data folder. An empty one belongs to the first that comes.

    Data folders that share the files of their runs may share the database. Then the runs must be at the same path
    everywhere, because the sessions of engines contain it. As long as the first folder has files of unfinished runs that
    are not stored, no other one may join: it could not execute these runs.
    """
    connection.execute(
        "INSERT INTO data_folder (id, runs_dir, shared) VALUES (:id, :runs_dir, :shared) ON CONFLICT DO NOTHING",
        {"id": folder.id, "runs_dir": folder.runs_dir, "shared": folder.shared},
    )
    ((first, runs_dir, shared),) = connection.fetch("SELECT id, runs_dir, shared FROM data_folder")
    if not folder.shared:
        if first != folder.id:
            has_files = connection.value("SELECT EXISTS (SELECT 1 FROM file_store WHERE confirmed = 1)")
            raise (errors.files_not_set if has_files else errors.other_folder)(_address(connection))
        # It may have been moved.
        connection.execute("UPDATE data_folder SET runs_dir = :runs_dir", {"runs_dir": folder.runs_dir})
        return
    if runs_dir != folder.runs_dir:
        raise errors.other_runs_dir(_address(connection), runs_dir, folder.runs_dir)
    if not shared and first != folder.id:
        if connection.value(_UNFINISHED):
            raise errors.files_elsewhere(_address(connection))
        connection.execute("UPDATE data_folder SET shared = true")


def has_unshared_files(connection: PostgresConnection, folder: DataFolder) -> bool:
    """Whether unfinished runs may have files that only this folder has."""
    statement = "SELECT EXISTS (SELECT 1 FROM data_folder WHERE id = :id AND NOT shared)"
    return bool(connection.value(statement, {"id": folder.id}))


def note_files(connection: PostgresConnection, folder: DataFolder, *, shared: bool) -> None:
    statement = "UPDATE data_folder SET shared = :shared WHERE id = :id AND shared <> :shared"
    connection.execute(statement, {"id": folder.id, "shared": shared})


def upgrade(connection: PostgresConnection) -> SchemaStatus:
    """Create or upgrade the tables, in one transaction. Returns the status before. Programs wait for one another."""
    _check_server(connection)
    with connection.raw.transaction():
        connection.execute(_LOCK)
        before = status(connection)
        if before.found > before.known or before.newer_queue:
            raise misfit(_address(connection), before)
        if before.found < before.known:
            connection.raw.execute(_LEDGER)
        for version, script in enumerate(scripts()[before.found :], start=before.found + 1):
            connection.raw.execute(script.encode())
            connection.execute("INSERT INTO migrations (version) VALUES (:version)", {"version": version})
        queue_schema.upgrade(connection)
    return before


def _version(connection: PostgresConnection) -> int:
    if connection.value("SELECT to_regclass(:name)", {"name": f"{SCHEMA}.migrations"}) is None:
        return 0
    return int(connection.value("SELECT coalesce(max(version), 0) FROM migrations"))


def _check_server(connection: PostgresConnection) -> None:
    version = connection.raw.info.server_version
    if version < errors.MINIMUM * 10_000:
        raise errors.too_old(_address(connection), version)
    encoding = str(connection.value("SHOW server_encoding"))
    if encoding != "UTF8":
        raise errors.wrong_encoding(_address(connection), encoding)


def _address(connection: PostgresConnection) -> str:
    """Without the password."""
    return connection.raw.info.dsn
