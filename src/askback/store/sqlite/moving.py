"""A database file that is moved to another database: nobody else has it open meanwhile, and nobody uses it afterwards."""

from __future__ import annotations

import os
from contextlib import closing
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


def open_alone(path: Path) -> SqliteConnection:
    """A connection that no other program has beside it until it is closed.

    Raises `Unavailable` if the file is in use, or not one of this version.
    """
    if not path.is_file():
        message = f"there is no {path.name} in {path.parent}; name the data folder of a server that used SQLite"
        raise Unavailable(RefusalCode.STORE_UNUSABLE, message)
    try:
        # Before the file is read for the first time: otherwise others may still read it.
        connection = open_existing(path, first="PRAGMA locking_mode = EXCLUSIVE")
    except Unavailable as error:
        raise in_use(path.parent) if isinstance(error.__cause__, apsw.BusyError) else error from error
    try:
        with errors.faults_of(path, connection):
            found = int(connection.pragma("user_version"))
            if found < len(migrations()):
                raise _older(path, found)
            connection.execute("BEGIN EXCLUSIVE")
    except BaseException as error:
        connection.close()
        if isinstance(error.__cause__, apsw.BusyError):
            raise in_use(path.parent) from error
        raise
    return connection


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
        connection.execute(f"PRAGMA application_id = {MOVED_ID}; COMMIT")


def in_use(folder: Path) -> Unavailable:
    message = f"a program is using the data folder {folder}; stop every program on it, and try again"
    return Unavailable(RefusalCode.STORE_UNUSABLE, message)


def _older(path: Path, found: int) -> Unavailable:
    message = (
        f"{path} has the format {found} of an older version, and this one needs {len(migrations())};"
        f" upgrade it with: askback runs --data-dir {path.parent}, with ASKBACK_DATABASE=sqlite; then import it"
    )
    return Unavailable(RefusalCode.STORE_UNUSABLE, message)
