"""Folders of runs that do not exist yet: each has a prewarmed process, and is taken over by the run that gets its id.

A note for each of them, beside the runs, tells whose it is: with a note the prewarmer's, without one the run's. So what a
killed program leaves is found, and the folder of a run is never taken for it.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from askback.files.atomic import sync_folder
from askback.process.locks import FileLock, is_held
from askback.process.workspace import Workspace, Workspaces


class FreshFolders:
    def __init__(self, workspaces: Workspaces, notes: Path) -> None:
        self._workspaces = workspaces
        self._notes = notes

    def create(self, run_id: str, home_template: Path | None) -> tuple[Workspace, FileLock]:
        """A folder with what an engine needs to start, and the lock that its processes hold. No turn has started in it."""
        workspace = self._workspaces.of(run_id)
        workspace.root.mkdir(parents=True, mode=0o700)
        lock = FileLock.take(workspace.lock_path)
        assert lock is not None, "the id is new"
        self.take_back(run_id)
        for folder in (workspace.cwd, workspace.artifacts_path, workspace.tmp):
            folder.mkdir(mode=0o700)
        workspace.begin_first_turn(home_template)
        return workspace, lock

    def hand_over(self, run_id: str) -> None:
        """From now on, the folder belongs to a run."""
        (self._notes / run_id).unlink(missing_ok=True)

    def take_back(self, run_id: str) -> None:
        """The folder belongs to no run."""
        self._notes.mkdir(exist_ok=True, mode=0o700)
        (self._notes / run_id).touch()
        sync_folder(self._notes)

    def remove(self, run_id: str) -> None:
        """Remove a folder that no run has taken over, unless one has in the meantime."""
        if (self._notes / run_id).exists():
            self._workspaces.remove(run_id)
            self.hand_over(run_id)

    def left_behind(self) -> list[str]:
        """Those of programs that were killed, once nothing of their processes is alive."""
        with suppress(FileNotFoundError):
            noted = [note.name for note in self._notes.iterdir()]
            return [run_id for run_id in noted if not is_held(self._workspaces.of(run_id).lock_path)]
        return []
