"""The list of installed skills, each with its versions: files of one data folder, or records that all servers share."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from askback.core.errors import raise_if_temporary
from askback.fs.atomic import locked, sync_folder, write_private
from askback.fs.records import Records


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledVersion:
    version: str | None
    digest: str


class Shelf:
    """<folder>/<id>.json for each skill. The folder must exist for a change."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.lock = folder / ".lock"

    def names(self) -> Sequence[str]:
        """The ids of the installed skills, sorted."""
        return sorted(path.stem for path in self._folder.glob("*.json")) if self._folder.is_dir() else []

    def versions(self, skill_id: str) -> tuple[InstalledVersion, ...]:
        """The newest last. Empty for an id that is not installed, and for an unreadable entry. Does not block."""
        try:
            document = json.loads(self._path(skill_id).read_bytes())
            return tuple(
                InstalledVersion(version=each["version"], digest=each["digest"]) for each in document["versions"]
            )
        except OSError as fault:
            raise_if_temporary(fault)
            return ()
        except (ValueError, KeyError, TypeError):
            return ()

    @contextmanager
    def changing(self, skill_id: str) -> Iterator[list[InstalledVersion]]:
        """Yield the versions to modify, and write them at the end of the block. Without versions, the skill is removed.

        One caller at a time, of all programs.
        """
        with locked(self.lock):
            versions = list(self.versions(skill_id))
            yield versions
            if not versions:
                self._path(skill_id).unlink(missing_ok=True)
                return
            document = {"id": skill_id, "versions": [{"version": v.version, "digest": v.digest} for v in versions]}
            write_private(self._path(skill_id), json.dumps(document, indent=1).encode())
            sync_folder(self._folder)

    def _path(self, skill_id: str) -> Path:
        return self._folder / f"{skill_id}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillRecord:
    """One installed skill. `digest` is its id: the key of the record."""

    digest: str
    versions: tuple[InstalledVersion, ...]


class RecordShelf(Shelf):
    """One record for each skill."""

    def __init__(self, records: Records) -> None:
        self._stored = records.collection("skills", SkillRecord)

    def names(self) -> Sequence[str]:
        return sorted(self._stored.read())

    def versions(self, skill_id: str) -> tuple[InstalledVersion, ...]:
        found = self._stored.read().get(skill_id)
        return () if found is None else found.versions

    @contextmanager
    def changing(self, skill_id: str) -> Iterator[list[InstalledVersion]]:
        with self._stored.changing() as skills:
            found = skills.get(skill_id)
            versions = [] if found is None else list(found.versions)
            yield versions
            if versions:
                skills[skill_id] = SkillRecord(digest=skill_id, versions=tuple(versions))
            else:
                skills.pop(skill_id, None)
