"""The version of the tables, which is checked when a store is opened, and the data folder that they belong to.

The tables are created and upgraded in one transaction, while programs of other versions work on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from askback.core.errors import Unavailable
from askback.core.instances import Instance
from askback.store.postgres import errors, instances, steps
from askback.store.postgres.connection import SCHEMA, PostgresConnection
from askback.store.sql.connection import Connection

_LOCK = f"SELECT pg_advisory_xact_lock(hashtextextended('{SCHEMA} migrations', 0))"
_SCHEMA = f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}"
_HAS_PROGRAMS = "SELECT to_regclass('programs') IS NOT NULL"
_NO_NEW_PROGRAMS = "LOCK TABLE programs IN SHARE ROW EXCLUSIVE MODE"
"""Who registers meanwhile waits, and then finds the new format. Renewals wait as well, so such steps must be short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaStatus:
    """`found` is the format of the tables, 0 if there are none. `needed` is the format that this program needs, and `known`
    the newest that it knows: steps that are not additive may be missing.

    `oldest` is the oldest format that a program must know to use the tables. `queue` has the migrations of Procrastinate
    that the tables have had, and `queue_known` those of the installed package.
    """

    server: str
    found: int
    needed: int
    known: int
    oldest: int
    queue: tuple[str, ...]
    queue_known: tuple[str, ...]

    @property
    def fits(self) -> bool:
        tables = self.needed <= self.found and self.oldest <= self.known
        return tables and steps.queue_fits(self.queue, self.queue_known)

    @property
    def newer(self) -> bool:
        """Whether the tables, or those of the queue, are too new for this program."""
        return self.oldest > self.known or bool(steps.newer_queue(self.queue, self.queue_known))

    @property
    def waiting(self) -> tuple[str, ...]:
        """The known steps that are not applied yet: they wait for older programs to end, unless the tables do not fit."""
        tables = tuple(str(step.version) for step in steps.steps()[self.found :])
        return (*tables, *(name for name in self.queue_known if name not in self.queue))


def status(connection: PostgresConnection) -> SchemaStatus:
    """Raises `Unavailable` for a server that is too old, or a database with the wrong encoding."""
    check_server(connection)
    server = str(connection.value("SHOW server_version")).split()[0]
    has_tables = connection.value("SELECT to_regclass(:name)", {"name": f"{SCHEMA}.migrations"}) is not None
    return SchemaStatus(
        server=server,
        found=connection.value(connection.sql["newest_format"]) if has_tables else 0,
        needed=steps.needed(),
        known=steps.newest(),
        oldest=connection.value(connection.sql["oldest_format"]) if has_tables else 0,
        queue=steps.applied_queue_steps(connection),
        queue_known=steps.queue_steps(),
    )


def check(connection: PostgresConnection) -> None:
    """Raise `Unavailable` unless the tables fit."""
    now = status(connection)
    if not now.fits:
        raise misfit(_address(connection), now)


def misfit(address: str, now: SchemaStatus) -> Unavailable:
    """The error for tables that this program cannot use."""
    if now.oldest > now.known:
        return errors.newer(address, now.oldest, now.known)
    if newer := steps.newer_queue(now.queue, now.queue_known):
        return errors.newer_queue(address, newer[-1])
    return errors.unfit(address, now.found, now.needed)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFolder:
    """The data folder of a program."""

    id: str
    runs_dir: str
    """Where the folders of its runs are."""
    shared: bool
    """Whether the files of its runs are also in the store of `files`, where other data folders find them."""


def claim(connection: Connection, folder: DataFolder, address: str) -> None:
    """Raise `Unavailable` if the database belongs to another data folder. An empty one belongs to the first that comes.

    Data folders that share the files of their runs may share the database. Then the runs must be at the same path
    everywhere, because the sessions of engines contain it. As long as the first folder has files of unfinished runs that
    are not stored, no other one may join: it could not execute these runs.
    """
    own = {"id": folder.id, "runs_dir": folder.runs_dir, "shared": folder.shared}
    connection.execute(connection.sql["claim_data_folder"], own)
    ((first, runs_dir, shared),) = connection.fetch(connection.sql["data_folder"])
    if not folder.shared:
        if first != folder.id:
            has_files = connection.value(connection.sql["has_file_store"])
            raise (errors.files_not_set if has_files else errors.other_folder)(address)
        # It may have been moved.
        connection.execute(connection.sql["set_runs_dir"], {"runs_dir": folder.runs_dir})
        return
    if runs_dir != folder.runs_dir:
        raise errors.other_runs_dir(address, runs_dir, folder.runs_dir)
    if not shared and first != folder.id:
        if connection.value(connection.sql["has_unfinished_runs"]):
            raise errors.files_elsewhere(address)
        connection.execute(connection.sql["share_data_folder"])


def has_unshared_files(connection: Connection, folder: DataFolder) -> bool:
    """Whether unfinished runs may have files that only this folder has."""
    return bool(connection.value(connection.sql["has_unshared_files"], {"id": folder.id}))


def mark_files(connection: Connection, folder: DataFolder, *, shared: bool) -> None:
    connection.execute(connection.sql["mark_files"], {"id": folder.id, "shared": shared})


def check_server(connection: PostgresConnection) -> None:
    """Raise `Unavailable` for a server that is too old, or a database with the wrong encoding."""
    version = connection.raw.info.server_version
    if version < errors.MINIMUM * 10_000:
        raise errors.too_old(_address(connection), version)
    encoding = str(connection.value("SHOW server_encoding"))
    if encoding != "UTF8":
        raise errors.wrong_encoding(_address(connection), encoding)


def _address(connection: PostgresConnection) -> str:
    """Without the password."""
    return connection.raw.info.dsn


# Upgrades.


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    before: SchemaStatus
    after: SchemaStatus
    blocked_by: tuple[Instance, ...] = ()
    """The programs that are too old for the next step."""


def upgrade(connection: PostgresConnection, *, force: bool = False) -> Upgrade:
    """Apply all steps up to the first one that a living program is too old for. `force`: also those.

    Raises `Unavailable` if the tables are too new for this program, or if a step that this program needs must wait.
    """
    check_server(connection)
    with connection.raw.transaction():
        connection.execute(_LOCK)
        before = status(connection)
        if before.newer:
            raise misfit(connection.raw.info.dsn, before)
        if before.waiting:
            connection.execute(_SCHEMA)
            connection.raw.execute(steps.LEDGER.encode())
        blocked_by = _apply(connection, before, force=force)
        connection.raw.execute(connection.sql["index_search"].encode())
        after = status(connection)
        if not after.fits:
            # Nothing is kept: half an upgrade helps nobody.
            raise errors.older_programs(connection.raw.info.dsn, [each.name for each in blocked_by])
    return Upgrade(before=before, after=after, blocked_by=blocked_by)


def _apply(connection: PostgresConnection, before: SchemaStatus, *, force: bool) -> tuple[Instance, ...]:
    living: Sequence[Instance] = ()
    if before.found and any(map(_is_removing, before.waiting)) and not force:
        living = living_instances(connection, alone=True)
    for step in steps.steps()[before.found :]:
        if older := tuple(each for each in living if each.facts.format < step.oldest):
            return older
        steps.apply(connection, step)
    waits = steps.upgrade_queue(connection, [each.facts.queue_format for each in living])
    return () if waits is None else tuple(each for each in living if each.facts.queue_format < waits)


def _is_removing(step: str) -> bool:
    """Whether a step, by its name in `SchemaStatus.waiting`, is not additive."""
    return not (steps.steps()[int(step) - 1].additive if step.isdigit() else steps.is_additive(step))


def living_instances(connection: PostgresConnection, *, alone: bool = False) -> Sequence[Instance]:
    """The programs whose lease is not over. `alone`: no other one registers until the transaction ends."""
    if not connection.value(_HAS_PROGRAMS):
        return ()
    if alone:
        connection.execute(_NO_NEW_PROGRAMS)
    return instances.living(connection)
