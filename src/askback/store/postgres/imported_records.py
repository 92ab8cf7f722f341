"""The small files of a data folder as rows: tokens, sessions, links, keys and the list of skills, as they are written."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from askback.core.errors import RefusalCode, Unavailable
from askback.core.runs import parse_run_id
from askback.fs.paths import open_regular
from askback.fs.records import Record, found_secret, stored_secret
from askback.store.postgres.connection import PostgresConnection
from askback.store.postgres.records import SECRETS

KEYS = ("token", "link-key", "push-key")
_MAX_FILE = 64 * 2**20
_IMPORT = "import"
"""The collection that says which folder was imported."""

log = logging.getLogger(__name__)


class _Version(msgspec.Struct, frozen=True):
    version: str | None
    digest: str


class _Installed(msgspec.Struct, frozen=True):
    versions: list[_Version]


def copy(target: PostgresConnection, folder: Path, kinds: Mapping[str, type[Record]]) -> dict[str, int]:
    """Returns how many records each collection has got."""
    found = {name: _in_file(folder / f"{name}.json", kind) for name, kind in kinds.items() if name != "links"}
    found["skills"] = _skills(folder / "skills")
    keys = {name: _secret(folder / name) for name in KEYS}
    found[SECRETS] = {name: {"digest": name, "secret": key} for name, key in keys.items() if key is not None}
    for name, records in found.items():
        _put(target, name, records)
    return {name: len(records) for name, records in found.items()}


def copy_links(target: PostgresConnection, runs: Path, run_ids: Iterable[tuple[str]], kind: type[Record]) -> int:
    """Copy the links of these runs, whose folders are in `runs`. Returns their number."""
    count = 0
    for (run_id,) in run_ids:
        links = _in_file(runs / parse_run_id(run_id) / "links.json", kind)
        _put(target, f"runs/{run_id}/links", links)
        count += len(links)
    return count


def was_imported(target: PostgresConnection, folder_id: str) -> bool:
    found = target.value(
        "SELECT 1 FROM records WHERE collection = :name AND key = :key", {"name": _IMPORT, "key": folder_id}
    )
    return found is not None


def note_import(target: PostgresConnection, folder_id: str, folder: Path) -> None:
    _put(target, _IMPORT, {folder_id: {"digest": folder_id, "folder": str(folder)}})


def _put(target: PostgresConnection, name: str, records: Mapping[str, Any]) -> None:
    if not records:
        return
    target.execute("INSERT INTO collections (name, changes) VALUES (:name, 1)", {"name": name})
    target.executemany(
        "INSERT INTO records (collection, key, doc) VALUES (?, ?, ?)",
        [(name, key, json.dumps(record)) for key, record in records.items()],
    )


def folder_id(folder: Path) -> str:
    """What the database knows the folder by. Created if missing."""
    path = folder / "database-id"
    return _secret(path) or stored_secret(path)


def _secret(path: Path) -> str | None:
    try:
        _content(path)
        return found_secret(path)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from None


def _in_file(path: Path, kind: type[Record]) -> dict[str, Any]:
    """The records as they are written, with fields that only newer versions know."""
    try:
        content = _content(path)
        decoded: list[Record] = msgspec.json.decode(content, type=list[kind])  # type: ignore[valid-type]
        listed = msgspec.json.decode(content, type=list[dict[str, Any]])
        return {record.digest: as_written for record, as_written in zip(decoded, listed, strict=True)}
    except FileNotFoundError:
        return {}
    except (msgspec.MsgspecError, UnicodeDecodeError, OSError) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> Unavailable:
    message = f"{path} cannot be read: {error}; repair the file, or delete it, which discards its records"
    return Unavailable(RefusalCode.STORE_UNUSABLE, message)


def _content(path: Path) -> bytes:
    """Of a regular file. Somebody else may have prepared the folder."""
    descriptor = open_regular(path)
    if descriptor is None:
        raise OSError("it is not a regular file")
    with open(descriptor, "rb") as file:
        content = file.read(_MAX_FILE + 1)
    if len(content) > _MAX_FILE:
        raise OSError(f"it has more than {_MAX_FILE} bytes")
    return content


def _skills(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            versions = msgspec.json.decode(_content(path), type=_Installed).versions
        except (OSError, UnicodeDecodeError, msgspec.MsgspecError):
            log.warning("%s cannot be read; install the skill again", path)
            continue
        found[path.stem] = {"digest": path.stem, "versions": msgspec.to_builtins(versions)}
    return found
