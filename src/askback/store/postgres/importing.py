"""Moves the data folder of an embedded server into an empty database: every row, and the records of its small files.

Everything is one transaction. The files of runs and skills stay where they are. Somebody else may have prepared the folder:
all names of tables and columns are ours, and every row and record is decoded before it is written.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import psycopg
from psycopg.sql import SQL, Identifier

from askback.core.errors import RefusalCode, Unavailable
from askback.core.events import EventType
from askback.core.interactions import InteractionOutcome
from askback.core.runs import RunState, parse_run_id, require_run_id
from askback.core.webhooks import DeliveryReason, WebhookKind
from askback.fs.paths import open_regular
from askback.fs.records import Record, found_secret, stored_secret
from askback.store.postgres import errors, schema
from askback.store.postgres.connection import SCHEMA, Limits, PostgresConnection
from askback.store.postgres.records import SECRETS
from askback.store.sql import rows as stored
from askback.store.sql.rows import load_run, searched_text
from askback.store.sqlite.connection import SqliteConnection
from askback.store.sqlite.errors import faults_of
from askback.store.sqlite.moving import known_columns, mark_as_moved, open_alone

_FLAGS = frozenset({"expiring", "active"})
"""The columns that are truth values in PostgreSQL."""
_STEP = 1000
KEYS = ("token", "link-key", "push-key")
_MAX_FILE = 64 * 2**20
_IMPORT = "import"
"""The collection that says which folder was imported."""

TABLES = (
    "runs",
    "requests",
    "results",
    "interactions",
    "events",
    "idempotency_keys",
    "run_labels",
    "webhooks",
    "deliveries",
    "daily_runs",
    "turn_usage",
    "chat_messages",
    "audit",
    "file_store",
)
"""In the order of their references."""
MAX_NUMBER = 2**62
"""Above all that a server can have counted. Further rows need numbers above those that are imported."""

log = logging.getLogger(__name__)

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


class _Version(msgspec.Struct, frozen=True):
    version: str | None
    digest: str


class _Installed(msgspec.Struct, frozen=True):
    versions: list[_Version]


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
            raise _refused(error.diag.table_name or "the tables", error) from error
        except psycopg.Error as error:
            raise errors.unavailable(error, address) from error
        mark_as_moved(rows, source.database)
    return imported


def _import(given: Source, source: SqliteConnection, target: PostgresConnection, progress: Progress) -> Imported:
    schema.check(target)
    # What the database knows the folder by. Created if missing.
    path = given.folder / "database-id"
    folder_id = _secret(path) or stored_secret(path)
    with target.raw.transaction():
        target.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        target.execute("LOCK TABLE runs, collections, data_folder IN ACCESS EXCLUSIVE MODE")
        if target.fetch(target.sql["has_record"], {"name": _IMPORT, "key": folder_id}):
            return Imported(rows={}, already=True)
        _refuse_used(target)
        rows = {table: _copy(source, target, table, progress) for table in TABLES}
        rows["queue"] = fill_queue(source, target)
        _continue_numbers(source, target)
        rows |= _copy_records(target, given.folder, given.record_kinds)
        run_ids = source.execute("SELECT id FROM runs")
        rows["links"] = _copy_links(target, given.runs, run_ids, given.record_kinds["links"])
        _put(target, _IMPORT, {folder_id: {"digest": folder_id, "folder": str(given.folder)}})
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
    # `searched` is a column that only PostgreSQL has.
    names = (*columns, "searched") if table == "runs" else columns
    statement = SQL("COPY {} ({}) FROM STDIN").format(Identifier(table), SQL(", ").join(map(Identifier, names)))
    with target.raw.cursor().copy(statement) as copy:
        for values in _decoded(source.execute(f"SELECT {', '.join(columns)} FROM {table}"), table):
            copy.write_row(tuple(_values(table, dict(zip(columns, values, strict=True)))))
            copied += 1
            if copied % _STEP == 0 or copied == total:
                progress(table, copied, total)
    return copied


def _decoded(values: Iterator[Any], table: str) -> Iterator[Any]:
    """The rows, whose texts may be anything."""
    try:
        yield from values
    except UnicodeDecodeError as error:
        raise _refused(table, error) from error


def _values(table: str, row: Mapping[str, Any]) -> Iterator[Any]:
    _check_row(table, row)
    if table == "runs":
        row = {**row, "doc": _without_trust(row["doc"])}
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
            raise _refused(table, ValueError(f"its last number is {counted!r}"))
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


# The small files of the folder: tokens, sessions, links, keys and the list of skills, as they are written.


def _copy_records(target: PostgresConnection, folder: Path, kinds: Mapping[str, type[Record]]) -> dict[str, int]:
    """Returns how many records each collection has got."""
    found = {name: _in_file(folder / f"{name}.json", kind) for name, kind in kinds.items() if name != "links"}
    found["skills"] = _skills(folder / "skills")
    keys = {name: _secret(folder / name) for name in KEYS}
    found[SECRETS] = {name: {"digest": name, "secret": key} for name, key in keys.items() if key is not None}
    for name, records in found.items():
        _put(target, name, records)
    return {name: len(records) for name, records in found.items()}


def _copy_links(target: PostgresConnection, runs: Path, run_ids: Iterable[tuple[str]], kind: type[Record]) -> int:
    """Copy the links of these runs, whose folders are in `runs`. Returns their number."""
    count = 0
    for (run_id,) in run_ids:
        links = _in_file(runs / parse_run_id(run_id) / "links.json", kind)
        _put(target, f"runs/{run_id}/links", links)
        count += len(links)
    return count


def _put(target: PostgresConnection, name: str, records: Mapping[str, Any]) -> None:
    if not records:
        return
    target.execute(target.sql["make_imported_collection"], {"name": name})
    rows = [{"name": name, "key": key, "doc": json.dumps(record)} for key, record in records.items()]
    target.executemany(target.sql["put_record"], rows)


def _secret(path: Path) -> str | None:
    try:
        _content(path)
        return found_secret(path)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from None


def _in_file(path: Path, kind: type[Record]) -> dict[str, Any]:
    """The records as they are written, with fields that only newer versions know."""
    try:
        content = _content(path)
        decoded: list[Record] = msgspec.json.decode(content, type=list[kind])  # type: ignore[valid-type]
        listed = msgspec.json.decode(content, type=list[dict[str, Any]])
        return {record.digest: as_written for record, as_written in zip(decoded, listed, strict=True)}
    except FileNotFoundError:
        return {}
    except (msgspec.MsgspecError, UnicodeDecodeError, OSError) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> Unavailable:
    message = f"{path} cannot be read: {error}; repair the file, or delete it, which discards its records"
    return Unavailable(RefusalCode.STORE_UNUSABLE, message)


def _content(path: Path) -> bytes:
    """Of a regular file. Somebody else may have prepared the folder."""
    descriptor = open_regular(path)
    if descriptor is None:
        raise OSError("it is not a regular file")
    with open(descriptor, "rb") as file:
        content = file.read(_MAX_FILE + 1)
    if len(content) > _MAX_FILE:
        raise OSError(f"it has more than {_MAX_FILE} bytes")
    return content


def _skills(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            versions = msgspec.json.decode(_content(path), type=_Installed).versions
        except (OSError, UnicodeDecodeError, msgspec.MsgspecError):
            log.warning("%s cannot be read; install the skill again", path)
            continue
        found[path.stem] = {"digest": path.stem, "versions": msgspec.to_builtins(versions)}
    return found


# The rows of a file that somebody else may have prepared: each is decoded by our types before it is written.


def _check_row(table: str, row: Mapping[str, Any]) -> None:
    """Raises `Unavailable` for a row that no version of Askback has written."""
    try:
        for name, kinds in known_columns(table).items():
            _check_value(name, row[name], kinds)
        _check_documents(table, row)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise _refused(table, error) from error


def _without_trust(doc: str) -> str:
    """The document of a run, whose workdir only the settings can allow: the file may be from somebody else."""
    run = load_run(doc)
    if run.workdir is None or not run.workdir.by_user:
        return doc
    return stored.stored(run.evolve(workdir=replace(run.workdir, by_user=False)))[1]


def _refused(table: str, error: Exception) -> Unavailable:
    reason = " ".join(str(error).split())[:300]
    message = (
        f"a row of `{table}` in the SQLite file cannot be imported: {reason}. Nothing was imported; repair the file, or"
        " restore a backup of the folder"
    )
    return Unavailable(RefusalCode.STORE_UNUSABLE, message)


def _check_value(name: str, value: object, kinds: tuple[type, ...]) -> None:
    if type(value) not in kinds:
        raise TypeError(f"{name} has a value of the type {type(value).__name__}")
    if isinstance(value, str) and "\0" in value:
        raise ValueError(f"{name} contains U+0000")
    if isinstance(value, int) and name in ("number", "run", "webhook") and not 0 <= value < MAX_NUMBER:
        raise ValueError(f"{name} is {value}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} is {value}")
    if isinstance(value, int) and (name == "at" or name.endswith("_at")):
        stored.moment(value)


def _check_documents(table: str, row: Mapping[str, Any]) -> None:
    match table:
        case "runs":
            run = load_run(row["doc"])
            require_run_id(row["id"])
            if (run.id, run.state) != (row["id"], row["state"]):
                raise ValueError(f"the document of run {row['id']} is that of another run or state")
            if run.kept is not None and not run.kept.startswith(f"runs/{run.id}/"):
                raise ValueError(f"run {run.id} names the files of another run")
        case "requests":
            request = stored.load_request(row["input"], row["parameter"], row["env"])
            _check_objects(request.input, request.parameter)
        case "results":
            stored.load(row["data"])
        case "interactions":
            if stored.load_interaction(row["doc"]).interaction_id != row["interaction_id"]:
                raise ValueError("the document of an interaction is that of another one")
            InteractionOutcome(row["outcome"])
        case "events":
            EventType(row["type"])
            _check_objects(stored.load(row["data"]))
        case "webhooks":
            WebhookKind(row["kind"])
            _check_states((row["states"] or "").split(","))
            _check_objects(stored.load(row["labels"] or "{}"))
            msgspec.json.decode(row["remind_after"] or "[]", type=list[int])
        case "deliveries":
            DeliveryReason(row["reason"])
            _check_states([row["old"], row["new"]])
            if row["doc"] is not None:
                load_run(row["doc"])
        case "daily_runs":
            RunState(row["state"])
        case "turn_usage":
            msgspec.json.decode(row["labels"] or "{}", type=dict[str, str])


def _check_states(states: Iterable[str | None]) -> None:
    for state in filter(None, states):
        RunState(state)


def _check_objects(*values: object) -> None:
    if not all(isinstance(value, dict) for value in values):
        raise TypeError("a document is no JSON object")
