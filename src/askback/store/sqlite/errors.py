"""Turns errors of SQLite and the operating system into `Unavailable`, with instructions."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from askback.core.errors import FULL_DISK, RefusalCode, Unavailable

_READ_ONLY = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})


@contextmanager
def faults_of(path: Path, connection: apsw.Connection | None = None) -> Iterator[None]:
    """Raise errors of the database file at `path` as `Unavailable`."""
    try:
        yield
    except (apsw.Error, OSError) as error:
        raise unavailable(error, path, connection) from error


def unavailable(error: Exception, path: Path, connection: apsw.Connection | None = None) -> Unavailable:
    system_errno = None if connection is None else connection.system_errno
    number = error.errno if isinstance(error, OSError) else system_errno
    match error:
        case apsw.CorruptError() | apsw.NotADBError():
            return corrupt(path, str(error))
        case apsw.FullError():
            return disk_full(path)
        case apsw.ReadOnlyError():
            return read_only(path)
        case apsw.BusyError():
            message = f"another program has locked {path} for too long; wait for that program or stop it, and try again"
            return Unavailable(RefusalCode.STORE_UNUSABLE, message)
        case apsw.IOError() | apsw.CantOpenError() | OSError() if number in FULL_DISK:
            return disk_full(path)
        case apsw.CantOpenError() | OSError() if number in _READ_ONLY:
            return read_only(path)
        case _:
            message = f"the database {path} cannot be used: {error}; check the disk and the folder"
            return Unavailable(RefusalCode.STORE_UNUSABLE, message)


def corrupt(path: Path, why: str) -> Unavailable:
    return Unavailable(
        RefusalCode.STORE_CORRUPT,
        f"{path} is not a valid database ({why}) and was left unchanged; "
        "replace it with a backup, or start with an empty data folder",
    )


def newer(path: Path, found: int, known: int) -> Unavailable:
    return Unavailable(
        RefusalCode.STORE_NEWER,
        f"{path} was written by a newer Askback (format {found}, this one supports {known}) and was left unchanged; "
        "upgrade Askback, or use another data folder",
    )


def foreign(path: Path) -> Unavailable:
    return Unavailable(
        RefusalCode.STORE_UNUSABLE,
        f"{path} is a database of another program and was left unchanged; use another data folder",
    )


def moved(path: Path) -> Unavailable:
    return Unavailable(
        RefusalCode.STORE_UNUSABLE,
        f"{path} was imported into a PostgreSQL database, which has its runs now; name that database with the setting "
        "`database`, or use another data folder",
    )


def read_only(path: Path) -> Unavailable:
    return Unavailable(
        RefusalCode.STORE_READ_ONLY,
        f"{path} cannot be written; give this user write access to the file and its folder, or use another data folder",
    )


def disk_full(path: Path) -> Unavailable:
    return Unavailable(
        RefusalCode.DISK_FULL,
        f"the disk with {path} is full; stored data is safe; free some space and try again",
    )


def closed(path: Path) -> Unavailable:
    return Unavailable(RefusalCode.STORE_UNUSABLE, f"the store {path} is closed; open it again")
