"""Fork points: the home as it was before earlier turns of a run.

Each is a manifest beside the current one. They share the copies of files that did not change, so a point takes as much
room as the files that its turn changed. The oldest points are dropped when there are too many, or too large ones.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from askback.fs.copies import CopyRefused, TreeCopy, stays_inside
from askback.workspace.snapshot import manifest
from askback.workspace.snapshot.manifest import Manifest, SnapshotDamaged

MAX_BYTES = 1_000_000_000
"""The size of all copies that are kept for the points of one run."""


class Points:
    def __init__(self, snapshots: Path) -> None:
        self._folder = snapshots / "points"
        self._files = snapshots / "files"
        self._points: dict[int, Manifest] = {}
        with suppress(FileNotFoundError):
            for path in self._folder.glob("*.json"):
                saved = manifest.read(self._folder, path.name)
                if saved is not None:
                    self._points[saved.attempt_number] = saved

    @staticmethod
    def kept(snapshots: Path) -> set[int]:
        """The turns that have a point. Reads names only."""
        return {int(path.stem) for path in (snapshots / "points").glob("*.json") if path.stem.isdigit()}

    def numbers(self) -> set[int]:
        """The copies that the points need."""
        return set().union(*(each.numbers() for each in self._points.values()))

    def add(self, point: Manifest, keep: int) -> None:
        """Keep a point, and drop the oldest ones beyond `keep` and `MAX_BYTES`."""
        self._folder.mkdir(exist_ok=True, mode=0o700)
        self._points[point.attempt_number] = point
        self.drop_beyond(keep)
        if self._points:
            point.write(self._folder, _name(point.attempt_number))

    def drop_beyond(self, keep: int) -> None:
        """Drop the oldest points beyond `keep` and `MAX_BYTES`."""
        while len(self._points) > keep or _bytes(self._points.values()) > MAX_BYTES:
            oldest = min(self._points)
            del self._points[oldest]
            (self._folder / _name(oldest)).unlink(missing_ok=True)

    def copy(self, attempt_number: int, copying: TreeCopy, name: str) -> None:
        """Copy the home as it was before that turn to a new folder. Raises `CopyRefused` if the point is not kept."""
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
