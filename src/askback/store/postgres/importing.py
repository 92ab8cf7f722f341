"""Moves the data folder of an embedded server into an empty database: every row, and the records of its small files.

Everything is one transaction. The files of runs and skills stay where they are. Somebody else may have prepared the folder:
all names of tables and columns are ours, and every row and record is decoded before it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.sql import SQL, Composed, Identifier

from askback.core.errors import RefusalCode, Unavailable
from askback.fs.records import Record
from askback.store.postgres import errors, imported_records, imported_rows, schema
from askback.store.postgres.connection import SCHEMA, Limits, PostgresConnection
from askback.store.postgres.imported_rows import MAX_NUMBER, TABLES
from askback.store.sql.rows import load_run, searched_text
from askback.store.sqlite.connection import SqliteConnection
from askback.store.sqlite.errors import faults_of
from askback.store.sqlite.moving import known_columns, mark_as_moved, open_alone

_FLAGS = frozenset({"expiring", "active"})
"""The columns that are truth values in PostgreSQL."""
_STEP = 1000

Progress = Callable[[str, int, int], None]
"""Is called with the name of a table, how many of its rows are copied, and how many it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    rows: Mapping[str, int]
    """By table, and by collection of records."""
    already: bool = False
    """Whether an earlier import had copied everything, and only the mark in the folder was missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The data folder of an embedded server."""

    folder: Path
    database: Path
    """The SQLite file."""
    runs: Path
    """The folder with the folders of its runs."""
    record_kinds: Mapping[str, type[Record]]
    """The type of the records in each collection, and of the links of a run as `links`."""


def import_folder(source: Source, address: str, progress: Progress) -> Imported:
    """Copy a data folder, and mark its SQLite file as moved.

    Raises `Unavailable` if the folder is in use or has another format, or if the database is not empty.
    """
    with closing(open_alone(source.database)) as rows:
        try:
            with (
                closing(PostgresConnection.open(address, Limits(statement_sec=0))) as target,
                faults_of(source.database, rows),
            ):
                imported = _import(source, rows, target, progress)
        except (psycopg.IntegrityError, psycopg.DataError) as error:
            raise imported_rows.refused(error.diag.table_name or "the tables", error) from error
        except psycopg.Error as error:
            raise errors.unavailable(error, address) from error
        mark_as_moved(rows, source.database)
    return imported


def _import(given: Source, source: SqliteConnection, target: PostgresConnection, progress: Progress) -> Imported:
    schema.check(target)
    folder_id = imported_records.folder_id(given.folder)
    with target.raw.transaction():
        target.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        target.execute("LOCK TABLE runs, collections, data_folder IN ACCESS EXCLUSIVE MODE")
        if imported_records.was_imported(target, folder_id):
            return Imported(rows={}, already=True)
        _refuse_used(target)
        rows = {table: _copy(source, target, table, progress) for table in TABLES}
        rows["queue"] = fill_queue(source, target)
        _continue_numbers(source, target)
        rows |= imported_records.copy(target, given.folder, given.record_kinds)
        run_ids = source.execute("SELECT id FROM runs")
        rows["links"] = imported_records.copy_links(target, given.runs, run_ids, given.record_kinds["links"])
        imported_records.note_import(target, folder_id, given.folder)
        data_folder = schema.DataFolder(id=folder_id, runs_dir=str(given.runs.absolute()), shared=False)
        schema.claim(target, data_folder, target.raw.info.dsn)
    return Imported(rows=rows)


def _refuse_used(target: PostgresConnection) -> None:
    for table in (*TABLES, "collections"):
        if target.value(f"SELECT EXISTS (SELECT 1 FROM {table})"):
            place = errors.place(target.raw.info.dsn)
            message = (
                f"{place} is not empty: it has rows in `{table}`; import into a new database, or empty this one with:"
                f" DROP SCHEMA {SCHEMA} CASCADE, then askback database upgrade"
            )
            raise Unavailable(RefusalCode.STORE_UNUSABLE, message)


def _copy(source: SqliteConnection, target: PostgresConnection, table: str, progress: Progress) -> int:
    columns = tuple(known_columns(table))
    total, copied = int(source.value(f"SELECT count(*) FROM {table}")), 0
    with target.raw.cursor().copy(_copying(table, columns)) as copy:
        for values in _decoded(source.execute(f"SELECT {', '.join(columns)} FROM {table}"), table):
            copy.write_row(tuple(_values(table, dict(zip(columns, values, strict=True)))))
            copied += 1
            if copied % _STEP == 0 or copied == total:
                progress(table, copied, total)
    return copied


def _copying(table: str, columns: tuple[str, ...]) -> Composed:
    """`searched` is a column that only PostgreSQL has."""
    names = (*columns, "searched") if table == "runs" else columns
    return SQL("COPY {} ({}) FROM STDIN").format(Identifier(table), SQL(", ").join(map(Identifier, names)))


def _decoded(values: Iterator[Any], table: str) -> Iterator[Any]:
    """The rows, whose texts may be anything."""
    try:
        yield from values
    except UnicodeDecodeError as error:
        raise imported_rows.refused(table, error) from error


def _values(table: str, row: Mapping[str, Any]) -> Iterator[Any]:
    imported_rows.check(table, row)
    for name, value in row.items():
        yield bool(value) if name in _FLAGS else value
    if table == "runs":
        yield searched_text(load_run(row["doc"])) if row["state"] == "waiting_user" else None


def fill_queue(source: SqliteConnection, target: PostgresConnection) -> int:
    """Queue the runs that are queued in the folder, in the same order."""
    rows = source.fetch(
        "SELECT runs.number, runs.doc FROM queue JOIN runs ON runs.number = queue.run ORDER BY position"
    )
    for number, doc in rows:
        target.queue.add(number, load_run(doc))
    return len(rows)


def _continue_numbers(source: SqliteConnection, target: PostgresConnection) -> None:
    """New rows get numbers above those of all that were ever there."""
    used = dict(source.fetch("SELECT name, seq FROM sqlite_sequence"))
    for table in TABLES:
        sequence = _sequence(target, table)
        highest = None if sequence is None else target.value(f"SELECT max(number) FROM {table}")
        counted = used.get(table, 0)
        if type(counted) is not int or not 0 <= counted < MAX_NUMBER:
            raise imported_rows.refused(table, ValueError(f"its last number is {counted!r}"))
        last = max(highest or 0, counted)
        if sequence is not None and last:
            target.execute("SELECT setval(:sequence, :last)", {"sequence": sequence, "last": last})


def _sequence(target: PostgresConnection, table: str) -> str | None:
    numbered = target.value(
        "SELECT 1 FROM information_schema.columns"
        " WHERE table_schema = :schema AND table_name = :name AND column_name = 'number'",
        {"schema": SCHEMA, "name": table},
    )
    if not numbered:
        return None
    found = target.value("SELECT pg_get_serial_sequence(:name, 'number')", {"name": f"{SCHEMA}.{table}"})
    return None if found is None else str(found)
