"""The rows of instances with their leases, and the locks that an instance holds with its session."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime

import msgspec
from psycopg import errors as kinds

from askback.core.errors import Unavailable
from askback.core.instances import Instance, InstanceFacts, InstanceKind
from askback.store.postgres import errors, steps
from askback.store.postgres.connection import SCHEMA, PostgresConnection
from askback.store.sql import rows
from askback.store.sql.connection import Connection

LEADER = f"{SCHEMA} leader"
RECOVERY = f"{SCHEMA} recovery"

_FACTS = msgspec.json.Decoder(InstanceFacts)
_CONNECT_SEC = 3
_NOTICED = """
SET tcp_keepalives_idle TO 5;
SET tcp_keepalives_interval TO 2;
SET tcp_keepalives_count TO 3;
"""
"""The server notices within seconds that the machine of a session is gone, and releases its locks."""


def alive(connection: Connection, names: Collection[str]) -> Mapping[str, str]:
    """The named instances whose lease is not over, each with the boot id of its machine."""
    return dict(connection.fetch(connection.sql["living_names"], {"names": rows.dump(list(names))}))


def living(connection: Connection) -> Sequence[Instance]:
    return [each for each in known(connection) if each.alive]


def known(connection: Connection) -> Sequence[Instance]:
    """All instances, including those whose lease is over, until they are forgotten."""
    return [
        Instance(name=name, facts=_facts(doc, *columns), started_at=started_at, lease_until=until, alive=alive)
        for name, *columns, doc, started_at, until, alive in connection.fetch(connection.sql["known_instances"])
    ]


def _facts(doc: str, kind: str, host: str, pid: int, boot_id: str, version: str) -> InstanceFacts:
    """What an instance says of itself; only the columns if its document cannot be read, since it is alive all the same."""
    try:
        return _FACTS.decode(doc)
    except msgspec.MsgspecError:
        known_kind = kind if kind in set(InstanceKind) else InstanceKind.COMMAND
        return InstanceFacts(kind=InstanceKind(known_kind), host=host, pid=pid, boot_id=boot_id, version=version)


def remove(connection: Connection, names: Collection[str]) -> None:
    connection.execute(connection.sql["remove_instances"], {"names": rows.dump(list(names))})


def forget_dead(connection: Connection) -> None:
    connection.execute(connection.sql["forget_dead_instances"])


class TooNew(Unavailable):
    """The tables were upgraded to a format that this instance cannot use."""

    def __init__(self, refusal: Unavailable) -> None:
        super().__init__(refusal.code, refusal.message)


def _document(facts: InstanceFacts) -> str:
    return rows.dump(replace(facts, format=steps.newest(), queue_format=steps.queue_steps()[-1]))


class Session:
    """A connection of one program, with the locks that it holds until it is closed. For one thread.

    Every call has a time limit: a server that does not answer must not be waited for. After an error it is of no use.
    """

    def __init__(self, address: str, name: str, *, limit_sec: float) -> None:
        """Raises `psycopg.Error`."""
        self._application = f"askback {name}"
        self._name = name
        self._connection = PostgresConnection.open(
            address, application_name=self._application, connect_timeout=str(_CONNECT_SEC)
        )
        try:
            with self._limited(limit_sec):
                self._connection.raw.execute(_NOTICED)
        except BaseException:
            self._connection.close()
            raise

    def register(self, facts: InstanceFacts, *, instead_of: str | None, lease_sec: float, limit_sec: float) -> datetime:
        """Returns the time of the database. The row of `instead_of` is removed in the same transaction.

        Raises `TooNew`.
        """
        values = {
            "name": self._name,
            "kind": str(facts.kind),
            "host": facts.host,
            "pid": facts.pid,
            "boot_id": facts.boot_id,
            "version": facts.version,
            "lease_sec": lease_sec,
            "doc": _document(facts),
        }
        with self._limited(limit_sec), self._connection.raw.transaction():
            if instead_of is not None:
                remove(self._connection, [instead_of])
            at: datetime = self._connection.value(self._connection.sql["register_instance"], values)
            # Afterwards: an upgrade may have made the insertion wait.
            self._refuse_newer(*self._connection.fetch(self._connection.sql["oldest_formats"])[0])
        return at

    def renew(self, facts: InstanceFacts, *, lease_sec: float, limit_sec: float) -> datetime | None:
        """The time of the database; None if the lease is over. Raises `TooNew`."""
        values = {"name": self._name, "lease_sec": lease_sec, "doc": _document(facts)}
        with self._limited(limit_sec):
            found = self._connection.fetch(self._connection.sql["renew_lease"], values)
        if not found:
            return None
        ((renewed, oldest, oldest_queue),) = found
        self._refuse_newer(oldest, oldest_queue)
        at: datetime = renewed
        return at

    def _refuse_newer(self, oldest: int, oldest_queue: str) -> None:
        """Raise `TooNew` if the tables were upgraded to a format that this program cannot use."""
        known, queue_known = steps.newest(), steps.queue_steps()[-1]
        address = self._connection.raw.info.dsn
        if oldest > known:
            raise TooNew(errors.newer(address, oldest, known))
        if oldest_queue > queue_known:
            raise TooNew(errors.newer_queue(address, oldest_queue))

    def leave(self, *, limit_sec: float) -> None:
        with self._limited(limit_sec):
            remove(self._connection, [self._name])

    def take(self, lock: str, *, alone: bool = False, limit_sec: float) -> bool:
        """Try to take the lock, which this connection does not have yet. Returns whether it has it now.

        It is taken from a program that is not alive: its machine may be gone without a word, or its process be stopped.
        `alone`: this program has no other use for the lock, so another session of it is left over.
        """
        with self._limited(limit_sec):
            if self._connection.value(self._connection.sql["take_lock"], {"lock": lock}):
                return True
            evicted: list[object] = []
            with suppress(kinds.InsufficientPrivilege):
                own = self._application if alone else ""
                evicted = self._connection.fetch(
                    self._connection.sql["evict_holder"], {"lock": lock, "own_session": own}
                )
            return bool(evicted and self._connection.value(self._connection.sql["take_lock"], {"lock": lock}))

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _limited(self, seconds: float) -> Iterator[None]:
        """Cut the connection if the block takes longer."""
        timer = threading.Timer(max(seconds, 0.01), self._connection.cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
