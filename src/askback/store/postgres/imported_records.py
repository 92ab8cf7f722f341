"""The small files of a data folder as rows: tokens, sessions, links, keys and the list of skills, as they are written."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from askback.core.errors import RefusalCode, Unavailable
from askback.files.records import found_secret
from askback.store.postgres.connection import PostgresConnection
from askback.store.postgres.records import SECRETS

COLLECTIONS = ("tokens", "sessions", "invitations", "token-uses", "digests", "push-subscriptions")
KEYS = ("token", "link-key", "push-key")
_IMPORT = "import"
"""The collection that says which folder was imported."""

log = logging.getLogger(__name__)


def copy(target: PostgresConnection, folder: Path) -> dict[str, int]:
    """Returns how many records each collection has got."""
    found = {name: _in_file(folder / f"{name}.json") for name in COLLECTIONS}
    found["skills"] = _skills(folder / "skills")
    keys = {name: found_secret(folder / name) for name in KEYS}
    found[SECRETS] = {name: {"digest": name, "secret": key} for name, key in keys.items() if key is not None}
    for name, records in found.items():
        _put(target, name, records)
    return {name: len(records) for name, records in found.items()}


def copy_links(target: PostgresConnection, runs: Path, run_ids: Iterable[tuple[str]]) -> int:
    """Copy the links of these runs, whose folders are in `runs`. Returns their number."""
    count = 0
    for (run_id,) in run_ids:
        links = _in_file(runs / run_id / "links.json")
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


def _in_file(path: Path) -> dict[str, Any]:
    try:
        listed = msgspec.json.decode(path.read_bytes(), type=list[dict[str, Any]])
        return {str(record["digest"]): record for record in listed}
    except FileNotFoundError:
        return {}
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError, OSError) as error:
        message = f"{path} cannot be read: {error}; repair the file, or delete it, which discards its records"
        raise Unavailable(RefusalCode.STORE_UNUSABLE, message) from None


def _skills(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            versions = json.loads(path.read_bytes())["versions"]
            shown = [{"version": each["version"], "digest": each["digest"]} for each in versions]
        except (OSError, ValueError, KeyError, TypeError):
            log.warning("%s cannot be read; install the skill again", path)
            continue
        found[path.stem] = {"digest": path.stem, "versions": shown}
    return found
