"""Collections of records and secrets as rows, the same for all servers on one database.

A server watches the database: a thread looks every second, and at once after a notification, which collections have
changed, and reads those again. Requests are admitted by the cache. If it was not confirmed for two seconds, they wait.
A change locks the row of its collection, so that one program changes it at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import msgspec
import psycopg

from askback.background.loops import keep_trying_in_thread, start_thread
from askback.core.errors import RefusalCode, Unavailable
from askback.fs.records import Collection, Record, Records, found_secret, fresh_secret
from askback.store.postgres.connection import PostgresConnection
from askback.store.postgres.link import ConnectionLost, Link, Server
from askback.store.sql.rows import known_fields, newer_fields, with_fields

log = logging.getLogger(__name__)

R = TypeVar("R", bound=Record)

ADMITTING = ("tokens", "sessions", "invitations")
"""The collections that decide whether a request is admitted."""
SECRETS = "secrets"
_OF_RUN = "/"
"""Occurs only in the name of a collection that belongs to a run."""
_POLL_SEC = 1.0
_SPARE_LINKS = 2
_UNUSED_SEC = 600.0
"""A collection of a run that was not used for this time is not watched any more."""
_MAX_OF_RUNS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Secret:
    """`digest` is its name: the key of the record."""

    digest: str
    secret: str


class PostgresRecords(Records):
    """Without `watch`, every read asks the database. `folder` has the secrets of a server that was embedded before."""

    def __init__(self, server: Server, *, instance: str, folder: Path | None = None) -> None:
        self.server = server
        self.instance = instance
        self.folder = folder
        self._lock = threading.Lock()
        self._collections: dict[str, RowCollection[Any]] = {}
        self._used: dict[str, float] = {}
        """When each collection of a run was last used."""
        self._spare: list[Link] = []
        self._secrets: dict[str, str] = {}
        self._watch: _Watch | None = None

    # Records.

    def collection(self, name: str, kind: type[R]) -> Collection[R]:
        with self._lock:
            if name not in self._collections:
                self._collections[name] = RowCollection(self, name, kind)
            if _OF_RUN in name:
                self._used[name] = time.monotonic()
            return cast("RowCollection[R]", self._collections[name])

    def of_run(self, run_id: str, folder: Path, name: str, kind: type[R]) -> Collection[R]:
        return self.collection(f"runs{_OF_RUN}{run_id}{_OF_RUN}{name}", kind)

    def secret(self, name: str) -> str:
        known = self.known_secret(name)
        if known is not None:
            return known
        local = None if self.folder is None else found_secret(self.folder / name)
        with self._stored_secrets().changing() as stored:
            made = stored.setdefault(name, _Secret(digest=name, secret=local or fresh_secret()))
        if local == made.secret:
            log.warning("the database had no %s; that of the data folder %s was taken over", name, self.folder)
        return made.secret

    def known_secret(self, name: str) -> str | None:
        if name not in self._secrets:
            self._secrets.update({each.digest: each.secret for each in self._stored_secrets().read().values()})
        return self._secrets.get(name)

    def _stored_secrets(self) -> Collection[_Secret]:
        """They never change, so they are not watched."""
        return RowCollection(self, SECRETS, _Secret)

    async def current(self, *, exactly: bool = False) -> None:
        for found in [self._collections[name] for name in ADMITTING if name in self._collections]:
            await found.current(exactly=exactly)

    # What the collections share.

    def use(self, collection: RowCollection[Any]) -> bool:
        # With the lock: what the watch forgets at this moment must not count as used.
        with self._lock:
            if self._watch is None or self._collections.get(collection.name) is not collection:
                return False
            if _OF_RUN in collection.name:
                self._used[collection.name] = time.monotonic()
            return True

    async def until(self, is_current: Callable[[], bool]) -> None:
        if self._watch is not None:
            await self._watch.until(is_current)

    @contextmanager
    def connected(self) -> Iterator[Link]:
        """A connection for one caller. A program that watches reuses a few of them."""
        with self._lock:
            link = self._spare.pop() if self._spare else Link(self.server)
        try:
            yield link
        finally:
            with self._lock:
                reuse = self._watch is not None and len(self._spare) < _SPARE_LINKS and not self.server.closing.is_set()
                if reuse:
                    self._spare.append(link)
            if not reuse:
                link.close()

    # Watching.

    def watch(self) -> None:
        """Watch the collections from now on. Call it in the event loop."""
        if self._watch is None:
            self._watch = _Watch(self.server, self.refresh)

    def notice(self, name: str | None = None) -> None:
        """Refresh soon: another instance may have changed this collection, or any."""
        if self._watch is not None and (name is None or name in self._collections):
            self._watch.look()

    def refresh(self, connection: PostgresConnection) -> None:
        """Load the watched collections that have changed."""
        began = time.monotonic()
        watched = self._watched()
        changes = dict(connection.fetch(connection.sql["collection_changes"], {"names": json.dumps(list(watched))}))
        for name, collection in watched.items():
            if collection.changes == changes.get(name, 0):
                collection.confirm(began)
            elif name not in changes and _OF_RUN in name and collection.changes:
                self._drop(name)
            else:
                collection.load(connection)

    def forget(self, run_ids: Iterable[str]) -> None:
        """Forget the collections of runs that were deleted."""
        prefixes = tuple(f"runs{_OF_RUN}{run_id}{_OF_RUN}" for run_id in run_ids)
        with self._lock:
            names = [each for each in self._used if each.startswith(prefixes)]
        for name in names:
            self._drop(name)

    def _drop(self, name: str) -> None:
        with self._lock:
            self._used.pop(name, None)
            self._collections.pop(name, None)

    def _watched(self) -> dict[str, RowCollection[Any]]:
        """The collections to watch. Those of runs are forgotten if nobody has used them for a while."""
        now = time.monotonic()
        with self._lock:
            recent = sorted(self._used, key=lambda name: self._used[name], reverse=True)[:_MAX_OF_RUNS]
            forgotten = self._used.keys() - {name for name in recent if now - self._used[name] < _UNUSED_SEC}
            for name in forgotten:
                del self._used[name], self._collections[name]
            return dict(self._collections)

    def close(self) -> None:
        """Call it once the server is marked as closing."""
        if self._watch is not None:
            self._watch.close()
        with self._lock:
            for link in self._spare:
                link.close()
            self._spare.clear()


class _Watch:
    """The thread that refreshes the collections, and the requests that wait for it."""

    def __init__(self, server: Server, refresh: Callable[[PostgresConnection], None]) -> None:
        self._server = server
        self._refresh = refresh
        self._loop = asyncio.get_running_loop()
        self._asked = threading.Event()
        self._looked = asyncio.Event()
        self._thread = start_thread(self._run, name="askback-records")

    def look(self) -> None:
        """Look at the database at once."""
        self._asked.set()

    async def until(self, is_current: Callable[[], bool]) -> None:
        """Raises `Unavailable` if the database cannot be reached for a while."""
        if is_current():
            return
        try:
            async with asyncio.timeout(self._server.patience_sec):
                while not is_current():
                    self._looked.clear()
                    self._asked.set()
                    await self._looked.wait()
        except TimeoutError:
            message = "the database cannot be reached; try again later"
            raise Unavailable(RefusalCode.STORE_UNUSABLE, message) from None

    def close(self) -> None:
        self._asked.set()
        self._thread.join()

    def _run(self) -> None:
        link, closing = Link(self._server), self._server.closing
        failing = "cannot read the records of the database"
        keep_trying_in_thread(lambda: self._look(link), log, failing, closing=closing, longest_pause_sec=_POLL_SEC)
        link.close()

    def _look(self, link: Link) -> None:
        self._asked.clear()
        try:
            link.use(self._refresh)
        except ConnectionLost:
            # Requests ask again at once; the server is not asked more often than this.
            self._server.closing.wait(_POLL_SEC / 4)
        except psycopg.Error as error:
            raise self._server.unavailable(error) from error
        finally:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._looked.set)
        self._asked.wait(_POLL_SEC)


@dataclass(frozen=True, slots=True, kw_only=True)
class State(Generic[R]):
    """The content of a collection after its first `changes` changes."""

    changes: int
    records: Mapping[str, R]
    newer: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The fields that only newer versions know, by key. Read only when the collection is to be changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """A change of the state after `base` changes. Its `id` is stored with it, to find out whether it was committed."""

    id: str
    base: int
    put: Mapping[str, str]
    removed: tuple[str, ...]


class RowCollection(Collection[R]):
    """Reads from the cache if the program watches the database."""

    FRESH_SEC = 2.0
    """What was revoked is refused after this time at the latest, in every program."""
    LIMIT_SEC = 30.0
    """How long the cache is used for what was admitted before, if the database cannot be reached."""

    def __init__(self, records: PostgresRecords, name: str, kind: type[R]) -> None:
        self.name = name
        self._kind = kind
        self._shared = records
        self._lock = threading.Lock()
        self._state: State[R] | None = None
        self._confirmed_at = float("-inf")
        """On the monotonic clock: `_state` has all changes up to this time."""

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
        """The number of changes in the cached state, if there is one."""
        return None if self._state is None else self._state.changes

    def load(self, connection: PostgresConnection) -> State[R]:
        """Read the collection, in one statement, into the cache."""
        began = time.monotonic()
        rows = connection.fetch(connection.sql["read_collection"], {"name": self.name})
        state = State(changes=rows[0][0] if rows else 0, records=dict(self._readable(rows)))
        self.confirm(began, state)
        return state

    def confirm(self, moment: float, state: State[R] | None = None) -> None:
        """Record that `state`, or the cached one, has all changes before `moment`. An older state is not used."""
        with self._lock:
            if state is not None and (self._state is None or state.changes >= self._state.changes):
                self._state = state
            self._confirmed_at = max(self._confirmed_at, moment)

    def _loaded(self) -> State[R]:
        server = self._shared.server
        try:
            with self._shared.connected() as link:
                return server.retry_lost(lambda: link.use(self.load))
        except psycopg.Error as error:
            raise server.unavailable(error) from error

    def _readable(self, rows: list[Any]) -> Iterator[tuple[str, R]]:
        """Skip records that are damaged or of a newer version: one of them must not lock everybody out."""
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
                before = server.retry_lost(lambda: link.use(self._begin))
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
            connection.execute(connection.sql["make_collection"], {"name": self.name})
            connection.execute(connection.sql["lock_collection"], {"name": self.name})
            rows = connection.fetch(connection.sql["read_collection"], {"name": self.name})
            known = known_fields(self._kind)
            newer = {key: newer_fields(doc, known) for _, key, doc in rows if key is not None}
            return State(changes=rows[0][0], records=self._decoded(rows), newer=newer)
        except BaseException:
            connection.roll_back()
            raise

    def _difference(self, before: State[R], records: Mapping[str, R]) -> _Change:
        old = before.records
        put = {key: each for key, each in records.items() if key not in old or old[key] != each}
        return _Change(
            id=secrets.token_hex(8),
            base=before.changes,
            put={
                key: with_fields(msgspec.json.encode(each).decode(), before.newer.get(key, {}))
                for key, each in put.items()
            },
            removed=tuple(old.keys() - records.keys()),
        )

    def _commit(self, link: Link, change: _Change) -> None:
        """Commit the open transaction. If its connection is lost, look whether it was committed, or repeat it."""
        try:
            link.resume(lambda connection: self._write(connection, change))
        except ConnectionLost:
            self._shared.server.retry_lost(lambda: link.use(lambda connection: self._repeat(connection, change)))

    def _repeat(self, connection: PostgresConnection, change: _Change) -> None:
        connection.execute("BEGIN")
        try:
            # Waits until the transaction that was lost is over.
            connection.execute(connection.sql["make_collection"], {"name": self.name})
            ((changes, last_change),) = connection.fetch(connection.sql["lock_collection"], {"name": self.name})
            if last_change != change.id and changes != change.base:
                message = (
                    "the connection to the database was lost, and somebody else made a change; look, and try again"
                )
                raise Unavailable(RefusalCode.STORE_UNUSABLE, message)
        except BaseException:
            connection.roll_back()
            raise
        if last_change == change.id:
            connection.roll_back()
        else:
            self._write(connection, change)

    def _write(self, connection: PostgresConnection, change: _Change) -> None:
        try:
            for key in change.removed:
                connection.execute(connection.sql["remove_record"], {"name": self.name, "key": key})
            for key, doc in change.put.items():
                connection.execute(connection.sql["put_record"], {"name": self.name, "key": key, "doc": doc})
            connection.execute(connection.sql["count_change"], {"name": self.name, "change": change.id})
            connection.execute(connection.sql["notify"], {"text": f"{self._shared.instance} records {self.name}"})
        except BaseException:
            connection.roll_back()
            raise
        connection.execute("COMMIT")


def _roll_back(link: Link) -> None:
    with contextlib.suppress(ConnectionLost):
        link.resume(PostgresConnection.roll_back)
