"""The manifest of a snapshot: every file, folder and link of the home, with the values that detect a change.

It is one small file that is replaced as a whole, so there is always one complete snapshot.

Fork points are the manifests before earlier turns, beside the current one. They share the copies of files that did not change, so
a point takes as much room as the files that its turn changed. The oldest points are dropped when there are too many, or too
large ones.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from askback.fs.copies import CopyRefused, TreeCopy, stays_inside
from askback.fs.walk import FileState

_FORMAT = 1
_NAME = "manifest.json"
MAX_BYTES = 1_000_000_000
"""The size of all copies for the fork points of one run."""


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
        saved = FileState(self.size, self.mtime_ns, self.ctime_ns, self.inode)
        return self.ctime_ns != 0 and (self.mode, saved) == (stat.S_IMODE(status.st_mode), FileState.of(status))


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


def read_manifest(folder: Path, name: str = _NAME) -> Manifest | None:
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


def forget_manifest(folder: Path) -> None:
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


class ForkPoints:
    def __init__(self, snapshots: Path) -> None:
        self._folder = snapshots / "points"
        self._files = snapshots / "files"
        self._points: dict[int, Manifest] = {}
        with suppress(FileNotFoundError):
            for path in self._folder.glob("*.json"):
                saved = read_manifest(self._folder, path.name)
                if saved is not None:
                    self._points[saved.attempt_number] = saved

    @staticmethod
    def turns(snapshots: Path) -> set[int]:
        """The turns that have a point. Reads names only."""
        return {int(path.stem) for path in (snapshots / "points").glob("*.json") if path.stem.isdigit()}

    def numbers(self) -> set[int]:
        """The copies that the points need."""
        return set().union(*(each.numbers() for each in self._points.values()))

    def add(self, point: Manifest, limit: int) -> None:
        """Add a point, and drop the oldest ones beyond `limit` and `MAX_BYTES`."""
        self._folder.mkdir(exist_ok=True, mode=0o700)
        self._points[point.attempt_number] = point
        self.drop_beyond(limit)
        if self._points:
            point.write(self._folder, _name(point.attempt_number))

    def drop_beyond(self, limit: int) -> None:
        """Drop the oldest points beyond `limit` and `MAX_BYTES`."""
        while len(self._points) > limit or _bytes(self._points.values()) > MAX_BYTES:
            oldest = min(self._points)
            del self._points[oldest]
            (self._folder / _name(oldest)).unlink(missing_ok=True)

    def copy(self, attempt_number: int, copying: TreeCopy, name: str) -> None:
        """Copy the home as it was before that turn to a new folder. Raises `CopyRefused` if there is no such point."""
        point = self._points.get(attempt_number)
        if point is None:
            raise CopyRefused("the session as it was at this question is no longer kept (retention.questions)")
        for path in point.folders:
            copying.make_folder(_below(name, path))
        for path, saved in point.files.items():
            try:
                source = os.open(self._files / str(saved.number), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except FileNotFoundError as error:
                raise SnapshotDamaged(
                    f"{self._files / str(saved.number)} is missing; this question cannot be forked at"
                ) from error
            try:
                copying.copy_open_file(
                    source, _below(name, path), saved.mode & ~(stat.S_ISUID | stat.S_ISGID), saved.mtime_ns
                )
            finally:
                os.close(source)
        for path, link in point.links.items():
            if stays_inside(link.target, path.count("/")):
                copying.make_link(_below(name, path), link.target)


def _name(attempt_number: int) -> str:
    return f"{attempt_number:06d}.json"


def _below(name: str, path: str) -> str:
    return f"{name}/{path}" if path else name


def _bytes(points: Iterable[Manifest]) -> int:
    return sum({saved.number: saved.size for each in points for saved in each.files.values()}.values())
