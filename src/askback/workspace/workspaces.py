"""The workspaces of all runs on this machine: their sizes, their removal, and notes of what has to be removed."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from askback.core.errors import Unavailable
from askback.files import beneath
from askback.files.atomic import sync_folder
from askback.files.tree import remove_tree
from askback.process.locks import FileLock
from askback.process.stored_run import StoredRun
from askback.process.workspace import Workspace
from askback.stored_files.blocking import BlockingFiles

log = logging.getLogger(__name__)

_MAX_LATEST = 256


class Workspaces:
    """The workspaces of all runs on this machine."""

    def __init__(
        self,
        root: Path,
        sign_ins: Sequence[str] = (),
        fork_points: int = 0,
        notes: Path | None = None,
        files: BlockingFiles | None = None,
    ) -> None:
        """`notes` is the data folder; None: the one that has `root`.

        `files`: where the files of runs are stored for every machine; None if this is the only one.
        """
        notes = notes or root.parent
        self._root = root
        self._files = files
        self._fork_points = fork_points
        self._marks = notes / "deleting"
        """A file for each run that is being deleted."""
        self._sign_ins = sign_ins
        """The sign-in files of all engines, relative to a home."""
        self._latest: dict[str, Workspace] = {}
        """Some of those that were used: a turn needs its own several times."""
        self._kept = notes / "sign-ins"
        """A file for each run whose process may be kept while it waits, with a sign-in in its home."""

    def of(self, run_id: str) -> Workspace:
        known = self._latest.get(run_id)
        if known is None:
            if len(self._latest) >= _MAX_LATEST:
                self._latest.clear()
            stored = self._stored(run_id)
            known = Workspace(self._root / run_id, self._sign_ins, self._fork_points, stored)
            self._latest[run_id] = known
        return known

    def _stored(self, run_id: str) -> StoredRun | None:
        return None if self._files is None else StoredRun(self._files, run_id)

    def run_ids(self) -> list[str]:
        """The runs that have a folder on this machine."""
        with suppress(FileNotFoundError):
            return sorted(folder.name for folder in self._root.iterdir())
        return []

    def sizes(self) -> dict[str, int]:
        """The disk usage of each run in bytes, by run id."""
        with suppress(FileNotFoundError):
            return {folder.name: _disk_usage(folder) for folder in self._root.iterdir()}
        return {}

    def size(self, run_id: str) -> int | None:
        """The disk usage of the run in bytes; None if it has no folder."""
        folder = self._root / run_id
        return _disk_usage(folder) if folder.is_dir() else None

    def never_started(self, before: float) -> list[str]:
        """Ids of runs that have files but never started a turn, and were last modified before this time."""
        with suppress(FileNotFoundError):
            folders = [folder for folder in self._root.iterdir() if not (folder / "turns").exists()]
            return [folder.name for folder in folders if folder.lstat().st_mtime < before]
        return []

    def remove_stored(self, run_id: str) -> None:
        """Remove the stored files of a run. Raises `Unavailable` if the store cannot be used."""
        if (stored := self._stored(run_id)) is not None:
            stored.remove()

    def withdraw(self, run_id: str) -> None:
        """Remove the files of a run that does not exist after all."""
        self.remove(run_id)
        self.withdraw_stored(run_id)

    def withdraw_stored(self, run_id: str) -> None:
        try:
            self.remove_stored(run_id)
        except Unavailable as error:
            log.warning("stored files that no run needs remain: %s", error.message, extra={"run": run_id})

    def remove(self, run_id: str) -> None:
        """Remove all files of a run on this machine, even from folders that its engine made read-only.

        The turns go first: while they exist, everything else is complete, and may be copied for another run.
        """
        with suppress(FileNotFoundError, NotADirectoryError):
            beneath.remove(self._root / run_id, "turns")
        remove_tree(self._root / run_id)

    def note_sign_in(self, run_id: str) -> None:
        """The sign-in in the run's home stays there while the run waits, until `forget_sign_in`."""
        self._kept.mkdir(exist_ok=True, mode=0o700)
        (self._kept / run_id).touch()
        sync_folder(self._kept)

    def forget_sign_in(self, run_id: str) -> None:
        (self._kept / run_id).unlink(missing_ok=True)

    def remove_kept_sign_ins(self) -> None:
        """Remove the sign-ins of kept processes that have ended with their program."""
        with suppress(FileNotFoundError):
            for note in list(self._kept.iterdir()):
                workspace = self.of(note.name)
                lock = FileLock.take(workspace.lock_path) if workspace.root.is_dir() else None
                if workspace.root.is_dir() and lock is None:
                    # A process is alive, and its program removes the sign-in.
                    continue
                try:
                    workspace.remove_sign_ins()
                    note.unlink(missing_ok=True)
                finally:
                    if lock is not None:
                        lock.release()

    def mark_for_deletion(self, run_id: str) -> None:
        self._marks.mkdir(exist_ok=True, mode=0o700)
        (self._marks / run_id).touch()
        sync_folder(self._marks)

    def marked_for_deletion(self) -> list[str]:
        """Runs whose deletion began and has not ended."""
        with suppress(FileNotFoundError):
            return [mark.name for mark in self._marks.iterdir()]
        return []

    def unmark(self, run_ids: Sequence[str]) -> None:
        for run_id in run_ids:
            (self._marks / run_id).unlink(missing_ok=True)


def _disk_usage(folder: Path) -> int:
    """Without recursion: an engine can nest folders deeper than Python's stack."""
    used, pending = 0, [str(folder)]
    while pending:
        with suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    else:
                        used += entry.stat(follow_symlinks=False).st_blocks * 512
    return used
