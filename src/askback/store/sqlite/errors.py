"""Errors of SQLite and the operating system as `Unavailable`, with what to do."""

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
    """Within this, trouble with the database file at `path` is raised as `Unavailable`."""
    try:
        yield
    except (apsw.Error, OSError) as error:
        raise unavailable(error, path, connection) from error


def unavailable(error: Exception, path: Path, connection: apsw.Connection | None = None) -> Unavailable:
    number = error.errno if isinstance(error, OSError) else _system_errno(connection)
    match error:
        case apsw.CorruptError() | apsw.NotADBError():
            return corrupt(path, str(error))
        case apsw.FullError():
            return disk_full(path)
        case apsw.ReadOnlyError():
            return read_only(path)
        case apsw.BusyError():
            return _busy(path)
        case apsw.IOError() | apsw.CantOpenError() | OSError() if number in FULL_DISK:
            return disk_full(path)
        case apsw.CantOpenError() | OSError() if number in _READ_ONLY:
            return read_only(path)
        case _:
            message = f"the database {path} cannot be used: {error}; see that the disk and the folder are in order"
            return Unavailable(RefusalCode.STORE_UNUSABLE, message)


def corrupt(path: Path, why: str) -> Unavailable:
    return Unavailable(
        RefusalCode.STORE_CORRUPT,
        f"{path} is not a sound database ({why}); it was left as it is: "
        "move it away and put a backup in its place, or start with an empty data folder",
    )


def newer(path: Path, found: int, known: int) -> Unavailable:
    return Unavailable(
        RefusalCode.STORE_NEWER,
        f"{path} was written by a newer Askback (format {found}, this one knows {known}); "
        "it was left as it is: upgrade Askback, or use another data folder",
    )


def foreign(path: Path) -> Unavailable:
    return Unavailable(
        RefusalCode.STORE_UNUSABLE,
        f"{path} is a database of another program; it was left as it is: use another data folder",
    )


def read_only(path: Path) -> Unavailable:
    return Unavailable(
        RefusalCode.STORE_READ_ONLY,
        f"{path} cannot be written; give this user write access to the file and its folder, or use another data folder",
    )


def disk_full(path: Path) -> Unavailable:
    return Unavailable(
        RefusalCode.DISK_FULL,
        f"the disk that holds {path} is full; what was stored before is safe: free some space and try again",
    )


def closed(path: Path) -> Unavailable:
    return Unavailable(RefusalCode.STORE_UNUSABLE, f"the store {path} is closed; open it again")


def _busy(path: Path) -> Unavailable:
    return Unavailable(
        RefusalCode.STORE_UNUSABLE,
        f"another program holds {path} locked for too long; end that program, or wait for it, and try again",
    )


def _system_errno(connection: apsw.Connection | None) -> int | None:
    return None if connection is None else connection.system_errno
