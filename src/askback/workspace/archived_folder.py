"""What of a run's folder is kept between its turns as one archive, and the note in the folder that names the archive.

The note says: this folder is exactly what that archive has. It is removed before a turn changes anything. It counts only
until the machine restarts, so nothing has to be synced for it: after a power failure the archive is used.

Not packed: sign-ins, of which every turn gets a new copy; caches; temporary files; the raw output of turns; the package
that was uploaded for the run, which is stored by itself; the snapshot of the current turn, which the next turn replaces.
The key to secret variables (`env.pad`) is never with the files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from askback.background.pools import Checkpoint, unchecked
from askback.fs import beneath
from askback.fs.archive_reader import unpack
from askback.fs.archive_writer import pack
from askback.fs.atomic import write_beside
from askback.process.tree import boot_id
from askback.workspace.layout import Workspace
from askback.workspace.snapshot.points import Points

FOLDERS = ("work", "home", "versions", "workdir", "snapshots")
"""The folders of a run that an archive replaces."""
_NOTE = "kept"
_PARTIAL = "kept.partial"
_UNPACKED = "unpacked"
_MAX_NOTE = 1_000


class KeptFolder:
    """The folder of one run. Only one program uses it at a time: the one that holds the run's lock."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._root = workspace.root

    @property
    def archive(self) -> Path:
        """Where an archive is written before it is stored, and after it was fetched."""
        return self._root / _PARTIAL

    def noted(self) -> str | None:
        """The key of the archive that the folder equals, if that is known."""
        with suppress(OSError, UnicodeDecodeError):
            with open(self._root / _NOTE, "rb") as file:
                boot, _, key = file.read(_MAX_NOTE).decode().partition(" ")
            return key if boot == boot_id() else None
        return None

    def note(self, key: str) -> None:
        write_beside(self._root / _NOTE, f"{boot_id()} {key}".encode()).replace(self._root / _NOTE)

    def forget(self) -> None:
        """From now on, the folder may change."""
        (self._root / _NOTE).unlink(missing_ok=True)

    def pack(self, caches: Sequence[str], *, over: bool, checkpoint: Checkpoint = unchecked) -> None:
        """Write the archive. `over`: without what only a further turn needs."""
        leave_out = {f"{self._workspace.home.name}/{name}" for name in (*self._workspace.sign_ins, *caches)}
        if over:
            leave_out.add(self._workspace.comparison.relative_to(self._root).as_posix())
        self.discard()
        with open(self.archive, "xb", opener=_private) as file:
            pack(self._root, [*self._names()], file, leave_out=leave_out, checkpoint=checkpoint)

    def _names(self) -> Iterator[str]:
        yield from (name for name in FOLDERS if name != "snapshots")
        snapshots = self._workspace.snapshots
        points = Points(snapshots)
        if points.kept(snapshots):
            yield "snapshots/points"
            yield from (f"snapshots/files/{number}" for number in sorted(points.numbers()))

    def discard(self) -> None:
        """Remove an archive that was stored, or left by a killed program."""
        self.archive.unlink(missing_ok=True)

    def restore(self, key: str, checkpoint: Checkpoint = unchecked) -> None:
        """Replace the folder by the content of the archive. If this is interrupted, it is repeated."""
        self.forget()
        fresh = self._root / _UNPACKED
        beneath.remove(self._root, _UNPACKED)
        fresh.mkdir(mode=0o700)
        with self.archive.open("rb") as file:
            unpack(file, fresh, names=FOLDERS, checkpoint=checkpoint)
        for name in FOLDERS:
            if os.path.lexists(fresh / name):
                beneath.move_in(fresh / name, self._root, name)
            else:
                beneath.remove(self._root, name)
        fresh.rmdir()
        # The folder of a run that has started has it.
        beneath.make_folder(self._root, self._workspace.turns.name)
        self._workspace.mark_stored()
        self.discard()
        self.note(key)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
