"""The workspaces of all runs on this machine: their sizes, their removal, and notes of what has to be removed.

`FreshFolders` has those of runs that do not exist yet: each has a prewarmed process, and is taken over by the run that gets its
id. Beside the runs there is a note for each of them, with the name of its program, from before the folder is created until its
run has taken it over. So what a killed program leaves is found. Whether it is the folder of a run, the store knows.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Unpack

from askback.blobs.base import Files
from askback.core.errors import Unavailable
from askback.core.runs import is_run_id, parse_run_id
from askback.fs import beneath
from askback.fs.atomic import GroupSync, sync_folder
from askback.fs.beneath import remove_tree
from askback.fs.walk import TreeTooLarge, open_tree
from askback.process.locks import FileLock, is_held
from askback.workspace.layout import Rules, Workspace
from askback.workspace.run_objects import RunObjects

log = logging.getLogger(__name__)

_MAX_LATEST = 256


class RunNotes:
    """A small file for each of some runs, in a folder for such files. It survives a power failure."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, run_id: str, text: str = "") -> None:
        note = _below(self._folder, run_id)
        self._folder.mkdir(exist_ok=True, mode=0o700)
        note.write_text(text)
        sync_folder(self._folder)

    def remove(self, run_id: str) -> None:
        _below(self._folder, run_id).unlink(missing_ok=True)

    def run_ids(self) -> list[str]:
        with suppress(FileNotFoundError):
            return sorted(note.name for note in _of_runs(self._folder))
        return []

    def texts(self) -> dict[str, str]:
        found = {}
        for run_id in self.run_ids():
            with suppress(FileNotFoundError):
                found[run_id] = (self._folder / run_id).read_text()
        return found


class Workspaces:
    """The workspaces of all runs on this machine."""

    def __init__(
        self, root: Path, *, notes: Path | None = None, files: Files | None = None, **rules: Unpack[Rules]
    ) -> None:
        """`notes` is the data folder; None: the one that has `root`.

        `files`: where the files of runs are stored for every machine; None if this is the only one.
        """
        notes = notes or root.parent
        self._root = root
        self._disk = GroupSync(root)
        self._files = files
        self._rules = rules
        self._deletions = RunNotes(notes / "deleting")
        """Runs whose deletion began and has not ended."""
        self._latest: dict[str, Workspace] = {}
        """Some of those that were used: a turn needs its own several times."""
        self._sign_ins_left = RunNotes(notes / "sign-ins")
        """Runs whose process may stay while they wait, with a sign-in in their home."""

    def of(self, run_id: str) -> Workspace:
        known = self._latest.get(run_id)
        if known is None:
            if len(self._latest) >= _MAX_LATEST:
                self._latest.clear()
            root, objects = _below(self._root, run_id), self._objects(run_id)
            known = self._latest[run_id] = Workspace(root, objects, **self._rules)
        return known

    def sync(self, run_id: str) -> None:
        """Make the files of a run survive a power failure, before the row that refers to them is written. Blocks."""
        folder = _below(self._root, run_id)
        if folder.is_dir():
            self._disk.sync(folder)

    def _objects(self, run_id: str) -> RunObjects | None:
        return None if self._files is None else RunObjects(self._files, run_id)

    def run_ids(self) -> list[str]:
        """The runs that have a folder on this machine."""
        with suppress(FileNotFoundError):
            return sorted(folder.name for folder in _of_runs(self._root))
        return []

    def sizes(self) -> dict[str, int]:
        """The disk usage of each run in bytes, by run id."""
        with suppress(FileNotFoundError):
            return {folder.name: _disk_usage(folder) for folder in _of_runs(self._root)}
        return {}

    def size(self, run_id: str) -> int | None:
        """The disk usage of the run in bytes; None if it has no folder."""
        folder = _below(self._root, run_id)
        return _disk_usage(folder) if folder.is_dir() else None

    def never_started(self, before: float) -> list[str]:
        """Ids of runs that have files but never started a turn, and were last modified before this time."""
        with suppress(FileNotFoundError):
            folders = [folder for folder in _of_runs(self._root) if not os.path.lexists(folder / "turns")]
            return [folder.name for folder in folders if folder.lstat().st_mtime < before]
        return []

    def remove_stored(self, run_id: str) -> None:
        """Remove the stored files of a run. Raises `Unavailable` if the store cannot be used."""
        if (objects := self._objects(run_id)) is not None:
            objects.remove()

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
        folder = _below(self._root, run_id)
        with suppress(FileNotFoundError, NotADirectoryError):
            beneath.remove(folder, "turns")
        remove_tree(folder)

    def record_sign_in(self, run_id: str) -> None:
        """The sign-in in the run's home stays there while the run waits, until `forget_sign_in`."""
        self._sign_ins_left.add(run_id)

    def forget_sign_in(self, run_id: str) -> None:
        self._sign_ins_left.remove(run_id)

    def remove_left_sign_ins(self) -> None:
        """Remove the sign-ins of processes that have ended with their program."""
        for run_id in self._sign_ins_left.run_ids():
            workspace = self.of(run_id)
            lock = FileLock.take(workspace.lock_path) if workspace.root.is_dir() else None
            if workspace.root.is_dir() and lock is None:
                # A process is alive, and its program removes the sign-in.
                continue
            try:
                workspace.remove_sign_ins()
                self._sign_ins_left.remove(run_id)
            finally:
                if lock is not None:
                    lock.release()

    def mark_for_deletion(self, run_id: str) -> None:
        self._deletions.add(run_id)

    def marked_for_deletion(self) -> list[str]:
        """Runs whose deletion began and has not ended."""
        return self._deletions.run_ids()

    def unmark(self, run_ids: Sequence[str]) -> None:
        for run_id in run_ids:
            self._deletions.remove(run_id)


def _below(folder: Path, run_id: str) -> Path:
    """Where the folder has what belongs to a run. Raises `NotFound` for a text that is no run id, such as a path."""
    return folder / parse_run_id(run_id)


def _of_runs(folder: Path) -> list[Path]:
    """The entries that belong to runs. Others are left alone."""
    return [entry for entry in folder.iterdir() if is_run_id(entry.name)]


def _disk_usage(folder: Path) -> int:
    """Of a folder with more names than are listed: of the first ones."""
    used = 0
    with suppress(OSError), open_tree(folder) as tree:
        for each in tree.walk(failed=lambda path, error: None):
            try:
                for name, status in each.entries():
                    if stat.S_ISDIR(status.st_mode):
                        each.descend(name, status)
                    else:
                        used += status.st_blocks * 512
            except TreeTooLarge:
                break
            except OSError:
                continue
    return used


class FreshFolders:
    """`program` returns the name of this program."""

    def __init__(self, workspaces: Workspaces, notes: Path, *, program: Callable[[], str]) -> None:
        self._workspaces = workspaces
        self._notes = RunNotes(notes)
        self._program = program

    def create(self, run_id: str, home_template: Path | None) -> tuple[Workspace, FileLock]:
        """A folder with what an engine needs to start, and the lock that its processes hold. No turn has started in it."""
        self._notes.add(run_id, self._program())
        workspace = self._workspaces.of(run_id)
        workspace.root.mkdir(parents=True, mode=0o700)
        lock = FileLock.take(workspace.lock_path)
        assert lock is not None, "the id is new"
        for folder in (workspace.cwd, workspace.artifacts_path, workspace.tmp):
            folder.mkdir(mode=0o700)
        workspace.begin_first_turn(home_template)
        return workspace, lock

    def hand_over(self, run_id: str) -> None:
        """From now on, the folder is like that of any other run."""
        self._notes.remove(run_id)

    def remove(self, run_id: str) -> None:
        """Remove a folder that no run has taken over."""
        if self._workspaces.of(run_id).root.exists():
            self._workspaces.remove(run_id)
        self.hand_over(run_id)

    def noted(self) -> Mapping[str, str]:
        """The name of the program of each of them, by run id. An empty note is being written, before there is a folder."""
        return {run_id: program for run_id, program in self._notes.texts().items() if program}

    def unused(self, run_ids: Collection[str]) -> list[str]:
        """Those of these in which no process is alive."""
        return [run_id for run_id in run_ids if not is_held(self._workspaces.of(run_id).lock_path)]
