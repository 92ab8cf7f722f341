"""The manifest of a snapshot: every file, folder and link of the home, with the values that detect a change.

It is one small file that is replaced as a whole, so there is always one complete snapshot.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

_FORMAT = 1
_NAME = "manifest.json"


class SnapshotDamaged(Exception):
    """The snapshot cannot be trusted. Continuing with or without it could put a reply into the session twice."""


# Tuples, because a home may have 50,000 files: they are created, written and read much faster than dataclasses.
class SavedFile(NamedTuple):
    number: int
    """The name of the copy."""
    mode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    """0: the file could change without a new time, so it counts as changed."""
    inode: int

    def is_still(self, status: os.stat_result) -> bool:
        return self.ctime_ns != 0 and (self.mode, self.size, self.mtime_ns, self.ctime_ns, self.inode) == (
            stat.S_IMODE(status.st_mode),
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
            status.st_ino,
        )


class SavedFolder(NamedTuple):
    mode: int
    mtime_ns: int


class SavedLink(NamedTuple):
    target: str
    mtime_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    attempt_number: int
    """The turn before which the home was saved."""
    files: dict[str, SavedFile] = field(default_factory=dict)
    folders: dict[str, SavedFolder] = field(default_factory=dict)
    links: dict[str, SavedLink] = field(default_factory=dict)

    def numbers(self) -> set[int]:
        return {saved.number for saved in self.files.values()}

    def write(self, folder: Path, name: str = _NAME) -> None:
        """Replace the previous manifest. From then on this is the snapshot, even after a power failure."""
        content = {
            "format": _FORMAT,
            "attempt_number": self.attempt_number,
            "files": self.files,
            "folders": self.folders,
            "links": self.links,
        }
        fresh = folder / f"{name}.new"
        with fresh.open("w", encoding="ascii") as file:
            # Many times faster than `json.dump`.
            file.write(json.dumps(content, separators=(",", ":")))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(folder / name)
        sync(folder)


def read(folder: Path, name: str = _NAME) -> Manifest | None:
    try:
        content = json.loads((folder / name).read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise _damaged(folder, error) from error
    try:
        return _manifest(content)
    except (TypeError, KeyError, AttributeError) as error:
        raise _damaged(folder, error) from error


def forget(folder: Path) -> None:
    """Remove the manifest."""
    (folder / _NAME).unlink(missing_ok=True)


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _manifest(content: Any) -> Manifest:
    if content["format"] != _FORMAT:
        raise KeyError(f"format {content['format']}")
    return Manifest(
        attempt_number=content["attempt_number"],
        files={path: SavedFile(*row) for path, row in content["files"].items()},
        folders={path: SavedFolder(*row) for path, row in content["folders"].items()},
        links={path: SavedLink(*row) for path, row in content["links"].items()},
    )


def _damaged(folder: Path, error: Exception) -> SnapshotDamaged:
    return SnapshotDamaged(f"{folder / _NAME} cannot be read ({error!r}); cancel the run and start a new one")
