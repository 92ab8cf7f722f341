"""Folders of runs that do not exist yet: each has a prewarmed process, and is taken over by the run that gets its id.

Beside the runs there is a note for each of them, with the name of its program, from before the folder is created until its
run has taken it over. So what a killed program leaves is found. Whether it is the folder of a run, the store knows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path

from askback.core.runs import is_run_id
from askback.fs.atomic import sync_folder
from askback.process.locks import FileLock, is_held
from askback.workspace.layout import Workspace
from askback.workspace.workspaces import Workspaces


class FreshFolders:
    """`program` returns the name of this program."""

    def __init__(self, workspaces: Workspaces, notes: Path, *, program: Callable[[], str]) -> None:
        self._workspaces = workspaces
        self._notes = notes
        self._program = program

    def create(self, run_id: str, home_template: Path | None) -> tuple[Workspace, FileLock]:
        """A folder with what an engine needs to start, and the lock that its processes hold. No turn has started in it."""
        self._notes.mkdir(exist_ok=True, mode=0o700)
        (self._notes / run_id).write_text(self._program())
        sync_folder(self._notes)
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
        (self._notes / run_id).unlink(missing_ok=True)

    def remove(self, run_id: str) -> None:
        """Remove a folder that no run has taken over."""
        if self._workspaces.of(run_id).root.exists():
            self._workspaces.remove(run_id)
        self.hand_over(run_id)

    def noted(self) -> Mapping[str, str]:
        """The name of the program of each of them, by run id. An empty note is being written, before there is a folder."""
        found = {}
        with suppress(FileNotFoundError):
            for note in self._notes.iterdir():
                with suppress(FileNotFoundError):
                    found[note.name] = note.read_text()
        return {run_id: program for run_id, program in found.items() if program and is_run_id(run_id)}

    def unused(self, run_ids: Collection[str]) -> list[str]:
        """Those of these in which no process is alive."""
        return [run_id for run_id in run_ids if not is_held(self._workspaces.of(run_id).lock_path)]
