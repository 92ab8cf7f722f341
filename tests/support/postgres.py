"""A PostgreSQL server of the tests' own: Debian's, with its data in a folder of its own and without a port.

It runs as the user `postgres` if the tests run as root, which the server refuses. Each test has its own database, made
from a template that has the tables, or cleared after another test that changed no table. The server ends with the process that started it.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

DEADLINE_SEC = 120.0
_SET_DEATH_SIGNAL = 1
_TEMPLATE = "askback_template"
# To truncate a table makes new files for it and its indexes, which takes longer than to delete a few rows.
_CLEAR = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid();
DO $$
DECLARE
    found record;
BEGIN
    -- No trigger fires, and no foreign key is looked at: everything goes.
    SET LOCAL session_replication_role = replica;
    FOR found IN
        SELECT oid::regclass AS name, pg_relation_size(oid) > 100000 AS large FROM pg_class
        WHERE relnamespace = 'askback'::regnamespace AND relkind = 'r' AND relname NOT LIKE '%migrations'
    LOOP
        IF found.large THEN
            EXECUTE format('TRUNCATE %s CASCADE', found.name);
        ELSE
            EXECUTE format('DELETE FROM %s', found.name);
        END IF;
    END LOOP;
    PERFORM setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false)
    FROM pg_sequences WHERE schemaname = 'askback';
END
$$
"""
_SHAPE = """
SELECT relnamespace::regnamespace::text, relname, relkind, attname, atttypid::regtype::text, attnotnull
FROM pg_class LEFT JOIN pg_attribute ON attrelid = pg_class.oid AND attnum > 0
WHERE relnamespace::regnamespace::text NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
ORDER BY relnamespace::regnamespace::text, relname, attnum
"""


def missing() -> str | None:
    """Why there can be no server here."""
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "psycopg is not installed"
    if _programs() is None:
        return "PostgreSQL is not installed (Debian: postgresql)"
    if os.geteuid() == 0 and _user() is None:
        return "PostgreSQL does not run as root, and there is no user `postgres`"
    return None


@functools.cache
def _programs() -> Path | None:
    """The folder of the newest version."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: float(path.parts[4]))
    if found:
        return found[-1].parent
    known = shutil.which("postgres")
    return None if known is None else Path(known).resolve().parent


def _user() -> str | None:
    """The user to become; None if this one will do."""
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        return None


class PostgresServer:
    """With `durable`, commits are on disk before they are acknowledged, as in production."""

    def __init__(self, *, durable: bool = False) -> None:
        programs = _programs()
        assert programs is not None
        self._programs = programs
        self._identity: dict[str, Any] = {}
        # A socket's path has at most 107 characters: pytest's own folders are too deep.
        self.folder = Path(tempfile.mkdtemp(prefix="askback-pg-", dir="/tmp"))
        user = _user() if os.geteuid() == 0 else None
        if user is not None:
            self._identity = {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}
            shutil.chown(self.folder, user)
        self.folder.chmod(0o755)
        self._durable = durable
        self._numbers = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._run("initdb", "-D", str(self._data), "-U", "askback", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        # The first rule that fits is used: one user needs a password.
        rules = self._data / "pg_hba.conf"
        rules.write_text(f"local all keyholder scram-sha-256\n{rules.read_text()}")
        try:
            self.start()
            self._make_template()
        except BaseException:
            self.close()
            raise

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def address(self, database: str, user: str = "askback") -> str:
        return f"postgresql://{user}@/{database}?host={self.folder}"

    # Databases.

    def _make_template(self) -> None:
        from askback.store.postgres import upgrade

        self.execute(f"CREATE DATABASE {_TEMPLATE}")
        upgrade(self.address(_TEMPLATE))
        self._shape = self.execute(_SHAPE, _TEMPLATE)

    def make_database(self, *, empty: bool = False) -> str:
        """The address of a new database."""
        name = f"test_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {'template0' if empty else _TEMPLATE}")
        return self.address(name)

    def clear_database(self, address: str) -> bool:
        """Make it new again. That takes less time than to drop it, for which the server writes everything to disk.

        False: its tables or indexes are not those of the template any more, and it is dropped.
        """
        name = address.partition("@/")[2].partition("?")[0]
        if self.execute(_SHAPE, name) != self._shape:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")
            return False
        self.execute(_CLEAR, name)
        return True

    def execute(self, statement: str, database: str = "postgres") -> list[Any]:
        import psycopg

        with psycopg.connect(self.address(database), autocommit=True) as connection:
            found = connection.execute(statement)  # type: ignore[call-overload]
            return list(found.fetchall()) if found.description else []

    # The process.

    def start(self) -> None:
        given = {"listen_addresses": "", "unix_socket_directories": str(self.folder), "max_connections": "200"}
        # Nothing of a server that is killed remains in /dev/shm.
        given["dynamic_shared_memory_type"] = "mmap"
        if not self._durable:
            given |= {"fsync": "off", "full_page_writes": "off"}
        options = [word for name, value in given.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._programs / "postgres"), "-D", str(self._data), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
                preexec_fn=_end_with_parent,
                **self._identity,
            )
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        import psycopg

        deadline = time.monotonic() + DEADLINE_SEC
        while True:
            try:
                psycopg.connect(self.address("postgres"), connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                pass
            assert self._process is not None
            log = (self.folder / "log").read_text()
            assert self._process.poll() is None, f"the server has ended: {log}"
            assert time.monotonic() < deadline, f"the server does not start: {log}"
            time.sleep(0.02)

    def crash(self) -> None:
        """As `pg_ctl stop -m immediate`: the server ends without a word, and recovers when it is started again."""
        self._signal(signal.SIGQUIT)

    def kill(self) -> None:
        """As when its machine fails: all of its processes end at once."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        for pid in _children(self._process.pid):
            os.kill(pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait(DEADLINE_SEC)

    def freeze(self) -> None:
        """Suspend all of its processes: connections are accepted by the system, and nobody answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        for pid in _children(self._process.pid):
            _signal_quietly(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        for pid in (*_children(self._process.pid), self._process.pid):
            _signal_quietly(pid, signal.SIGCONT)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.thaw()
            self.crash()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        try:
            self._process.wait(DEADLINE_SEC)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(DEADLINE_SEC)

    def _run(self, program: str, *words: str) -> None:
        command: Sequence[str] = [str(self._programs / program), *words]
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=DEADLINE_SEC, check=False, cwd="/", **self._identity
        )
        assert ran.returncode == 0, ran.stderr


def _signal_quietly(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _children(parent: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(status.parent.name))
    return found


def _end_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGQUIT)


# The databases of this process.


def address_file(folder: Path) -> Path:
    """The file with the address of the database of a world's folder. Beside it: the test makes the folder."""
    return folder.with_name(f"{folder.name}.postgres-address")


class Databases:
    """Which database the worlds of the tests use. The server is started when it is first needed."""

    def __init__(self) -> None:
        self._server: PostgresServer | None = None
        self._by_folder: dict[Path, str] = {}
        self._free: list[str] = []
        self.in_use = False

    @property
    def server(self) -> PostgresServer:
        if self._server is None:
            self._server = PostgresServer()
        return self._server

    def address(self, folder: Path) -> str | None:
        """The address of the database of a folder; None: it has an SQLite file. Also for programs that a test starts."""
        if folder not in self._by_folder and self.in_use:
            self.make(folder)
        written = address_file(folder)
        return written.read_text() if written.exists() else None

    def make(self, folder: Path) -> str:
        address = self._free.pop() if self._free else self.server.make_database()
        self._by_folder[folder] = address
        written = address_file(folder)
        written.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(address)
        return address

    @contextmanager
    def chosen(self, in_use: bool) -> Iterator[None]:
        """The worlds that are made within the block use PostgreSQL, or they do not. Their databases end with it."""
        before, self.in_use = self.in_use, in_use
        earlier = set(self._by_folder)
        try:
            yield
        finally:
            self.in_use = before
            for folder in set(self._by_folder) - earlier:
                address = self._by_folder.pop(folder)
                if self.server.clear_database(address):
                    self._free.append(address)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None


databases = Databases()
