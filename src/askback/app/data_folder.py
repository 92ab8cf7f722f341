"""The data folder at the start of a program: who may access it, and the secrets in it."""

from __future__ import annotations

import logging
from pathlib import Path

from askback.app.credentials import credential_values
from askback.app.database import DATABASE, database_password
from askback.core.errors import RefusalCode, Unavailable
from askback.fs.atomic import make_private, write_private
from askback.fs.records import Records, found_secret
from askback.process.isolation import Access, access_of_others, revoke_write_access
from askback.settings.model import Settings

log = logging.getLogger(__name__)


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
    _check_access(data_dir, serving=serving)


def _check_access(data_dir: Path, *, serving: bool) -> None:
    """Only the owner may write: write access to the data folder is enough to run programs as its owner."""
    access = access_of_others(data_dir)
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
