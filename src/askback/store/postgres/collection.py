"""One collection of records as rows. A change locks the row of its collection, so that one program changes it at a time."""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import msgspec
import psycopg

from askback.core.errors import RefusalCode, Unavailable
from askback.fs.records import Record
from askback.store.postgres.connection import PostgresConnection
from askback.store.postgres.link import ConnectionLost, Link, Server
from askback.store.sql.newer_fields import known_fields, newer_fields, with_fields

log = logging.getLogger(__name__)

R = TypeVar("R", bound=Record)

_READ = """
SELECT collections.changes, records.key, records.doc
FROM collections LEFT JOIN records ON records.collection = collections.name
WHERE collections.name = :name ORDER BY records.key
"""
_MAKE = "INSERT INTO collections (name) VALUES (:name) ON CONFLICT DO NOTHING"
_LOCK = "SELECT changes, last_change FROM collections WHERE name = :name FOR UPDATE"
_PUT = """
INSERT INTO records (collection, key, doc) VALUES (:name, :key, :doc)
ON CONFLICT (collection, key) DO UPDATE SET doc = excluded.doc
"""
_REMOVE = "DELETE FROM records WHERE collection = :name AND key = :key"
_COUNT = "UPDATE collections SET changes = changes + 1, last_change = :change WHERE name = :name"
_NOTIFY = "SELECT pg_notify('askback', :message)"


@dataclass(frozen=True, slots=True, kw_only=True)
class State(Generic[R]):
    """A collection at one moment. `changes` counts what happened to it until then."""

    changes: int
    records: Mapping[str, R]
    newer: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The fields that only newer versions know, by key. Only of a state that is to be changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """What a program has done to the state with this number of changes. `id` is stored with it."""

    id: str
    base: int
    put: Mapping[str, str]
    removed: tuple[str, ...]


class Surroundings(Protocol):
    """What the collections of one program share."""

    @property
    def server(self) -> Server: ...

    @property
    def program(self) -> str: ...

    def connected(self) -> AbstractContextManager[Link]: ...

    def use(self, collection: RowCollection[Any]) -> bool:
        """Note that it is used. Whether it is kept up to date from now on."""
        ...

    async def until(self, is_current: Callable[[], bool]) -> None: ...


class RowCollection(Generic[R]):
    """Implements `fs.records.Collection`. Reads from the cache if the program watches the database."""

    FRESH_SEC = 2.0
    """What was revoked is refused after this time at the latest, in every program."""
    LIMIT_SEC = 30.0
    """How long the cache is used for what was admitted before, if the database cannot be reached."""

    def __init__(self, surroundings: Surroundings, name: str, kind: type[R]) -> None:
        self.name = name
        self._kind = kind
        self._shared = surroundings
        self._lock = threading.Lock()
        self._state: State[R] | None = None
        self._confirmed_at = float("-inf")
        """Of the monotonic clock: all changes up to then are in `_state`."""

    # Reading.

    def read(self) -> Mapping[str, R]:
        state = self._state if self._shared.use(self) else None
        if state is None:
            return self._loaded().records
        if time.monotonic() - self._confirmed_at > self.LIMIT_SEC:
            raise Unavailable(RefusalCode.STORE_UNUSABLE, "the database cannot be reached; try again later")
        return state.records

    async def current(self, *, exactly: bool = False) -> None:
        self._shared.use(self)
        since = time.monotonic() - (0.0 if exactly else self.FRESH_SEC)
        await self._shared.until(lambda: self._state is not None and self._confirmed_at >= since)

    @property
    def changes(self) -> int | None:
        """Of the state in the cache, if there is one."""
        return None if self._state is None else self._state.changes

    def load(self, connection: PostgresConnection) -> State[R]:
        """Read the collection, in one statement, into the cache."""
        began = time.monotonic()
        rows = connection.fetch(_READ, {"name": self.name})
        state = State(changes=rows[0][0] if rows else 0, records=dict(self._readable(rows)))
        self.confirm(began, state)
        return state

    def confirm(self, moment: float, state: State[R] | None = None) -> None:
        """All changes before that moment are in this state, or in that of the cache. An older state is not used."""
        with self._lock:
            if state is not None and (self._state is None or state.changes >= self._state.changes):
                self._state = state
            self._confirmed_at = max(self._confirmed_at, moment)

    def _loaded(self) -> State[R]:
        server = self._shared.server
        try:
            with self._shared.connected() as link:
                return server.patiently(lambda: link.use(self.load))
        except psycopg.Error as error:
            raise server.unavailable(error) from error

    def _readable(self, rows: list[Any]) -> Iterator[tuple[str, R]]:
        """One record that is damaged, or that a newer version wrote, must not keep everybody out."""
        for row in rows:
            try:
                yield from self._decoded([row]).items()
            except Unavailable as error:
                log.error("a record is ignored: %s", error.message)

    def _decoded(self, rows: list[Any]) -> dict[str, R]:
        try:
            return {key: msgspec.json.decode(doc, type=self._kind) for _, key, doc in rows if key is not None}
        except msgspec.MsgspecError as error:
            message = (
                f"the records {self.name!r} in the database cannot be read: {error}; delete those that are damaged"
            )
            raise Unavailable(RefusalCode.STORE_UNUSABLE, message) from None

    # Changing.

    @contextmanager
    def changing(self) -> Iterator[dict[str, R]]:
        server, began = self._shared.server, time.monotonic()
        try:
            with self._shared.connected() as link:
                before = server.patiently(lambda: link.use(self._begin))
                records = dict(before.records)
                try:
                    yield records
                    changed = records != before.records
                except BaseException:
                    _roll_back(link)
                    raise
                if not changed:
                    _roll_back(link)
                    return
                self._commit(link, self._difference(before, records))
                self.confirm(began, State(changes=before.changes + 1, records=records))
        except psycopg.Error as error:
            raise server.unavailable(error) from error

    def _begin(self, connection: PostgresConnection) -> State[R]:
        connection.execute("BEGIN")
        try:
            connection.execute(_MAKE, {"name": self.name})
            connection.execute(_LOCK, {"name": self.name})
            rows = connection.fetch(_READ, {"name": self.name})
            known = known_fields(self._kind)
            newer = {key: newer_fields(doc, known) for _, key, doc in rows if key is not None}
            return State(changes=rows[0][0], records=self._decoded(rows), newer=newer)
        except BaseException:
            _end(connection)
            raise

    def _difference(self, before: State[R], records: Mapping[str, R]) -> _Change:
        old = before.records
        put = {key: each for key, each in records.items() if key not in old or old[key] != each}
        return _Change(
            id=secrets.token_hex(8),
            base=before.changes,
            put={key: self._document(each, before.newer.get(key)) for key, each in put.items()},
            removed=tuple(old.keys() - records.keys()),
        )

    def _document(self, record: R, newer: Mapping[str, str] | None) -> str:
        return with_fields(msgspec.json.encode(record).decode(), newer or {})

    def _commit(self, link: Link, change: _Change) -> None:
        """Commit the open transaction. If its connection is lost, look whether it was committed, or repeat it."""
        try:
            link.resume(lambda connection: self._write(connection, change))
        except ConnectionLost:
            self._shared.server.patiently(lambda: link.use(lambda connection: self._repeat(connection, change)))

    def _repeat(self, connection: PostgresConnection, change: _Change) -> None:
        connection.execute("BEGIN")
        try:
            # Waits until the transaction that was lost is over.
            connection.execute(_MAKE, {"name": self.name})
            ((changes, last_change),) = connection.fetch(_LOCK, {"name": self.name})
            if last_change != change.id and changes != change.base:
                message = (
                    "the connection to the database was lost, and somebody else made a change; look, and try again"
                )
                raise Unavailable(RefusalCode.STORE_UNUSABLE, message)
        except BaseException:
            _end(connection)
            raise
        if last_change == change.id:
            _end(connection)
        else:
            self._write(connection, change)

    def _write(self, connection: PostgresConnection, change: _Change) -> None:
        try:
            for key in change.removed:
                connection.execute(_REMOVE, {"name": self.name, "key": key})
            for key, doc in change.put.items():
                connection.execute(_PUT, {"name": self.name, "key": key, "doc": doc})
            connection.execute(_COUNT, {"name": self.name, "change": change.id})
            connection.execute(_NOTIFY, {"message": f"{self._shared.program} records {self.name}"})
        except BaseException:
            _end(connection)
            raise
        connection.execute("COMMIT")


def _roll_back(link: Link) -> None:
    with contextlib.suppress(ConnectionLost):
        link.resume(_end)


def _end(connection: PostgresConnection) -> None:
    """Roll back. A connection that cannot even do that is of no use any more."""
    try:
        connection.execute("ROLLBACK")
    except psycopg.Error:
        connection.close()
