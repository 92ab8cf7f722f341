"""Where an instance stores things: its data folder, its database and the file store, and the credentials of both."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit

from askback.core.errors import RefusalCode, Unavailable
from askback.fs.atomic import make_private, write_private
from askback.fs.paths import Access, access_of_others, revoke_write_access
from askback.fs.records import Record, Records, found_secret, stored_secret
from askback.settings.environment import COMMON_DATABASE, common_database, variables
from askback.settings.model import Settings
from askback.skills.shelf import RecordShelf, Shelf
from askback.store.base import Store

log = logging.getLogger(__name__)

DATABASE = "askback.db"
_ID = "shared-database-id"
_INSTALL = "install it with: pip install 'askback[postgres]' (with pipx: pipx inject askback 'askback[postgres]')"


def postgres_address(settings: Settings) -> str | None:
    """The address of the PostgreSQL database, if there is one. Raises `Unavailable` if the extra `postgres` is missing."""
    if settings.database in (None, "sqlite"):
        return None
    try:
        import procrastinate  # noqa: F401
        import psycopg  # noqa: F401
    except ImportError as error:
        message = f"`database` names a PostgreSQL server, but {error.name} is not installed; {_INSTALL}"
        raise Unavailable(RefusalCode.STORE_UNUSABLE, message) from error
    return settings.database


def is_shared(settings: Settings) -> bool:
    """Whether instances on other machines may work on the same runs."""
    return settings.database not in (None, "sqlite")


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
    """Raises `Unavailable` if the instance would use PostgreSQL beside an SQLite file whose runs were not imported."""
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
    from askback.access.tokens import Token, TokenUse
    from askback.notifications.digests import DigestRecord
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
        return Records(settings.data_dir)
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
        return Records(settings.data_dir)
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


def prepare_runs_folder(settings: Settings) -> None:
    """One outside of the data folder: the other machines of a database have it at the same path."""
    if settings.runs_dir is None:
        return
    try:
        make_private(settings.runs_dir)
    except OSError as error:
        message = f"the folder {settings.runs_dir} cannot be created: {error.strerror}; choose another `runs_dir`"
        raise Unavailable(RefusalCode.STORE_UNUSABLE, message) from None
    if access_of_others(settings.runs_dir) is Access.WRITE:
        message = f"other users can write to {settings.runs_dir}; revoke their access: chmod 700 {settings.runs_dir}"
        raise Unavailable(RefusalCode.STORE_UNUSABLE, message)


def prepare_data_folder(data_dir: Path, *, serving: bool) -> None:
    try:
        make_private(data_dir)
    except OSError as error:
        message = f"the data folder {data_dir} cannot be created: {error.strerror}; choose another with --data-dir"
        raise Unavailable(RefusalCode.STORE_UNUSABLE, message) from None
    access = access_of_others(data_dir)
    # Write access to the data folder is enough to run programs as its owner.
    if access is Access.WRITE:
        if not revoke_write_access(data_dir, DATABASE):
            message = f"other users can write to the data folder {data_dir}; revoke their access: chmod 700 {data_dir}"
            raise Unavailable(RefusalCode.STORE_UNUSABLE, message)
        log.warning("other users could write to the data folder %s; their access was revoked", data_dir)
    elif access is Access.READ and serving:
        log.warning("other users can read the data folder %s; revoke their access: chmod 700 %s", data_dir, data_dir)


def own_secrets(settings: Settings, records: Records, *, serving: bool) -> tuple[str, ...]:
    """What an engine could find on this machine and must not reveal: tokens, and the server's keys. Blocks."""
    names = ["link-key", "push-key", *([] if settings.server.token else ["token"])]
    found = [records.secret(name) if serving else records.known_secret(name) for name in names]
    given = (settings.server.token, settings.telegram.token, database_password(settings))
    return tuple(text for text in (*found, *given, *credential_values(settings)) if text)


def keep_token(settings: Settings, token: str) -> None:
    """Write the server's own token, which may be in a database, where commands on this machine look for it."""
    path = settings.data_dir / "token"
    if settings.server.token is not None or (known := found_secret(path)) == token:
        return
    if known is not None:
        log.warning("%s had another token than the database; it has that of the database now", path)
    write_private(path, f"{token}\n".encode())


_SECRETS = {
    "postgresql": ("PGPASSWORD", "PGSSLPASSWORD"),
    "s3": ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN"),
    "gs": ("GOOGLE_SERVICE_ACCOUNT_KEY",),
    "az": (
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_ACCESS_KEY",
        "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_STORAGE_SAS_KEY",
        "AZURE_STORAGE_TOKEN",
        "AZURE_STORAGE_CLIENT_SECRET",
        "AZURE_CLIENT_SECRET",
    ),
}
"""Variables that contain a secret, by the scheme of the address."""
_FILES = {
    "postgresql": ("PGPASSFILE", "PGSERVICEFILE", "PGSSLKEY"),
    "s3": ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
    "gs": ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH"),
    "az": ("AZURE_FEDERATED_TOKEN_FILE",),
}
"""Variables that name a file with a secret."""
_FILE_OPTIONS = ("passfile", "servicefile", "sslkey")
"""Options of the address of a database that name such a file."""


def credential_variables(settings: Settings) -> frozenset[str]:
    """The variables that the database and the file store of these settings use."""
    return frozenset(name for names in (_SECRETS, _FILES) for scheme in _schemes(settings) for name in names[scheme])


def credential_values(settings: Settings) -> tuple[str, ...]:
    return tuple(variables(name for scheme in _schemes(settings) for name in _SECRETS[scheme]).values())


def credential_files(settings: Settings) -> list[Path]:
    """The files with secrets that these variables and the address of the database name.

    A file that the settings of an engine name as well is shared with it on purpose.
    """
    named = [*variables(name for scheme in _schemes(settings) for name in _FILES[scheme]).values()]
    options = parse_qsl(urlsplit(settings.database or "").query)
    named += [value for option, value in options if option in _FILE_OPTIONS]
    shared = {value for engine in settings.engines.values() for value in engine.env.values()}
    return [Path(name) for name in named if name.startswith("/") and name not in shared]


def _schemes(settings: Settings) -> Iterator[str]:
    for address in (settings.database, settings.files):
        scheme = (address or "").partition("://")[0]
        known = "postgresql" if scheme == "postgres" else scheme
        if known in _FILES:
            yield known
