"""What a run keeps of the user's folder that it works in: copies of its artifacts, and a summary of its changes.

<run>/workdir/found.json     the files that `artifacts/` had before the run
<run>/workdir/git.json       the git repositories that the folder had before the run
<run>/workdir/changes.json   what has changed in the folder since then, without `artifacts/`
<run>/workdir/git/           a separate git folder, while the run is not over; see `workdir_changes.py`
<run>/work/artifacts/        copies of the files that the run left in `artifacts/`

The copies stay as they are when the user, or a later run, changes the folder. They are deleted with the run, and the
folder is not. An engine without a sandbox can change these records, so nothing that is read here is trusted.
"""

from __future__ import annotations

import itertools
import os
import stat
from pathlib import Path
from typing import TypeVar

import msgspec

from askback.background.pools import Checkpoint, unchecked
from askback.core.changes import Changes
from askback.fs import beneath
from askback.fs.atomic import write_private
from askback.fs.copies import CopyLimits, CopyRefused, TreeCopy
from askback.process.sandbox.repositories import identities
from askback.workspace.artifacts import open_below
from askback.workspace.layout import ARTIFACTS_DIR, MAX_LISTED, Artifact, Workspace, artifacts_in

_FOLDER = "workdir"
_FOUND = f"{_FOLDER}/found.json"
_REPOSITORIES = f"{_FOLDER}/git.json"
_CHANGES = f"{_FOLDER}/changes.json"
_MAX_BYTES = 50_000_000


T = TypeVar("T")
_Found = dict[str, tuple[int, int]]
_Repositories = dict[str, tuple[int, int]]


class WorkdirRecord:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    # The artifacts.

    def note_found(self, workdir: Path, checkpoint: Checkpoint = unchecked) -> None:
        """Note the files that are in `artifacts/` before the run, once: they are not the run's."""
        if self._read(_FOUND, _Found) is None:
            found = itertools.islice(artifacts_in(workdir, checkpoint), MAX_LISTED)
            self._write(_FOUND, {each.path: (each.size, each.modified_ns) for each in found})

    def collect(self, workdir: Path, limits: CopyLimits, checkpoint: Checkpoint = unchecked) -> None:
        """Copy what the run left in `artifacts/`, and remove the copies of files that it removed.

        Raises `CopyRefused` if there is too much.
        """
        found = self._read(_FOUND, _Found) or {}
        copying = TreeCopy(self._workspace.root, limits, checkpoint)
        kept: set[str] = set()
        for artifact in itertools.islice(artifacts_in(workdir, checkpoint), MAX_LISTED):
            checkpoint()
            if found.get(artifact.path) != (artifact.size, artifact.modified_ns):
                kept.add(artifact.path)
                self._copy(workdir, artifact, copying)
        for copy in list(self._workspace.artifacts(checkpoint)):
            if copy.path not in kept:
                beneath.remove(self._workspace.root, self._copy_of(copy.path))
        copying.sync()

    def _copy(self, workdir: Path, artifact: Artifact, copying: TreeCopy) -> None:
        if self._is_copied(artifact):
            return
        try:
            file = open_below(workdir, f"{ARTIFACTS_DIR}/{artifact.path}")
        except PermissionError:
            raise CopyRefused(f"{ARTIFACTS_DIR}/{artifact.path} cannot be read") from None
        if file is None:
            return
        with file:
            status = os.fstat(file.fileno())
            mode = stat.S_IMODE(status.st_mode) & 0o777
            copying.copy_open_file(file.fileno(), self._copy_of(artifact.path), mode, status.st_mtime_ns)

    def _is_copied(self, artifact: Artifact) -> bool:
        status = beneath.status_of(self._workspace.root, self._copy_of(artifact.path))
        if status is None or not stat.S_ISREG(status.st_mode):
            return False
        return (status.st_size, status.st_mtime_ns) == (artifact.size, artifact.modified_ns)

    def _copy_of(self, path: str) -> str:
        return f"{self._workspace.artifacts_path.relative_to(self._workspace.root).as_posix()}/{path}"

    # The repositories.

    def note_repositories(self, workdir: Path, checkpoint: Checkpoint = unchecked) -> None:
        """Note the git repositories that are there before the run, once. Raises `TooManyFolders`."""
        if self._read(_REPOSITORIES, _Repositories) is None:
            self._write(_REPOSITORIES, identities(workdir, checkpoint))

    def new_repositories(self, workdir: Path, checkpoint: Checkpoint = unchecked) -> list[str]:
        """Those that have appeared since, or were replaced. Raises `TooManyFolders`."""
        before = self._read(_REPOSITORIES, _Repositories)
        if before is None:
            return []
        return [name for name, identity in identities(workdir, checkpoint).items() if before.get(name) != identity]

    # The changes.

    def changes(self) -> Changes | None:
        """The last summary; None if there is none yet."""
        return self._read(_CHANGES, Changes)

    def write_changes(self, changes: Changes) -> None:
        self._write(_CHANGES, changes)

    # Files.

    def _read(self, name: str, kind: type[T]) -> T | None:
        file = open_below(self._workspace.root, name)
        if file is None:
            return None
        with file:
            content = file.read(_MAX_BYTES + 1)
        try:
            return msgspec.json.decode(content, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def _write(self, name: str, value: object) -> None:
        beneath.make_folder(self._workspace.root, _FOLDER)
        write_private(self._workspace.root / name, msgspec.json.encode(value))
