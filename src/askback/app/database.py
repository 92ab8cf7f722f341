"""Which database is used, and the store in it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import parse_qs, unquote, urlsplit

from askback.core.errors import RefusalCode, Unavailable
from askback.fs.records import FileRecords, Record, Records, stored_secret
from askback.settings.model import COMMON_DATABASE, Settings, common_database
from askback.skills.shelf import RecordShelf, Shelf
from askback.store.base import Store

log = logging.getLogger(__name__)

DATABASE = "askback.db"
_ID = "shared-database-id"
INSTALL = "install it with: pip install 'askback[postgres]' (with pipx: pipx inject askback 'askback[postgres]')"


def postgres_address(settings: Settings) -> str | None:
    """The address of the PostgreSQL database; None if the runs are in the data folder.

    Raises `Unavailable` if a package of the extra `postgres` is missing.
    """
    if settings.database in (None, "sqlite"):
        return None
    try:
        import procrastinate  # noqa: F401
        import psycopg  # noqa: F401
    except ImportError as error:
        message = f"`database` names a PostgreSQL server, but {error.name} is not installed; {INSTALL}"
        raise Unavailable(RefusalCode.STORE_UNUSABLE, message) from error
    return settings.database


def database_password(settings: Settings) -> str | None:
    if settings.database in (None, "sqlite"):
        return None
    parts = urlsplit(settings.database)
    given = [unquote(parts.password)] if parts.password else parse_qs(parts.query).get("password", [])
    return given[0] if given else None


async def open_store(settings: Settings) -> Store:
    """Raises `Unavailable` if it cannot be opened."""
    with _naming_the_variable(settings):
        return await _open(settings)


async def refuse_forgotten(settings: Settings) -> None:
    """Raises `Unavailable` if the program would use PostgreSQL beside an SQLite file whose runs were not imported."""
    if postgres_address(settings) is None:
        return
    from askback.store.sqlite.moving import has_unmoved_runs

    file = settings.data_dir / DATABASE
    with _naming_the_variable(settings):
        if await asyncio.to_thread(has_unmoved_runs, file):
            message = (
                f"{file} has runs that were not imported into the PostgreSQL database; import them with:"
                f" askback database import {settings.data_dir}. To start without these runs, move {DATABASE} out of the"
                f" folder, with {DATABASE}-wal and {DATABASE}-shm"
            )
            raise Unavailable(RefusalCode.STORE_UNUSABLE, message)


def record_kinds() -> Mapping[str, type[Record]]:
    """The types of the records in the files of a data folder, by the name of their file."""
    from askback.access.push_subscriptions import Subscription
    from askback.access.sessions import Invitation, Session
    from askback.access.token_uses import TokenUse
    from askback.access.tokens import Token
    from askback.notifications.digest_ledger import DigestRecord
    from askback.runs.links import StoredLink

    return {
        "tokens": Token,
        "sessions": Session,
        "invitations": Invitation,
        "token-uses": TokenUse,
        "digests": DigestRecord,
        "push-subscriptions": Subscription,
        "links": StoredLink,
    }


def records_of(store: Store, settings: Settings, *, serving: bool) -> Records:
    """The records that belong to an open store. A server keeps them up to date, and so does a worker."""
    if postgres_address(settings) is None:
        return FileRecords(settings.data_dir)
    from askback.store.postgres import PostgresStore

    assert isinstance(store, PostgresStore)
    store.records.folder = settings.data_dir
    if serving:
        store.records.watch()
    return store.records


def shared_database_id(records: Records, settings: Settings, *, serving: bool) -> str | None:
    """The id of a database that several machines may use. None for SQLite, and before a server has used it. Blocks."""
    if postgres_address(settings) is None:
        return None
    return records.secret(_ID) if serving else records.known_secret(_ID)


def open_records(settings: Settings) -> Records:
    """The records for a command, which needs no store."""
    address = postgres_address(settings)
    if address is None:
        return FileRecords(settings.data_dir)
    from askback.store import postgres

    return postgres.open_records(address)


def shelf_of(settings: Settings, records: Records | None = None) -> Shelf | None:
    """The list of skills in the database, in the given records or in those for a command. None: it is in the data folder."""
    if postgres_address(settings) is None:
        return None
    return RecordShelf(records or open_records(settings))


@contextmanager
def _naming_the_variable(settings: Settings) -> Iterator[None]:
    """Somebody who set `DATABASE_URL` for another program must learn that it was used."""
    try:
        yield
    except Unavailable as error:
        if settings.database is None or settings.database != common_database():
            raise
        message = f"{error.message}. The address is that of {COMMON_DATABASE}; ASKBACK_DATABASE=sqlite ignores it"
        raise Unavailable(error.code, message) from error


async def _open(settings: Settings) -> Store:
    address = postgres_address(settings)
    if address is None:
        from askback.store.sqlite import SqliteStore

        return await SqliteStore.open(settings.data_dir / DATABASE)
    # An extra.
    from askback.store.postgres import PostgresStore
    from askback.store.postgres.errors import place
    from askback.store.postgres.schema import DataFolder

    log.info("connecting to %s", place(address))
    folder_id = await asyncio.to_thread(stored_secret, settings.data_dir / "database-id")
    folder = DataFolder(id=folder_id, runs_dir=str(settings.runs.absolute()), shared=settings.files is not None)
    return await PostgresStore.open(address, folder=folder)
