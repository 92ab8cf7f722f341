"""A database file that is moved to another database: nobody else has it open meanwhile, and nobody uses it afterwards.

Somebody else may have prepared the file. It is read only if it has exactly the tables and columns of our migrations, so that
all names are ours, and no view, trigger or generated column is evaluated.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from functools import cache
from pathlib import Path

import apsw

from askback.core.errors import RefusalCode, Unavailable
from askback.store.sqlite import errors
from askback.store.sqlite.connection import (
    APPLICATION_ID,
    MOVED_ID,
    PATIENCE_MS,
    SqliteConnection,
    migrations,
    open_existing,
)

_MAX_VALUE = 128 * 2**20
"""Bytes of one value. The largest document is that of an engine's longest line, 8 MB."""
_OURS = "NOT (type IN ('table', 'index') AND name LIKE 'sqlite^_%' ESCAPE '^')"
"""Without what SQLite creates by itself."""
_SHAPES = (
    # Views, triggers and virtual tables have no page. Nothing of them may be looked at before they are refused.
    f"SELECT type, name, '', rootpage > 0 FROM sqlite_schema WHERE {_OURS}",
    f"SELECT type, name, '', strict || wr FROM pragma_table_list WHERE schema = 'main' AND {_OURS}",
    f"""
    WITH tables AS (SELECT name FROM sqlite_schema WHERE type = 'table' AND {_OURS})
    SELECT 'column', found.name, tables.name, found.type || found."notnull" || found.hidden
    FROM tables, pragma_table_xinfo(tables.name) AS found
    """,
)


def open_alone(path: Path) -> SqliteConnection:
    """A connection that no other program has beside it until it is closed. Nothing can be written before `mark_as_moved`.

    Raises `Unavailable` if the file is in use, or not one of this version.
    """
    if path.is_symlink() or not path.is_file():
        found = f"{path} is a link" if path.is_symlink() else f"there is no {path.name} in {path.parent}"
        message = f"{found}; name the data folder of a server that used SQLite"
        raise Unavailable(RefusalCode.STORE_UNUSABLE, message)
    _refuse_what_lies_beside(path)
    try:
        # Before the file is read for the first time: otherwise others may still read it.
        first = "PRAGMA locking_mode = EXCLUSIVE; PRAGMA cell_size_check = ON"
        connection = open_existing(path, first, lambda opened: _refuse_unknown(opened, path))
    except Unavailable as error:
        raise in_use(path.parent) if isinstance(error.__cause__, apsw.BusyError) else error from error
    try:
        with errors.faults_of(path, connection):
            connection.execute("BEGIN EXCLUSIVE; PRAGMA query_only = ON")
    except BaseException as error:
        connection.close()
        if isinstance(error.__cause__, apsw.BusyError):
            raise in_use(path.parent) from error
        raise
    return connection


def _refuse_what_lies_beside(path: Path) -> None:
    """Refuse a journal, which can name files that SQLite deletes, and a log that is a link, through which it would write.

    A server leaves neither: its databases have a log.
    """
    for suffix in ("-journal", "-wal", "-shm"):
        beside = path.with_name(path.name + suffix)
        if os.path.lexists(beside) and (suffix == "-journal" or beside.is_symlink() or not beside.is_file()):
            message = (
                f"{beside} was not left by a server; import only the folder of a server that you trust, and remove this"
            )
            raise Unavailable(RefusalCode.STORE_UNUSABLE, message)


def _refuse_unknown(connection: SqliteConnection, path: Path) -> None:
    """Refuse a file whose tables are not those of this version."""
    found = int(connection.pragma("user_version"))
    if found < len(migrations()):
        raise _older(path, found)
    connection.limit(apsw.SQLITE_LIMIT_LENGTH, _MAX_VALUE)
    with closing(_empty_file()) as ours:
        for shape in _SHAPES:
            theirs, known = set(connection.fetch(shape)), set(ours.fetch(shape))
            if theirs != known:
                raise _unknown(path, *min(theirs - known or known - theirs, key=repr), missing=theirs < known)


def _empty_file() -> SqliteConnection:
    connection = SqliteConnection(":memory:")
    for script in migrations():
        connection.execute(script)
    return connection


@cache
def known_columns(table: str) -> Mapping[str, tuple[type, ...]]:
    """The columns of one of our tables, each with the types that its values can have."""
    with closing(_empty_file()) as ours:
        columns = ours.fetch('SELECT name, type, "notnull" OR pk FROM pragma_table_info(?)', (table,))
    kinds = {"INTEGER": int, "TEXT": str, "REAL": float}
    return {name: (kinds[kind],) if needed else (kinds[kind], type(None)) for name, kind, needed in columns}


def has_unmoved_runs(path: Path) -> bool:
    """Whether the file has runs that were not moved to another database. Nothing is changed. Raises `Unavailable` if the
    file is being moved right now."""
    if not path.is_file():
        return False
    try:
        with closing(apsw.Connection(os.fspath(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
            connection.set_busy_timeout(PATIENCE_MS)
            ours = connection.pragma("application_id") == APPLICATION_ID
            return ours and bool(connection.execute("SELECT EXISTS (SELECT 1 FROM runs)").get)
    except apsw.BusyError:
        raise in_use(path.parent) from None
    except apsw.Error:
        # Not a database of Askback, or a damaged one: an import could not use it either.
        return False


def mark_as_moved(connection: SqliteConnection, path: Path) -> None:
    """From now on, programs refuse to use the file, those of earlier versions included. Its rows stay as they are."""
    with errors.faults_of(path, connection):
        connection.execute(f"PRAGMA query_only = OFF; PRAGMA application_id = {MOVED_ID}; COMMIT")


def in_use(folder: Path) -> Unavailable:
    message = f"a program is using the data folder {folder}; stop every program on it, and try again"
    return Unavailable(RefusalCode.STORE_UNUSABLE, message)


def _older(path: Path, found: int) -> Unavailable:
    message = (
        f"{path} has the format {found} of an older version, and this one needs {len(migrations())};"
        f" upgrade it with: askback runs --data-dir {path.parent}, with ASKBACK_DATABASE=sqlite; then import it"
    )
    return Unavailable(RefusalCode.STORE_UNUSABLE, message)


def _unknown(path: Path, kind: str, name: str, table: str, about: object, *, missing: bool) -> Unavailable:
    where = f" of `{table}`" if table else ""
    what = "is missing" if missing else "is not one of this version"
    message = (
        f"{path} cannot be imported: its {kind} `{str(name)[:80]}`{where} {what}. Nothing of it was read; import only the"
        " folder of a server that you trust, and remove from its file what was added by hand"
    )
    return Unavailable(RefusalCode.STORE_UNUSABLE, message)
