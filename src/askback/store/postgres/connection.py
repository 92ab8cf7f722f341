"""Connections to a PostgreSQL server, how long their calls may take, and SQLite's dialect in the words of PostgreSQL.

A server that is alive keeps to the limits of its sessions. One that is suspended or unreachable does not, and on a local
socket no timer of the system notices it: only the client can end such a call, by cutting the connection.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.types.numeric import Int8Dumper
from psycopg.types.string import StrDumperUnknown

from askback.background.loops import start_thread
from askback.store.postgres.jobs import JobQueue
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


log = logging.getLogger(__name__)

_LONGEST_TICK_SEC = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """All in seconds."""

    patience_sec: float = 30.0
    """How long calls wait for a server that cannot be reached. Once it is away for longer, they fail at once."""
    answer_sec: float = 25.0
    """How long one transaction or read may take. Then the connection is cut."""
    least_sec: float = 5.0
    """How long it may always take, even if the patience of the call is over sooner, or the store is being closed."""
    statement_sec: float = 20.0
    """After this, the server ends a statement. 0: never."""
    idle_sec: float = 10.0
    """After this, the server ends a transaction whose client says nothing: nobody else waits for its locks."""

    @property
    def session(self) -> str:
        """Statements that set the limits of a session."""
        return (
            f"SET statement_timeout TO {round(1000 * self.statement_sec)};"
            f" SET idle_in_transaction_session_timeout TO {round(1000 * self.idle_sec)};"
        )


DEFAULT = Limits()


class _Text(StrDumperUnknown):
    """PostgreSQL has no U+0000 in texts."""

    def dump(self, obj: str) -> Buffer | None:
        return super().dump(obj.replace("\x00", "\ufffd") if "\x00" in obj else obj)


class _Whole(Loader):
    """Loads `numeric` sums of whole numbers as `int`."""

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
                connection.raw.adapters.register_dumper(str, _Text)
                connection.raw.adapters.register_dumper(int, Int8Dumper)
                connection.raw.adapters.register_loader("numeric", _Whole)
                connection.raw.execute(f"{_SESSION}{limits.session}".encode())
        except BaseException as error:
            connection.close()
            if connection.was_cut:
                raise psycopg.errors.ConnectionTimeout("it accepts connections, but does not answer") from error
            raise
        return connection

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

    def roll_back(self) -> None:
        """A connection that cannot even do that is of no use any more."""
        try:
            self.raw.execute("ROLLBACK")
        except psycopg.Error:
            self.close()

    def close(self) -> None:
        self.raw.close()
        with self._cutting:
            if self._socket is not None:
                self._socket.close()
                self._socket = None

    @property
    def sql(self) -> Mapping[str, str]:
        return DIALECT.sql

    @property
    def queue(self) -> JobQueue:
        return JobQueue(self, self.raw)

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


class Watchdog:
    """Cuts connections whose call takes too long. Its thread sleeps while there are no calls."""

    def __init__(self, limits: Limits) -> None:
        self._tick_sec = min(limits.answer_sec / 10, _LONGEST_TICK_SEC)
        self._least_sec = limits.least_sec
        self._changed = threading.Condition()
        self._calls: dict[PostgresConnection, float] = {}
        self._thread: threading.Thread | None = None
        self._closing = False

    @contextmanager
    def limit(self, connection: PostgresConnection, seconds: float) -> Iterator[None]:
        """Cut the connection unless the block ends within this time."""
        with self._changed:
            if self._thread is None:
                self._thread = start_thread(self._run, name="askback-store-watchdog")
            self._calls[connection] = time.monotonic() + (min(seconds, self._least_sec) if self._closing else seconds)
            if len(self._calls) == 1:
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._calls.pop(connection, None)

    def close(self) -> None:
        """From now on, calls have only the least time. The thread ends with the last of them."""
        with self._changed:
            self._closing = True
            latest = time.monotonic() + self._least_sec
            self._calls = {connection: min(due, latest) for connection, due in self._calls.items()}
            self._changed.notify()

    def _run(self) -> None:
        while (late := self._next_late()) is not None:
            for connection in late:
                try:
                    connection.cut()
                except Exception:  # no error may end this thread: no other connection would be cut
                    log.exception("a connection to the database cannot be cut")

    def _next_late(self) -> list[PostgresConnection] | None:
        """The connections that are due, perhaps none; None if this is closed and nothing is left to watch."""
        with self._changed:
            if not self._calls and self._closing:
                self._thread = None
                return None
            self._changed.wait(self._tick_sec if self._calls else None)
            now = time.monotonic()
            late = [connection for connection, due in self._calls.items() if now >= due]
            for connection in late:
                del self._calls[connection]
            return late


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
