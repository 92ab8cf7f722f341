"""Connections to a PostgreSQL server, and SQLite's dialect of statements in the words of PostgreSQL."""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Iterable, Mapping
from contextlib import closing, nullcontext, suppress
from functools import lru_cache
from importlib.resources import files
from typing import Any

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.types.numeric import Int8Dumper
from psycopg.types.string import StrDumperUnknown

from askback.store.postgres.jobs import JobPlaces
from askback.store.postgres.limits import DEFAULT, Limits, Watchdog
from askback.store.sql.connection import Dialect, Values, first_rows

SCHEMA = "askback"
"""Everything is in a separate schema, so that the database may be shared with other programs."""
FOLDER = files("askback.store.postgres").joinpath("sql")
DIALECT = Dialect(FOLDER)

_DEFAULTS = {
    "application_name": "askback",
    "connect_timeout": "5",
    # A server that is gone without a word is noticed within a minute.
    "keepalives_idle": "20",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
_SESSION = f"""
SET search_path TO {SCHEMA};
SET client_encoding TO 'UTF8';
SET default_transaction_isolation TO 'read committed';
SET jit TO off;
SET tcp_keepalives_idle TO 10;
SET tcp_keepalives_interval TO 5;
SET tcp_keepalives_count TO 3;
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';
"""
"""Statements here take milliseconds, and compiling one takes tens of them, so nothing is compiled.
What was reported as stored must be on disk, and a program that has vanished must not hold its locks: without these, the
server may wait for the rest of its message for hours."""

_ENDS = ("08", "57P", "25P03")
"""Codes of errors after which the server closes the connection: it is stopped, or was asked to, or waited too long."""


class _Text(StrDumperUnknown):
    """PostgreSQL has no U+0000 in texts."""

    def dump(self, obj: str) -> Buffer | None:
        return super().dump(obj.replace("\x00", "\ufffd") if "\x00" in obj else obj)


class _Whole(Loader):
    """Sums of whole numbers."""

    def load(self, data: Buffer) -> int:
        return int(bytes(data))


class _Connection(psycopg.Connection[tuple[Any, ...]]):
    def wait(self, *args: Any, **options: Any) -> Any:
        """As every call waits for the server. A machine that is short of files or memory is a failure of the connection."""
        try:
            return super().wait(*args, **options)
        except OSError as error:
            raise _broken(error) from error


def _broken(error: OSError) -> psycopg.OperationalError:
    return psycopg.OperationalError(f"the connection cannot be used: {error.strerror or error}")


class PostgresConnection:
    """Implements `store.sql.Connection`. Without a transaction of the caller, each statement is committed on its own."""

    def __init__(self, raw: psycopg.Connection[tuple[Any, ...]]) -> None:
        self.raw = raw
        self.was_cut = False
        self._cutting = threading.Lock()
        # Another descriptor of the same socket: libpq's own may be closed, and its number reused, while we cut.
        self._socket: socket.socket | None = socket.socket(fileno=os.dup(raw.fileno()))

    @classmethod
    def open(
        cls, address: str, limits: Limits = DEFAULT, watchdog: Watchdog | None = None, **options: str
    ) -> PostgresConnection:
        """`options` replace those of the address. Raises `psycopg.Error` if it cannot be opened."""
        given = {**_DEFAULTS, **psycopg.conninfo.conninfo_to_dict(address), **options}
        try:
            connection = cls(_Connection.connect(autocommit=True, **given))  # type: ignore[arg-type]
        except OSError as error:
            raise _broken(error) from error
        try:
            with nullcontext() if watchdog is None else watchdog.limit(connection, limits.least_sec):
                connection._prepare(limits)
        except BaseException as error:
            connection.close()
            if connection.was_cut:
                raise psycopg.errors.ConnectionTimeout("it accepts connections, but does not answer") from error
            raise
        return connection

    def _prepare(self, limits: Limits) -> None:
        self.raw.adapters.register_dumper(str, _Text)
        self.raw.adapters.register_dumper(int, Int8Dumper)
        self.raw.adapters.register_loader("numeric", _Whole)
        self.raw.execute(f"{_SESSION}{limits.session}".encode())

    def cut(self) -> None:
        """End a call that another thread makes: it fails as if the server had closed the connection."""
        with self._cutting:
            self.was_cut = True
            if self._socket is not None:
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    @property
    def lost(self) -> bool:
        return self.was_cut or self.raw.closed or self.raw.broken

    def is_lost_by(self, error: psycopg.Error) -> bool:
        """Whether an error has ended the connection. The server says so before the connection is closed."""
        if error.sqlstate is None:
            # Not the server's: a message could not be sent or received.
            return self.lost or isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        return self.lost or error.sqlstate.startswith(_ENDS)

    def close(self) -> None:
        self.raw.close()
        with self._cutting:
            if self._socket is not None:
                self._socket.close()
                self._socket = None

    def statements(self, file: str) -> Mapping[str, str]:
        return DIALECT.statements(file)

    @property
    def places(self) -> JobPlaces:
        return JobPlaces(self, self.raw)

    def execute(self, sql: str, values: Any = None, /) -> psycopg.Cursor[tuple[Any, ...]]:
        return self.raw.execute(translated(sql, values), values)

    def executemany(self, sql: str, values: Iterable[Values], /) -> None:
        with self.raw.cursor() as cursor:
            cursor.executemany(translated(sql, ()), values)

    def fetch(self, sql: str, values: Values | None = None) -> list[Any]:
        return self.execute(sql, values).fetchall()

    def fetch_page(self, sql: str, values: Values, *, size: int, max_bytes: int) -> tuple[list[Any], bool]:
        # Row by row: together, the rows that do not fit on the page may be too large for the memory.
        with self.raw.cursor() as cursor, closing(cursor.stream(translated(sql, values), values)) as rows:  # type: ignore[type-var]
            return first_rows(rows, size=size, max_bytes=max_bytes)

    def value(self, sql: str, values: Values | None = None) -> Any:
        row = self.execute(sql, values).fetchone()
        return None if row is None else row[0]

    def exclude_others(self, what: str) -> None:
        self.execute("SELECT pg_advisory_xact_lock(hashtextextended(:what, 0))", {"what": f"{SCHEMA} {what}"})


_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")
_TEXTS = re.compile(r"json_each\((:\w+)\)")
_HINT = re.compile(r" INDEXED BY \w+|\+(?=[a-z])")
"""An index that SQLite must use, and a unary plus, which keeps it from using one."""
_IS_NULL = re.compile(r":(\w+) IS (NOT )?NULL")


def translated(sql: str, values: Any) -> str:
    """A statement in SQLite's dialect as psycopg expects it.

    Parameters are written differently, lists of texts are unpacked by another function, and there are no hints. Whatever
    else differs has its own words in `sql/*.sql`.
    """
    tested = _tested(sql)
    return _translated(sql, tuple(name for name in tested if values[name] is None) if tested else ())


@lru_cache(maxsize=500)
def _tested(sql: str) -> tuple[str, ...]:
    """The parameters that are compared with NULL: PostgreSQL cannot tell their type, so they are compared here."""
    return tuple({name for name, _ in _IS_NULL.findall(sql)})


@lru_cache(maxsize=1000)
def _translated(sql: str, nulls: tuple[str, ...]) -> str:
    def compared(found: re.Match[str]) -> str:
        return str((found[1] in nulls) != bool(found[2])).lower()

    sql = _IS_NULL.sub(compared, sql.replace("%", "%%"))
    sql = _HINT.sub("", _TEXTS.sub(r"jsonb_array_elements_text(\1::jsonb)", sql))
    return _PARAMETER.sub(r"%(\1)s", sql).replace("?", "%s")
