"""Collections of records and secrets as rows, the same for all servers on one database. Implements `fs.records.Records`.

A server watches the database: a thread looks every second, and at once after a notification, which collections have
changed, and reads those again. Requests are admitted by the cache. If it was not confirmed for two seconds, they wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import psycopg

from askback.background.loops import keep_trying_in_thread, start_thread
from askback.core.errors import RefusalCode, Unavailable
from askback.fs.records import Collection, Record, found_secret, fresh_secret
from askback.store.postgres.collection import RowCollection
from askback.store.postgres.connection import PostgresConnection
from askback.store.postgres.link import ConnectionLost, Link, Server

log = logging.getLogger(__name__)

R = TypeVar("R", bound=Record)

ADMITTING = ("tokens", "sessions", "invitations")
"""The collections that admit requests."""
SECRETS = "secrets"
_OF_RUN = "/"
"""In the name of a collection that belongs to a run."""
_POLL_SEC = 1.0
_KEPT_LINKS = 2
_UNUSED_SEC = 600.0
"""A collection of a run that was not used for this time is not kept up to date any more."""
_MAX_OF_RUNS = 2000

_CHANGES = "SELECT name, changes FROM collections WHERE name IN (SELECT value FROM json_each(:names))"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Secret:
    """`digest` is its name: the key of the record."""

    digest: str
    secret: str


class PostgresRecords:
    """Without `watch`, every read asks the database. `folder` has the secrets of a server that was embedded before."""

    def __init__(self, server: Server, *, program: str, folder: Path | None = None) -> None:
        self.server = server
        self.program = program
        self.folder = folder
        self._lock = threading.Lock()
        self._collections: dict[str, RowCollection[Any]] = {}
        self._used: dict[str, float] = {}
        """When the collections of runs were used."""
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
        with self._stored_secrets().changing() as kept:
            made = kept.setdefault(name, _Secret(digest=name, secret=local or fresh_secret()))
        if local == made.secret:
            log.warning("the database had no %s; that of the data folder %s was taken over", name, self.folder)
        return made.secret

    def known_secret(self, name: str) -> str | None:
        if name not in self._secrets:
            self._secrets.update({each.digest: each.secret for each in self._stored_secrets().read().values()})
        return self._secrets.get(name)

    def _stored_secrets(self) -> Collection[_Secret]:
        """They never change, so the cache is not kept up to date."""
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
        """A connection for one caller. A program that watches keeps a few of them."""
        with self._lock:
            link = self._spare.pop() if self._spare else Link(self.server)
        try:
            yield link
        finally:
            with self._lock:
                keep = self._watch is not None and len(self._spare) < _KEPT_LINKS and not self.server.closing.is_set()
                if keep:
                    self._spare.append(link)
            if not keep:
                link.close()

    # Watching.

    def watch(self) -> None:
        """Keep the collections up to date from now on. Call it in the event loop."""
        if self._watch is None:
            self._watch = _Watch(self.server, self.refresh)

    def notice(self, name: str | None = None) -> None:
        """Another program has changed a collection, or may have."""
        if self._watch is not None and (name is None or name in self._collections):
            self._watch.look()

    def refresh(self, connection: PostgresConnection) -> None:
        """Read again what has changed."""
        began = time.monotonic()
        kept = self._kept()
        changes = dict(connection.fetch(_CHANGES, {"names": json.dumps(list(kept))}))
        for name, collection in kept.items():
            if collection.changes == changes.get(name, 0):
                collection.confirm(began)
            elif name not in changes and _OF_RUN in name and collection.changes:
                self._drop(name)
            else:
                collection.load(connection)

    def forget(self, run_ids: Iterable[str]) -> None:
        """The runs were deleted."""
        prefixes = tuple(f"runs{_OF_RUN}{run_id}{_OF_RUN}" for run_id in run_ids)
        with self._lock:
            names = [each for each in self._used if each.startswith(prefixes)]
        for name in names:
            self._drop(name)

    def _drop(self, name: str) -> None:
        with self._lock:
            self._used.pop(name, None)
            self._collections.pop(name, None)

    def _kept(self) -> dict[str, RowCollection[Any]]:
        """The collections to keep up to date. Those of runs are forgotten if nobody has used them for a while."""
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
    """The thread that keeps the collections up to date, and the requests that wait for it."""

    def __init__(self, server: Server, refresh: Callable[[PostgresConnection], None]) -> None:
        self._server = server
        self._refresh = refresh
        self._loop = asyncio.get_running_loop()
        self._asked = threading.Event()
        self._looked = asyncio.Event()
        self._thread = start_thread(self._run, name="askback-records")

    def look(self) -> None:
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
