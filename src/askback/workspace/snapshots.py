"""Saves the engine's home before a turn and restores it.

A turn that restarts must not find traces of its first try in the session, so it starts from the saved home.

<snapshots>/manifest.json   the contents of the home, and which copy belongs to which file
<snapshots>/files/<n>       the copies; they never change, and are removed once no manifest names them
<snapshots>/points/<t>.json the manifests before earlier turns, for forks
<snapshots>/clock           touched to read the clock of the file system

Only files that changed since the last snapshot are copied. Size, times and inode decide; if the times are too coarse, a
file counts as changed.

A home may have what `HOME` allows: each function raises `TreeTooLarge` for one that has more. A `checkpoint` that raises ends
it early; the snapshot is then the one before.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypedDict, Unpack

from askback.background.pools import Checkpoint, unchecked
from askback.core.errors import FULL_DISK, RefusalCode, Unavailable
from askback.fs import beneath
from askback.fs.copies import Cloner
from askback.fs.walk import (
    READABLE,
    WRITABLE,
    FileState,
    Listing,
    Tree,
    TreeBounds,
    closing,
    list_tree,
    open_tree,
    read_link,
)
from askback.workspace.manifests import (
    MANIFEST,
    ForkPoints,
    Manifest,
    SavedFile,
    SavedFolder,
    SavedLink,
    SnapshotDamaged,
    read_manifest,
    sync,
)

HOME = TreeBounds(names=100_000, characters=10_000_000)
_NO_TURN = -1
"""In place of the number of a turn: no turn begins with this snapshot."""
_TICK_NS = 20_000_000
"""Longer than a tick of the kernel's clock for files."""
_COARSE_TICK_NS = 2_000_000_000
"""The same for file systems with a resolution of one or two seconds."""


class HomeLost(Exception):
    """There is no home to save: somebody has removed it, with the engine's session."""


class Saving(TypedDict, total=False):
    """How a home is saved."""

    max_bytes: int
    """Of the home; 0: any number."""
    checkpoint: Checkpoint
    leave_out: Collection[str]
    """Files that are not saved."""


def begin_turn(
    home: Path, snapshots: Path, attempt_number: int, fork_points: int = 0, **saving: Unpack[Saving]
) -> None:
    """Save the home before the first try of a turn; restore it before any later try of the same turn.

    `fork_points`: this turn becomes a fork point, and the newest so many stay. Nothing may write to the home in the
    meantime. If this is interrupted, it can be repeated. Raises `HomeLost` if there is no home to save.
    """
    with _open_snapshot(home, snapshots, **saving) as snapshot:
        if snapshot.attempt_number == attempt_number:
            snapshot.restore()
            # `save_early` leaves more.
            if fork_points and len(ForkPoints.turns(snapshots)) > fork_points:
                snapshot.points.drop_beyond(fork_points)
        elif not home.is_symlink() and not home.is_dir():
            raise HomeLost(f"{home} is missing")
        else:
            snapshot.save(attempt_number, fork_points)


def save_early(
    home: Path, snapshots: Path, attempt_number: int, fork_points: int = 0, **saving: Unpack[Saving]
) -> None:
    """Save the home for a turn that has not begun, so that `begin_turn` finds it saved and copies nothing.

    Only once the end of the turn before it is stored: that turn cannot restart from this snapshot. Does nothing if a
    later turn has begun.
    """
    with _open_snapshot(home, snapshots, **saving) as snapshot:
        if snapshot.attempt_number < attempt_number:
            # The turn may never begin: no earlier point is dropped for it yet.
            snapshot.save(attempt_number, fork_points and fork_points + 1)


def begin_live_turn(
    home: Path, snapshots: Path, attempt_number: int, fork_points: int = 0, **saving: Unpack[Saving]
) -> None:
    """Save the home before a turn in a process that is alive and has nothing to do.

    Raises `HomeChangedWhileSaving` if it writes all the same; then nothing was saved.
    """
    with _open_snapshot(home, snapshots, **saving) as snapshot:
        snapshot.save(attempt_number, fork_points, live=True)


def save_between_turns(home: Path, snapshots: Path, **saving: Unpack[Saving]) -> None:
    """Copy what the last turn has changed, so that the next one begins sooner. No turn restarts from this."""
    with _open_snapshot(home, snapshots, **saving) as snapshot:
        snapshot.save(_NO_TURN, 0)


def end(snapshots: Path) -> None:
    """No turn restarts from here on. Only fork points stay."""
    if snapshots.is_dir():
        (snapshots / MANIFEST).unlink(missing_ok=True)
        _sweep(snapshots / "files", ForkPoints(snapshots).numbers())


class HomeChangedWhileSaving(Exception):
    """The home changed while it was saved."""


class _Snapshot:
    def __init__(self, home: Path, folder: Path, saving: Saving) -> None:
        self._home = home
        self._bounds = replace(HOME, max_bytes=saving.get("max_bytes", 0))
        self._checkpoint = saving.get("checkpoint", unchecked)
        self._leave_out = saving.get("leave_out", ())
        self._folder = folder
        self._copies = folder / "files"
        self._saved = read_manifest(folder) or Manifest(attempt_number=_NO_TURN)
        self.attempt_number = self._saved.attempt_number
        self._cloner = Cloner(self._checkpoint)
        self._copies.mkdir(exist_ok=True, mode=0o700)
        self.points = ForkPoints(folder)

    def save(self, attempt_number: int, fork_points: int, *, live: bool = False) -> None:
        self._sweep(self._saved)
        horizon_ns = _horizon_ns(self._folder)
        with self._open_home(READABLE) as tree:
            try:
                listing = self._list(tree)
                fresh = Manifest(
                    attempt_number=attempt_number,
                    files=self._save_files(tree, listing, horizon_ns),
                    folders={
                        path: SavedFolder(stat.S_IMODE(status.st_mode), status.st_mtime_ns)
                        for path, status in listing.folders.items()
                    },
                    links=dict(_links(tree, listing)),
                )
                self._settle(tree, listing, fresh)
                if live:
                    self._check_unchanged(listing, self._list(tree))
                if fork_points:
                    # Before the manifest: once that is written, this turn is only restored, never saved again.
                    self.points.add(fresh, fork_points)
                fresh.write(self._folder)
            except BaseException:
                # The new copies are of no use, and the disk may be full. We do not know whether the new manifest is in
                # place and durable, so copies that either of the two names stay.
                self._sweep(self._saved, read_manifest(self._folder) or self._saved)
                raise
            finally:
                tree.lock_again()
        self._sweep(fresh)

    def _check_unchanged(self, before: Listing, after: Listing) -> None:
        """Engines create and remove temporary files between turns: one that is in one listing only is as it was at some moment."""
        earlier = _states(before)
        for path, state in _states(after).items():
            if earlier.get(path, state) != state:
                raise HomeChangedWhileSaving(f"the engine writes to {path} between turns")

    def _open_home(self, need: int) -> AbstractContextManager[Tree]:
        return open_tree(self._home.parent, self._home.name, need=need, bounds=self._bounds)

    def _list(self, tree: Tree) -> Listing:
        listing = list_tree(tree, self._checkpoint)
        for path in self._leave_out:
            listing.files.pop(path, None)
        return listing

    def restore(self) -> None:
        beneath.make_folder(self._home.parent, self._home.name)
        with self._open_home(WRITABLE) as tree:
            listing = list_tree(tree, self._checkpoint)
            self._remove_others(tree, listing)
            for path in self._saved.folders:
                if path not in listing.folders:
                    tree.make_folder(path)
            rewritten = self._restore_files(tree, listing)
            self._restore_links(tree, listing)
            self._restore_folders(tree)
        if rewritten:
            # With their new times, so that they are not copied again before the next turn.
            replace(self._saved, files=self._saved.files | rewritten).write(self._folder)

    def _save_files(self, tree: Tree, listing: Listing, horizon_ns: int) -> dict[str, SavedFile]:
        files: dict[str, SavedFile] = {}
        number = max(self._saved.numbers() | self.points.numbers(), default=0)
        for path, status in listing.files.items():
            self._checkpoint()
            known = self._saved.files.get(path)
            if known is not None and known.is_still(status):
                files[path] = known
                continue
            try:
                source = tree.open(path, status, unlock=True)
            except FileNotFoundError:
                # It was removed in the meantime.
                continue
            number += 1
            files[path] = self._save_file(source, number, horizon_ns)
        return files

    def _save_file(self, opened: int, number: int, horizon_ns: int) -> SavedFile:
        with closing(opened) as source, closing(self._new_copy(str(number))) as target:
            before = os.fstat(source)
            self._cloner.copy(source, target)
            status, size = os.fstat(source), os.fstat(target).st_size
        saved = _file(number, status, horizon_ns)
        steady = saved.size == size and status.st_ctime_ns == before.st_ctime_ns
        return saved if steady else saved._replace(size=size, ctime_ns=0)

    def _settle(self, tree: Tree, listing: Listing, made: Manifest) -> None:
        """Make durable what the manifest will say: the copies, and their originals.

        After a power failure, a file with unchanged times must have its content too. All files are synced at the end,
        because that is several times faster than one by one.
        """
        known = self._saved.numbers()
        fresh = {path: saved for path, saved in made.files.items() if saved.number not in known}
        for saved in fresh.values():
            self._checkpoint()
            sync(self._copies / str(saved.number))
        sync(self._copies)
        self._sync_files(tree, {path: listing.files[path] for path, saved in fresh.items() if saved.ctime_ns != 0})

    def _sync_files(self, tree: Tree, files: Mapping[str, os.stat_result]) -> None:
        for path, status in files.items():
            self._checkpoint()
            with suppress(FileNotFoundError), closing(tree.open(path, status)) as file:
                os.fsync(file)

    def _new_copy(self, name: str) -> int:
        return os.open(self._copies / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def _sweep(self, *needed: Manifest) -> None:
        _sweep(self._copies, self.points.numbers().union(*(each.numbers() for each in needed)))

    def _remove_others(self, tree: Tree, listing: Listing) -> None:
        """Remove what is not in the snapshot, or has another type there."""
        saved = self._saved
        files = (path for path in listing.files if path not in saved.files)
        links = (path for path in listing.links if path not in saved.links)
        for path in (*files, *links, *listing.specials):
            above, name = tree.at(path)
            os.unlink(name, dir_fd=above)
        for path in reversed(listing.folders):
            if path not in saved.folders:
                above, name = tree.at(path)
                os.rmdir(name, dir_fd=above)

    def _restore_files(self, tree: Tree, listing: Listing) -> dict[str, SavedFile]:
        """Restore changed files. Returns them with their new times, durable, so that the times can be trusted."""
        changed = {
            path: saved
            for path, saved in self._saved.files.items()
            if path not in listing.files or not saved.is_still(listing.files[path])
        }
        if not changed:
            return {}
        self._sweep(self._saved)
        restored = {path: self._restore_file(tree, path, saved) for path, saved in changed.items()}
        self._sync_files(tree, {path: status for path, status in restored.items() if status.st_mode & stat.S_IRUSR})
        horizon_ns = _horizon_ns(self._folder)
        return {path: _file(self._saved.files[path].number, tree.stat(path), horizon_ns) for path in restored}

    def _restore_file(self, tree: Tree, path: str, saved: SavedFile) -> os.stat_result:
        """Replace the file by a new one: the engine may have hard links to the old one elsewhere."""
        self._checkpoint()
        fresh = self._copies / "restored"
        with closing(self._open_copy(saved)) as source, closing(self._new_copy(fresh.name)) as target:
            self._cloner.copy(source, target)
            os.fchmod(target, saved.mode)
            os.utime(target, ns=(saved.mtime_ns, saved.mtime_ns))
            above, name = tree.at(path)
            os.replace(fresh, name, dst_dir_fd=above)
            return os.fstat(target)

    def _open_copy(self, saved: SavedFile) -> int:
        path = self._copies / str(saved.number)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise SnapshotDamaged(f"{path} is missing; cancel the run and start a new one") from error
        if os.fstat(fd).st_size != saved.size:
            os.close(fd)
            raise SnapshotDamaged(f"{path} has another size than before; cancel the run and start a new one")
        return fd

    def _restore_links(self, tree: Tree, listing: Listing) -> None:
        for path, saved in self._saved.links.items():
            above, name = tree.at(path)
            if path in listing.links:
                if read_link(above, name) == saved.target:
                    continue
                os.unlink(name, dir_fd=above)
            os.symlink(saved.target, name, dir_fd=above)
            os.utime(name, ns=(saved.mtime_ns, saved.mtime_ns), dir_fd=above, follow_symlinks=False)

    def _restore_folders(self, tree: Tree) -> None:
        """Restore modes and times, deepest folders first: a change in a folder changes its time."""
        for path, saved in reversed(self._saved.folders.items()):
            folder = tree.folder(path)
            status = os.fstat(folder)
            if status.st_mtime_ns != saved.mtime_ns:
                os.utime(folder, ns=(saved.mtime_ns, saved.mtime_ns))
            if stat.S_IMODE(status.st_mode) != saved.mode:
                os.fchmod(folder, saved.mode)


def _sweep(copies: Path, needed: set[int]) -> None:
    names = {str(number) for number in needed}
    for copy in copies.iterdir():
        if copy.name not in names:
            copy.unlink()


def _states(listing: Listing) -> dict[str, tuple[int, ...]]:
    """What tells that an entry was written or replaced. The times of a folder change with each entry."""
    others = listing.folders | listing.links | listing.specials
    states: dict[str, tuple[int, ...]] = {path: FileState.of(each) for path, each in listing.files.items()}
    return states | {path: (each.st_ino, stat.S_IFMT(each.st_mode)) for path, each in others.items()}


def _file(number: int, status: os.stat_result, horizon_ns: int) -> SavedFile:
    # A file that we cannot read cannot be made durable either, so it counts as changed.
    reliable = status.st_ctime_ns < horizon_ns and status.st_mode & stat.S_IRUSR
    return SavedFile(
        number=number,
        mode=stat.S_IMODE(status.st_mode),
        size=status.st_size,
        mtime_ns=status.st_mtime_ns,
        ctime_ns=status.st_ctime_ns if reliable else 0,
        inode=status.st_ino,
    )


def _links(tree: Tree, listing: Listing) -> Iterator[tuple[str, SavedLink]]:
    for path, status in listing.links.items():
        with suppress(FileNotFoundError):
            yield path, SavedLink(target=read_link(*tree.at(path)), mtime_ns=status.st_mtime_ns)


def _horizon_ns(folder: Path) -> int:
    """A file that last changed before this moment gets a new time when it changes again.

    By the clock of the file system, which may be on another machine.
    """
    with closing(os.open(folder / "clock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)) as fd:
        os.utime(fd)
        now_ns = os.fstat(fd).st_ctime_ns
    return now_ns - (_TICK_NS if now_ns % 1_000_000 else _COARSE_TICK_NS)


@contextmanager
def _open_snapshot(home: Path, folder: Path, **saving: Unpack[Saving]) -> Iterator[_Snapshot]:
    """The last snapshot. The block saves the home, or restores it."""
    try:
        yield _Snapshot(home, folder, saving)
    except OSError as error:
        if error.errno not in FULL_DISK:
            raise
        message = f"the disk of {folder} is full; the last snapshot is safe: free some space and try again"
        raise Unavailable(RefusalCode.DISK_FULL, message) from error
