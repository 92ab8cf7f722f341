"""The manifest of a snapshot: every file, folder and link of the home, with the values that detect a change.

It is one file that is replaced as a whole, so there is always one complete snapshot. Its first line names the copies, so that
the rest needs to be read only to restore the home, or to compare it.

Fork points are the manifests before earlier turns, beside the current one. They share the copies of files that did not change, so
a point takes as much room as the files that its turn changed. The oldest points are dropped when there are too many, or too
large ones.
"""

from __future__ import annotations

import json
import os
import stat
from array import array
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from askback.fs.copies import CopyRefused, TreeCopy, stays_inside
from askback.fs.walk import FileState

_FORMAT = 1
MANIFEST = "manifest.json"
MAX_BYTES = 1_000_000_000
"""The size of all copies and manifests for the fork points of one run."""
_BLOCK = 4096
"""What the smallest copy takes on a disk."""
_END_OF_HEAD = b",\n"


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

    def copies(self) -> _Copies:
        return array("q", [each for saved in self.files.values() for each in (saved.number, saved.size)])

    def write(self, folder: Path, name: str = MANIFEST) -> None:
        """Replace the previous manifest. From then on this is the snapshot, even after a power failure."""
        head = {"format": _FORMAT, "attempt_number": self.attempt_number, "copies": self.copies().tolist()}
        content = {"files": self.files, "folders": self.folders, "links": self.links}
        fresh = folder / f"{name}.new"
        with fresh.open("wb") as file:
            file.write(_as_json(head)[:-1] + _END_OF_HEAD)
            file.write(_as_json(content)[1:])
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(folder / name)
        sync(folder)


def _as_json(content: object) -> bytes:
    # Many times faster than `json.dump`. Names that are not valid text have surrogates.
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


_Copies: TypeAlias = "array[int]"
"""The number and the size of each copy, one after the other: a point may have 100,000."""


def _read_copies(folder: Path, name: str) -> _Copies | None:
    """The copies that a manifest names, from its first line. Those of earlier versions have none."""
    try:
        with (folder / name).open("rb") as file:
            line = file.readline()
        if line.endswith(_END_OF_HEAD):
            return array("q", json.loads(line.removesuffix(_END_OF_HEAD) + b"}")["copies"])
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise _damaged(folder, error) from error
    whole = read_manifest(folder, name)
    return None if whole is None else whole.copies()


def read_manifest(folder: Path, name: str = MANIFEST) -> Manifest | None:
    try:
        content: Any = json.loads((folder / name).read_bytes())
        if content["format"] != _FORMAT:
            raise KeyError(f"format {content['format']}")
        return Manifest(
            attempt_number=content["attempt_number"],
            files={path: SavedFile(*row) for path, row in content["files"].items()},
            folders={path: SavedFolder(*row) for path, row in content["folders"].items()},
            links={path: SavedLink(*row) for path, row in content["links"].items()},
        )
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _damaged(folder, error) from error


def sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _damaged(folder: Path, error: Exception) -> SnapshotDamaged:
    return SnapshotDamaged(f"{folder / MANIFEST} cannot be read ({error!r}); cancel the run and start a new one")


class ForkPoints:
    def __init__(self, snapshots: Path) -> None:
        self._folder = snapshots / "points"
        self._files = snapshots / "files"

    @cached_property
    def _points(self) -> dict[int, _Copies]:
        """The copies of each point, by its turn."""
        copies = {turn: _read_copies(self._folder, _name(turn)) for turn in self.turns(self._folder.parent)}
        return {turn: each for turn, each in copies.items() if each is not None}

    @staticmethod
    def turns(snapshots: Path) -> set[int]:
        """The turns that have a point. Reads names only."""
        return {int(path.stem) for path in (snapshots / "points").glob("*.json") if path.stem.isdigit()}

    def numbers(self) -> set[int]:
        """The copies that the points need."""
        return set().union(*(copies[::2] for copies in self._points.values()))

    def add(self, point: Manifest, limit: int) -> None:
        """Add a point, and drop the oldest ones beyond `limit` and `MAX_BYTES`."""
        self._folder.mkdir(exist_ok=True, mode=0o700)
        point.write(self._folder, _name(point.attempt_number))
        self._points[point.attempt_number] = point.copies()
        self.drop_beyond(limit)

    def drop_beyond(self, limit: int) -> None:
        """Drop the oldest points beyond `limit` and `MAX_BYTES`."""
        while len(self._points) > limit or self._bytes() > MAX_BYTES:
            oldest = min(self._points)
            del self._points[oldest]
            (self._folder / _name(oldest)).unlink(missing_ok=True)

    def _bytes(self) -> int:
        sizes = {
            number: size
            for copies in self._points.values()
            for number, size in zip(copies[::2], copies[1::2], strict=True)
        }
        manifests = sum((self._folder / _name(turn)).stat().st_size for turn in self._points)
        return manifests + sum(max(size, _BLOCK) for size in sizes.values())

    def copy(self, attempt_number: int, copying: TreeCopy, name: str) -> None:
        """Copy the home as it was before that turn to a new folder. Raises `CopyRefused` if there is no such point."""
        point = read_manifest(self._folder, _name(attempt_number))
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
