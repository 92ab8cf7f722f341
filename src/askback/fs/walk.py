"""Walks trees that an engine can write to, even while it is alive and swaps folders for links or for each other.

Only the top is opened by its path, in a folder that no engine can write to. Every other folder and file is opened relative
to the descriptor of the folder that listed it, without following a link and without `..`, and must be the very entry that
was listed. Whatever else is there is treated as removed. Modes are changed only through descriptors.

An engine can make millions of names, each at the end of a long path. A walk counts them, and ends where there are too many.
"""

# pathlib cannot work relative to a directory descriptor.
# ruff: noqa: PTH101
from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
LINK = frozenset((errno.ELOOP, errno.EMLINK))
"""What `O_NOFOLLOW` reports for a symlink; it depends on the system."""
_OTHER_TYPE = LINK | {errno.ENOTDIR, errno.ENXIO, errno.ENODEV}
READABLE = 0o500
WRITABLE = 0o700
_MAX_OPEN = 64
"""How many folders of one tree are open at a time."""
_MAX_PATH = 4096
"""Characters of a path below the top. It bounds the depth, and with it the memory for all paths of a tree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeBounds:
    """What a tree may have."""

    names: int = 500_000
    characters: int = 32_000_000
    """Of the paths of all names: they bound the memory for a list."""
    max_bytes: int = 0
    """On the disk. A hard link counts for each of its names, because a copy of the tree has it as often. 0: no limit."""


_WALK = TreeBounds()


class TreeTooLarge(OSError):
    """A tree has more than its bounds allow. The message is for people."""


class _Count:
    """What a walk has found so far."""

    def __init__(self, bounds: TreeBounds) -> None:
        self._bounds = bounds
        self._names = self._characters = self._bytes = 0

    def add(self, path: int, status: os.stat_result) -> None:
        """Count a name whose path has this many characters. Raises `TreeTooLarge`."""
        bounds = self._bounds
        self._names += 1
        self._characters += path
        self._bytes += status.st_blocks * 512
        if self._names > bounds.names:
            raise TreeTooLarge(f"there are more than {bounds.names:,} files and folders")
        if self._characters > bounds.characters:
            raise TreeTooLarge(f"the paths of all files have more than {bounds.characters:,} characters")
        if bounds.max_bytes and self._bytes > bounds.max_bytes:
            raise TreeTooLarge(f"the files, with every name of a hard link, take more than {bounds.max_bytes >> 20} MB")


class FileState(NamedTuple):
    """A file is unchanged if its state is: every write sets `changed_ns`, which no program can choose.

    Another machine has other values for `changed_ns` and `inode`: there, `portable` is compared.
    """

    size: int
    modified_ns: int
    changed_ns: int = 0
    inode: int = 0

    @classmethod
    def of(cls, status: os.stat_result) -> FileState:
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)

    @property
    def portable(self) -> FileState:
        return FileState(self.size, self.modified_ns)


class EntryReplaced(FileNotFoundError):
    """Something else is where a file or folder was listed, or it is on another file system."""

    def __init__(self, name: str) -> None:
        super().__init__(errno.ENOENT, "it is no longer what was listed", name)


class FileLeased(OSError):
    """A process holds a lease on the file (`fcntl(2)`, `F_SETLEASE`), and who opens it would have to wait for that process.

    The kernel reports it by `EAGAIN`, as it reports a shortage of processes. But no shortage makes opening a file fail so.
    """

    def __init__(self, name: str | os.PathLike[str]) -> None:
        super().__init__(errno.EBUSY, "a process holds a lease on it", os.fspath(name))


@contextmanager
def closing(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


def open_folder(above: int, name: str) -> int:
    """Open a folder inside an open folder. Raises `NotADirectoryError` for anything else, including symlinks."""
    try:
        return os.open(name, FOLDER, dir_fd=above)
    except OSError as error:
        if error.errno in LINK:
            raise NotADirectoryError(errno.ENOTDIR, "it is a symlink", name) from None
        raise


def open_file(above: int, name: str, listed: os.stat_result, *, unlock: bool = False) -> int:
    """Open the regular file that was listed. `unlock`: even if its engine has made it unreadable."""
    try:
        fd = os.open(name, FILE, dir_fd=above)
    except BlockingIOError:
        raise FileLeased(name) from None
    except PermissionError:
        if not unlock:
            raise
        fd, mode = open_locked(above, name, FILE, stat.S_IRUSR, listed)
        os.fchmod(fd, mode)
    except OSError as error:
        if error.errno not in _OTHER_TYPE:
            raise
        raise EntryReplaced(name) from None
    _check(fd, name, listed)
    return fd


def read_link(above: int, name: str) -> str:
    """Where a symlink leads, unchanged: a `Path` would normalize it."""
    try:
        return os.readlink(name, dir_fd=above)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise EntryReplaced(name) from None


def open_locked(above: int, name: str, flags: int, need: int, listed: os.stat_result | None = None) -> tuple[int, int]:
    """Add the permissions `need` to a file or folder that cannot be opened, and open it. Returns its mode before as well."""
    if not hasattr(os, "O_PATH"):
        mode = stat.S_IMODE(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode)
        os.chmod(name, mode | need, dir_fd=above, follow_symlinks=False)
        return os.open(name, flags, dir_fd=above), mode
    held = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC | flags & os.O_DIRECTORY, dir_fd=above)
    with closing(held):
        mode = stat.S_IMODE(os.fstat(held).st_mode)
        if listed is not None and not _is_same(os.fstat(held), listed):
            raise EntryReplaced(name)
        # fchmod does not work on an O_PATH descriptor, but chmod on its /proc name does. That name is this very entry.
        place = f"/proc/self/fd/{held}"
        os.chmod(place, mode | need)
        try:
            return os.open(place, flags & ~os.O_NOFOLLOW), mode
        except BlockingIOError:
            os.chmod(place, mode)
            raise FileLeased(name) from None


def _check(fd: int, name: str, listed: os.stat_result) -> os.stat_result:
    """Close the descriptor and raise `EntryReplaced` unless it is what was listed."""
    status = os.fstat(fd)
    if not _is_same(status, listed):
        os.close(fd)
        raise EntryReplaced(name)
    return status


def _is_same(status: os.stat_result, listed: os.stat_result) -> bool:
    return (status.st_ino, status.st_dev, stat.S_IFMT(status.st_mode)) == (
        listed.st_ino,
        listed.st_dev,
        stat.S_IFMT(listed.st_mode),
    )


class Folder:
    """A folder of a walk, open until the walk continues."""

    __slots__ = ("_count", "below", "fd", "path")

    def __init__(self, path: str, fd: int, count: _Count | None = None) -> None:
        self.path = path
        """Relative to the top, which is ''."""
        self.fd = fd
        self._count = count or _Count(_WALK)
        self.below: list[tuple[str, os.stat_result]] = []

    def entries(self) -> Iterator[tuple[str, os.stat_result]]:
        """The entries, in no order. One that was removed meanwhile is left out. Raises `TreeTooLarge`."""
        with os.scandir(self.fd) as found:
            yield from self._counted(found)

    def sorted_entries(self, most: int) -> Iterator[tuple[str, os.stat_result]]:
        """`most` of the entries by name: one folder can have more than fit into memory."""
        with os.scandir(self.fd) as found:
            chosen = sorted(itertools.islice(found, most), key=lambda entry: entry.name)
        yield from self._counted(chosen)

    def _counted(self, entries: Iterable[os.DirEntry[str]]) -> Iterator[tuple[str, os.stat_result]]:
        above = len(self.place(""))
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            self._count.add(above + len(entry.name), status)
            yield entry.name, status

    @property
    def depth(self) -> int:
        """0 for the top."""
        return self.path.count("/") + 1 if self.path else 0

    def place(self, name: str) -> str:
        return f"{self.path}/{name}" if self.path else name

    def descend(self, name: str, status: os.stat_result) -> None:
        """Let the walk continue in this folder."""
        self.below.append((self.place(name), status))


class Tree:
    """The folders of a tree by their paths below its top, which is open."""

    def __init__(
        self,
        top: int,
        status: os.stat_result,
        need: int = 0,
        *,
        mounts: bool = False,
        bounds: TreeBounds | None = None,
    ) -> None:
        """`need`: permissions that are added to each folder that lacks them. `mounts`: enter other file systems, too."""
        self._need = need
        self._bounds = bounds or _WALK
        self.listed = {"": status}
        """What each known folder was when it was listed, before permissions were added."""
        self._trail = [("", top)]
        """The folder that was opened last, and some of those above it."""
        self._device = None if mounts else status.st_dev
        self._unlocked: dict[str, int] = {}
        """The original modes of folders that were given more permissions."""
        self._add_permissions("", top, stat.S_IMODE(status.st_mode))

    def walk(
        self,
        path: str = "",
        listed: os.stat_result | None = None,
        *,
        remember: bool = False,
        failed: Callable[[str, OSError], None] | None = None,
    ) -> Iterator[Folder]:
        """Every folder that was reached by `Folder.descend`, before its subfolders. Without recursion, at any depth.

        Each walk may find what the bounds of the tree allow.
        `remember`: the folders can be opened later. `failed` is called for a folder that cannot be entered. Without it, one that
        was removed meanwhile is left out, and any other error is raised.
        """
        pending, count = [(path, listed or self.listed[path])], _Count(self._bounds)
        while pending:
            at, status = pending.pop()
            while not remember and not _is_within(at, next(reversed(self.listed))):
                self.listed.popitem()
            try:
                folder = Folder(at, self.enter(at, status), count)
            except OSError as error:
                if failed is not None:
                    failed(at, error)
                elif not isinstance(error, FileNotFoundError):
                    raise
                continue
            yield folder
            pending += reversed(folder.below)

    def enter(self, path: str, listed: os.stat_result) -> int:
        """Open a folder that was listed just now."""
        self.listed[path] = listed
        if len(path) > _MAX_PATH:
            raise OSError(errno.ENAMETOOLONG, "its folders are nested too deep", f"{path[:100]}…")
        return self.folder(path)

    def reach(self, path: str) -> int:
        """Open a folder that was not listed, as it is now."""
        parts = path.split("/") if path else []
        for above in itertools.accumulate(parts, "{}/{}".format):
            self.enter(above, self.stat(above))
        return self.folder(path)

    def folder(self, path: str) -> int:
        """The descriptor of a known folder, open until the next call. Raises `EntryReplaced`."""
        trail = self._trail
        while not _is_within(path, trail[-1][0]):
            os.close(trail.pop()[1])
        at, fd = trail[-1]
        for name in path[len(at) :].strip("/").split("/") if path != at else ():
            at = f"{at}/{name}" if at else name
            fd = self._step(fd, name, at)
            trail.append((at, fd))
            if len(trail) > _MAX_OPEN:
                os.close(trail.pop(1)[1])
        return fd

    def at(self, path: str) -> tuple[int, str]:
        """The descriptor of the folder that has an entry, and the entry's name."""
        above, _, name = path.rpartition("/")
        return self.folder(above), name

    def stat(self, path: str) -> os.stat_result:
        above, name = self.at(path)
        return os.stat(name, dir_fd=above, follow_symlinks=False)

    def open(self, path: str, listed: os.stat_result, *, unlock: bool = False) -> int:
        """Open the regular file that was listed."""
        return open_file(*self.at(path), listed, unlock=unlock)

    def make_folder(self, path: str) -> None:
        above, name = self.at(path)
        os.mkdir(name, 0o700, dir_fd=above)
        self.listed[path] = os.stat(name, dir_fd=above, follow_symlinks=False)

    def lock_again(self) -> None:
        """Restore the modes of the folders that were given more permissions, deepest first."""
        while self._unlocked:
            path, mode = self._unlocked.popitem()
            with suppress(FileNotFoundError):
                os.fchmod(self.folder(path), mode)

    def close(self) -> None:
        while self._trail:
            os.close(self._trail.pop()[1])

    def _step(self, above: int, name: str, path: str) -> int:
        listed = self.listed.get(path)
        if listed is None or name in ("", ".", "..") or self._device not in (None, listed.st_dev):
            raise EntryReplaced(path)
        try:
            fd = open_folder(above, name)
        except NotADirectoryError:
            raise EntryReplaced(path) from None
        except PermissionError:
            if not self._need:
                raise
            fd, mode = open_locked(above, name, FOLDER, self._need, listed)
            self._unlocked.setdefault(path, mode)
        self._add_permissions(path, fd, stat.S_IMODE(_check(fd, path, listed).st_mode))
        return fd

    def _add_permissions(self, path: str, fd: int, mode: int) -> None:
        if mode & self._need != self._need:
            with suppress(PermissionError):
                os.fchmod(fd, mode | self._need)
                self._unlocked.setdefault(path, mode)


def _is_within(path: str, above: str) -> bool:
    return path == above or not above or path.startswith(f"{above}/")


@contextmanager
def open_tree(
    base: Path, *names: str, need: int = 0, mounts: bool = False, bounds: TreeBounds | None = None
) -> Iterator[Tree]:
    """Open the tree `names` below `base`. An engine must not be able to replace `base` itself.

    Raises `FileNotFoundError`, and `NotADirectoryError` for anything but a folder.
    """
    top = os.open(base, FOLDER)
    status = os.fstat(top)
    for name in names:
        with closing(top):
            status = os.stat(name, dir_fd=top, follow_symlinks=False)
            try:
                top = open_folder(top, name)
            except PermissionError:
                if not need:
                    raise
                top, _ = open_locked(top, name, FOLDER, need, status)
    tree = Tree(top, status, need, mounts=mounts, bounds=bounds)
    try:
        yield tree
    finally:
        tree.close()


def matching(base: Path, pattern: str) -> list[str]:
    """The paths below `base` that match a pattern, in which `*` stands for one name, or a part of it."""
    found: list[str] = []
    parts = pattern.split("/")
    with suppress(FileNotFoundError, NotADirectoryError), open_tree(base) as tree:
        for folder in tree.walk():
            for name, status in folder.entries():
                if not fnmatchcase(name, parts[folder.depth]):
                    continue
                if folder.depth + 1 == len(parts):
                    found.append(folder.place(name))
                elif stat.S_ISDIR(status.st_mode):
                    folder.descend(name, status)
    return sorted(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The entries of a tree by relative path; '' is the top. A folder precedes its entries."""

    folders: dict[str, os.stat_result] = field(default_factory=dict)
    files: dict[str, os.stat_result] = field(default_factory=dict)
    links: dict[str, os.stat_result] = field(default_factory=dict)
    specials: dict[str, os.stat_result] = field(default_factory=dict)
    """Sockets, pipes and devices."""


def list_tree(tree: Tree, checkpoint: Callable[[], None] = lambda: None) -> Listing:
    """List a whole tree. A folder that was removed or replaced meanwhile is left out. Raises `TreeTooLarge`."""
    listing = Listing()
    kinds = {stat.S_IFREG: listing.files, stat.S_IFLNK: listing.links}
    for folder in tree.walk(remember=True):
        checkpoint()
        listing.folders[folder.path] = tree.listed[folder.path]
        prefix = folder.place("")
        for name, status in folder.entries():
            kind = stat.S_IFMT(status.st_mode)
            if kind == stat.S_IFDIR:
                folder.descend(name, status)
            else:
                kinds.get(kind, listing.specials)[prefix + name] = status
    return listing
