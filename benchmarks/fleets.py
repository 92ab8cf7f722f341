"""A real fleet to measure: API servers and workers, each with folders of its own, on a PostgreSQL server that writes to disk."""

from __future__ import annotations

import json
import secrets
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
from servers import Program, cpu_sec

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path[:0] = [str(TESTS)]

from support import machines, postgres  # noqa: E402
from support.object_store import CREDENTIALS, S3Server  # noqa: E402
from support.postgres import PostgresServer  # noqa: E402

TOKEN = "a-token-for-measurements-0123456789"
_BIND = 'mount --bind "$0" "$1" && shift && exec "$@"'
_SEPARATE = ("unshare", "--mount", "--propagation", "private", "sh", "-c", _BIND)


def missing() -> str | None:
    """Why no fleet can be measured here."""
    return postgres.missing() or machines.missing()


# The database.


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What the database server has used so far."""

    cpu_sec: float
    transactions: int
    """Those that have written something."""
    wal_bytes: int

    def __sub__(self, other: Usage) -> Usage:
        return Usage(
            cpu_sec=self.cpu_sec - other.cpu_sec,
            transactions=self.transactions - other.transactions,
            wal_bytes=self.wal_bytes - other.wal_bytes,
        )


class Database:
    """A PostgreSQL server with its default settings. A commit is on disk before it is acknowledged."""

    def __init__(self) -> None:
        self.server = PostgresServer(durable=True)
        self._pid = int((self.server.folder / "data" / "postmaster.pid").read_text().split()[0])

    def make(self) -> str:
        """The address of a new database with the tables of Askback."""
        return self.server.make_database()

    def make_empty(self) -> str:
        return self.server.make_database(empty=True)

    def usage(self) -> Usage:
        query = "SELECT txid_snapshot_xmax(txid_current_snapshot()), pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"
        [(transactions, wal_bytes)] = self.server.execute(query)
        return Usage(cpu_sec=self.cpu_sec(), transactions=transactions, wal_bytes=wal_bytes)

    def cpu_sec(self) -> float:
        """Of all processes of the server, also those that have ended."""
        return cpu_sec(self._pid, with_ended_children=True) + sum(map(_cpu_sec_of, postgres._children(self._pid)))

    def close(self) -> None:
        self.server.close()


def _cpu_sec_of(pid: int) -> float:
    with suppress(OSError):
        return cpu_sec(pid)
    return 0.0


@contextmanager
def database() -> Iterator[Database]:
    made = Database()
    try:
        yield made
    finally:
        made.close()


def ask(address: str, statement: str, values: Any = None) -> list[Any]:
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("SET search_path TO askback, public")
        found = connection.execute(statement.encode(), values)
        return list(found.fetchall()) if found.description else []


# The programs.


class Fleet:
    """Programs on one database. Each is on a machine of its own: it sees its own folder at the common path of the runs."""

    def __init__(self, folder: Path, address: str, files: str, *, slots: int, env: Mapping[str, str]) -> None:
        """`folder` has the skill and the engine of `servers.prepare`."""
        self._home = folder / address.partition("@/")[2].partition("?")[0]
        self._runs = self._home / "runs"
        self._runs.mkdir(parents=True, exist_ok=True)
        self._env = {**env, "ASKBACK_SERVER__TOKEN": TOKEN}
        self._config = self._home / "askback.toml"
        self._config.write_text(_settings(folder, address, files, self._runs, slots))
        self._machines = 0
        self.address = address
        self.token = TOKEN
        self.servers: list[Program] = []
        self.workers: list[Program] = []

    @property
    def url(self) -> str:
        return str(self.servers[0].url)

    def add_server(self) -> Program:
        self.servers.append(self._start("serve", "--no-worker"))
        return self.servers[-1]

    def resize(self, workers: int) -> None:
        """Start or stop workers until there are so many."""
        while len(self.workers) > workers:
            self.workers.pop().stop()
        while len(self.workers) < workers:
            self.workers.append(self._start("worker"))
        while self._known_workers() != workers:
            time.sleep(0.05)

    def _known_workers(self) -> int:
        """How many the server knows: it reads their rows every few seconds."""
        answer = httpx.get(f"{self.url}/v1/workers", headers={"Authorization": f"Bearer {self.token}"})
        return sum(each["state"] == "alive" for each in answer.json()["items"])

    def _start(self, *words: str) -> Program:
        self._machines += 1
        machine = self._home / f"machine-{self._machines}"
        (machine / "runs").mkdir(parents=True, exist_ok=True)
        separate = (*_SEPARATE, str(machine / "runs"), str(self._runs))
        common = ("--port=0", "--json", f"--config={self._config}", f"--data-dir={machine / 'data'}")
        return Program([*separate, sys.executable, "-m", "askback", *words, *common], self._env)

    def started(self, run_id: str) -> int:
        """When the run's engine executed its first instruction the last time, in nanoseconds."""
        files = self._home.glob(f"machine-*/runs/{run_id}/home/started")
        return max(int(file.read_text().split()[-1]) for file in files)

    def cpu_sec(self, programs: list[Program]) -> float:
        return sum(each.cpu_sec() for each in programs)

    def close(self) -> None:
        for each in (*self.workers, *self.servers):
            each.stop()
        self.workers, self.servers = [], []


def _settings(folder: Path, address: str, files: str, runs: Path, slots: int) -> str:
    values = {
        "skills_dir": [str(folder / "skills")],
        "database": address,
        "files": files,
        "runs_dir": str(runs),
        "slots": slots,
        "sandbox": "off",
        # Every turn in a new process: what a warm one saves is not measured here.
        "warm_sec": 0,
    }
    lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    return "\n".join((*lines, "[engines.scripted]", f"command = {json.dumps([str(folder / 'engine.sh')])}", ""))


@contextmanager
def fleet(
    folder: Path, address: str, *, files: str = "", slots: int = 16, env: Mapping[str, str] | None = None
) -> Iterator[Fleet]:
    """A fleet with one server and no worker yet. Without `files`, its stored files are in a folder."""
    made = Fleet(folder, address, files or _new_folder(folder), slots=slots, env=env or {})
    try:
        made.add_server()
        yield made
    finally:
        made.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStore:
    address: str
    env: Mapping[str, str]
    """The credentials."""
    log: Path
    """A line for each request."""


@contextmanager
def object_store(folder: Path) -> Iterator[ObjectStore]:
    """A bucket of an S3 server on loopback."""
    server = S3Server(folder)
    try:
        bucket = server.make_bucket()
        yield ObjectStore(address=bucket.address, env=CREDENTIALS, log=folder / "moto.log")
        bucket.close()
    finally:
        server.close()


def _new_folder(folder: Path) -> str:
    made = folder / "files" / secrets.token_hex(4)
    made.mkdir(parents=True)
    return str(made)
