"""The files of runs between their turns, in the store of `files`: a run continues wherever its next turn starts.

runs/ID/kept/EPOCH-TURN.tar.zst   home and workspace as that turn left them; the run names the one that counts
runs/ID/env.pad                   the key to the run's secret variables, until the run is over

An archive is stored before the end of its turn is. If that end is refused, or never stored, nobody refers to the archive,
and `sweep` removes it.

A note in the run's folder says: this folder is exactly what that archive has. It is removed before a turn changes anything. It
counts only until the machine restarts, so nothing has to be synced for it: after a power failure the archive is used.

Not packed: sign-ins, of which every turn gets a new copy; caches; temporary files; the raw output of turns; the package
that was uploaded for the run, which is stored by itself; the snapshot of the current turn, which the next turn replaces.
The key to secret variables (`env.pad`) is never with the files.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from askback.background.outages import OUTAGES
from askback.background.pools import Checkpoint, Pools, unchecked
from askback.blobs.base import FileMissing, Files, StoredFile
from askback.core.errors import FULL_DISK, NotFound, Unavailable, disk_full
from askback.core.runs import Run
from askback.fs import beneath
from askback.fs.archive_reader import ArchiveDamaged, unpack
from askback.fs.archive_writer import ArchiveRefused, TreeChangedWhilePacking, pack
from askback.fs.atomic import write_beside
from askback.process.locks import FileLock
from askback.process.tree import boot_id
from askback.workspace.layout import Workspace
from askback.workspace.manifests import ForkPoints
from askback.workspace.workspaces import Workspaces

log = logging.getLogger(__name__)

FOLDERS = ("work", "home", "versions", "workdir", "snapshots")
"""The folders of a run that an archive replaces."""
_NOTE = "kept"
_PARTIAL = "kept.partial"
_UNPACKED = "unpacked"
_MAX_NOTE = 1_000
_PAUSES_SEC = (0.02, 0.05, 0.1, 0.2, 0.4)
"""Some engines still tidy up for a moment after their turn."""
_MAX_PAD = 10_000_000
_UNUSED = timedelta(days=1)
"""A file of a run that does not exist belongs to one that is being submitted, or to nobody after this time."""


class ArchiveMissing(Exception):
    """The archive that a run names is gone, or damaged. The message is for people."""


_ONLY_HERE = ".not-stored"


def is_only_on_one_machine(key: str) -> bool:
    """Whether the key names files that could not be packed, and are only on the machine of their turn."""
    return key.endswith(_ONLY_HERE)


class NotArchived(Exception):
    """The run's files cannot be packed; `key` names what is only on this machine. The message is for people."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(
            f"the run's files are only on the machine of this turn, and its session can only be resumed there: {why}"
        )
        self.key = key


class ArchivedFolder:
    """The folder of one run. Only one program uses it at a time: the one that holds the run's lock."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._root = workspace.root

    @property
    def archive(self) -> Path:
        """Where an archive is written before it is stored, and after it was fetched."""
        return self._root / _PARTIAL

    def key(self) -> str | None:
        """The key of the archive that the folder equals, if that is known."""
        with suppress(OSError, UnicodeDecodeError):
            with open(self._root / _NOTE, "rb") as file:
                boot, _, key = file.read(_MAX_NOTE).decode().partition(" ")
            return key if boot == boot_id() else None
        return None

    def record(self, key: str) -> None:
        """From now on, the folder equals this archive."""
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
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(self.archive, flags, 0o600), "wb") as file:
            pack(self._root, [*self._names()], file, leave_out=leave_out, checkpoint=checkpoint)

    def _names(self) -> Iterator[str]:
        yield from (name for name in FOLDERS if name != "snapshots")
        points = ForkPoints(self._workspace.snapshots)
        if points.turns(self._workspace.snapshots):
            yield "snapshots/points"
            yield from (f"snapshots/files/{number}" for number in sorted(points.numbers()))

    def discard(self) -> None:
        """Remove an archive that was stored, or left by a killed program."""
        self.archive.unlink(missing_ok=True)

    def unpack(self, key: str, checkpoint: Checkpoint = unchecked) -> None:
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
        self._workspace.record_database()
        self.discard()
        self.record(key)


class RunArchives:
    def __init__(self, files: Files, workspaces: Workspaces, pools: Pools) -> None:
        self._files = files
        self._workspaces = workspaces
        self._pool = pools.turns
        self._storing = pools.storing
        """For calls of the file store and for packing, which may take long."""

    # A turn.

    async def restore(self, run: Run) -> None:
        """Make the run's folder what its last turn left, before a turn starts in it. The caller holds the run's lock.

        Raises `ArchiveMissing`, and `Unavailable` if the file store cannot be used.
        """
        folder = self._folder(run.id)
        if run.kept is not None and await self._pool.run(folder.key) != run.kept:
            await self._restore(run, run.kept, folder)
        if run.env_names:
            # Here, where a store that cannot be used only delays the turn.
            await self.pad(run)
        await self._pool.run(folder.forget)

    async def continue_live(self, run: Run) -> None:
        """A turn begins in a process that is alive: its folder is what it is."""
        await self._pool.run(self._folder(run.id).forget)

    async def save(self, run: Run, caches: Sequence[str], *, over: bool, alive: bool) -> str:
        """Store what the turn left, and return its key. `over`: no further turn follows. `alive`: the process stays.

        Raises `TreeChangedWhilePacking` if a process that is alive keeps writing, `NotArchived`, and `Unavailable`.
        """
        name, folder = f"{_archives(run.id)}{run.epoch}-{run.attempt_number}", self._folder(run.id)
        key = f"{name}.tar.zst"
        try:
            await self._pack(folder, caches, over=over)
            # Nobody else writes under this epoch: an upload that was cut off is repeated.
            await self._storing.run(lambda: self._files.put(key, folder.archive, replace=True))
        except (ArchiveRefused, TreeChangedWhilePacking) as refusal:
            if alive and isinstance(refusal, TreeChangedWhilePacking):
                raise
            key = f"{name}{_ONLY_HERE}"
            await self._pool.run(folder.record, key)
            raise NotArchived(key, str(refusal)) from None
        finally:
            await self._pool.run(folder.discard, admitted=True)
        await self._pool.run(folder.record, key)
        return key

    async def _pack(self, folder: ArchivedFolder, caches: Sequence[str], *, over: bool) -> None:
        for pause in (*_PAUSES_SEC, None):
            try:
                await self._storing.run_abandonable(
                    lambda checkpoint: folder.pack(caches, over=over, checkpoint=checkpoint)
                )
            except TreeChangedWhilePacking:
                if pause is None:
                    raise
                await asyncio.sleep(pause)
            except OSError as error:
                if error.errno in FULL_DISK:
                    raise disk_full() from error
                raise ArchiveRefused(str(error)) from error
            else:
                return

    async def delete(self, key: str | None, run: Run) -> None:
        """Delete archive `key` unless the run still names it."""
        if key is not None and key != run.kept:
            await self._delete([key])

    # Elsewhere.

    async def fetch(self, run: Run) -> bool:
        """Make the folder of a run in which nothing writes what its last turn left. False if a process uses it."""
        folder = self._folder(run.id)
        if run.kept is None or await self._pool.run(folder.key) == run.kept:
            return True
        lock = await self._pool.run(FileLock.take, self._workspaces.of(run.id).lock_path)
        if lock is None:
            return False
        try:
            await self._restore(run, run.kept, folder)
        finally:
            lock.release()
        return True

    async def _restore(self, run: Run, key: str, folder: ArchivedFolder) -> None:
        self._workspaces.of(run.id).root.mkdir(parents=True, exist_ok=True, mode=0o700)
        await self._pool.run(folder.discard)
        try:
            await self._storing.run(self._files.fetch, key, folder.archive)
            await self._storing.run_abandonable(lambda checkpoint: folder.unpack(key, checkpoint))
        except FileMissing:
            raise ArchiveMissing(f"{key} is not in the file store") from None
        except ArchiveDamaged as error:
            raise ArchiveMissing(f"{key}: {error}") from None
        except OSError as error:
            if error.errno in FULL_DISK:
                raise disk_full() from error
            raise
        finally:
            await self._pool.run(folder.discard, admitted=True)
        log.info("the files of a run were restored from %s", key, extra={"run": run.id})

    # The key to secret variables.

    async def save_pad(self, run_id: str) -> None:
        """Move the pad into the file store: from now on no folder of the run has it."""
        workspace = self._workspaces.of(run_id)
        pad = await self._pool.run(workspace.read_pad)
        if pad:
            await self._storing.run(self._files.put, _pad(run_id), pad)
            await self._pool.run(workspace.empty_pad)

    async def pad(self, run: Run) -> bytes | None:
        """The pad of a run with secret variables; None if it is in the run's folder, or nowhere."""
        workspace = self._workspaces.of(run.id)
        here = await self._pool.run(workspace.read_pad)
        if here or not run.env_names:
            return None
        try:
            pad = await self._storing.run(self._files.get, _pad(run.id), _MAX_PAD)
        except FileMissing:
            return None
        # Without its content: it says that the run has secrets.
        await self._pool.run(workspace.empty_pad)
        return pad

    async def delete_pad(self, run: Run) -> None:
        """The run is over: nobody can open its variables any more."""
        if run.env_names:
            await self._delete([_pad(run.id)])

    # All runs.

    async def sizes(self) -> dict[str, int]:
        """What each run takes in the file store, by run id."""
        return {run_id: sum(each.size for each in stored) for run_id, stored in (await self._stored()).items()}

    async def sweep(self, get: Callable[[str], Awaitable[Run]], now: datetime) -> None:
        """Remove what no run refers to. `get` reads a run."""
        for run_id, stored in (await self._stored()).items():
            try:
                run = await get(run_id)
            except NotFound:
                unused = [each.key for each in stored if each.stored_at < now - _UNUSED]
            else:
                unused = [each.key for each in stored if _is_unused(each, run, now)]
            if unused:
                await self._storing.run(self._files.delete, unused)

    async def _stored(self) -> dict[str, list[StoredFile]]:
        """The files of all runs, by run id."""
        found: dict[str, list[StoredFile]] = {}
        for each in await self._storing.run(self._files.list, "runs/"):
            found.setdefault(each.key.split("/")[1], []).append(each)
        return found

    async def _delete(self, keys: Sequence[str]) -> None:
        try:
            await self._storing.run(self._files.delete, keys)
        except Unavailable as error:
            OUTAGES.failed(log, "a file that is not needed is removed later", error)

    def _folder(self, run_id: str) -> ArchivedFolder:
        return ArchivedFolder(self._workspaces.of(run_id))


def _archives(run_id: str) -> str:
    return f"runs/{run_id}/kept/"


def _pad(run_id: str) -> str:
    return f"runs/{run_id}/env.pad"


def _is_unused(stored: StoredFile, run: Run, now: datetime) -> bool:
    """Whether no turn needs this file of the run. A turn that is being executed may be storing its archive.

    So may a program that has found a run without one.
    """
    key = stored.key
    if key == _pad(run.id):
        return run.state.final
    if not key.startswith(_archives(run.id)) or key == run.kept:
        return False
    with suppress(ValueError):
        epoch = int(key.removeprefix(_archives(run.id)).partition("-")[0])
        idle = run.worker is None and (run.kept is not None or stored.stored_at < now - _UNUSED)
        return epoch < run.epoch or idle
    return False
