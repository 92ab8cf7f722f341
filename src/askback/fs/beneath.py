"""Writing and removing below a folder that an engine may change concurrently.

Paths are walked one component at a time with directory descriptors, and no symlink is followed on any step, including
the first. Anything that an engine puts in the way is removed. Swapping a component after it was opened has no effect,
because the next step is relative to the open descriptor. `walk.py` reads and restores whole trees in the same way. No other
module of Askback works in the folders of a run that its engine can change.
"""

# pathlib cannot work relative to a directory descriptor.
# ruff: noqa: PTH208
from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from askback.fs.walk import FOLDER, closing, open_folder, open_locked

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ALL = 0o700
_TRIES = 1000
"""How often one step is retried while an engine keeps putting things in the way."""
_MAX_DEPTH = 64
"""How many folders may be open at a time while a tree is removed."""
_PASSES = 10_000
_ONE_NAME = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""What linking a file reports where a file system allows only one name, or no more of them."""
_BUFFER = 1 << 20


def write(base: Path, name: str, content: bytes, *, durable: bool = False) -> None:
    """Write a file below `base` with mode 0600. Creates folders as needed and replaces anything at that path."""
    with create(base, name) as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def copy(source: Path, base: Path, name: str) -> None:
    with source.open("rb") as content, create(base, name) as file:
        shutil.copyfileobj(content, file, _BUFFER)


@contextmanager
def create(base: Path, name: str) -> Iterator[BinaryIO]:
    """Open a new file below `base` for writing. `name` is a relative path without `.` and `..`."""
    *folders, last = _parts(name)
    with _opened(base) as top:
        fd = _created(top, folders, last)
    with os.fdopen(fd, "wb") as file:
        yield file


def link(base: Path, name: str, leads_to: str, mtime_ns: int | None = None) -> None:
    """Create a symlink below `base`, replacing anything at that path."""
    *folders, last = _parts(name)
    with _opened(base) as top, closing(_walk(top, folders)) as folder:
        remove_at(folder, last)
        os.symlink(leads_to, last, dir_fd=folder)
        if mtime_ns is not None:
            os.utime(last, ns=(mtime_ns, mtime_ns), dir_fd=folder, follow_symlinks=False)


def make_folder(base: Path, name: str) -> None:
    """Create a folder below `base`, with its parents, unless it exists."""
    with _opened(base) as top:
        os.close(_walk(top, _parts(name)))


def settle_folder(base: Path, name: str, mode: int, mtime_ns: int) -> None:
    """Give a folder below `base` its mode and its time, once nothing more is written to it."""
    with _opened(base) as top, closing(_follow(top, _parts(name))) as folder:
        os.utime(folder, ns=(mtime_ns, mtime_ns))
        os.fchmod(folder, mode)


def has_folder(base: Path, name: str) -> bool:
    """Whether the folder exists. A symlink to a folder does not count."""
    try:
        with _opened(base) as top:
            os.close(_follow(top, _parts(name)))
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def has_file(base: Path, name: str) -> bool:
    """Whether the path is a regular file. Says nothing about what a symlink leads to."""
    status = status_of(base, name)
    return status is not None and stat.S_ISREG(status.st_mode)


def status_of(base: Path, name: str) -> os.stat_result | None:
    """The status of an entry below `base`, of a symlink itself. None if there is none."""
    *folders, last = _parts(name)
    try:
        with _opened(base) as top, closing(_follow(top, folders)) as folder:
            return os.stat(last, dir_fd=folder, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None


def perhaps_present(base: Path, names: Iterable[str]) -> list[str]:
    """Those of the names below `base` whose first part exists; all of them if that cannot be seen."""
    names = list(names)
    try:
        with _opened(base.parent) as top, closing(open_folder(top, base.name)) as folder:
            present = {first for first in {name.partition("/")[0] for name in names} if _has(folder, first)}
    except PermissionError:
        return names
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [name for name in names if name.partition("/")[0] in present]


def _has(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def move_in(source: Path, base: Path, name: str) -> None:
    """Move a file or folder to a path below `base`, replacing anything there. The engine must not control `source`."""
    *folders, last = _parts(name)
    with _opened(base) as top, closing(_walk(top, folders)) as folder:
        remove_at(folder, last)
        os.rename(source, last, dst_dir_fd=folder)


def link_file(base: Path, source: str, name: str) -> None:
    """Give a file below `base` a second name below `base`, replacing anything there. Moves it if it can have only one."""
    *above, old = _parts(source)
    *folders, new = _parts(name)
    with _opened(base) as top, closing(_follow(top, above)) as holder, closing(_walk(top, folders)) as folder:
        remove_at(folder, new)
        try:
            os.link(old, new, src_dir_fd=holder, dst_dir_fd=folder, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _ONE_NAME:
                raise
            os.rename(old, new, src_dir_fd=holder, dst_dir_fd=folder)


def remove(base: Path, name: str) -> None:
    """Remove a file, a symlink or a whole folder below `base`, if it exists."""
    *folders, last = _parts(name)
    # A symlink on the path raises NotADirectoryError: nothing behind it is ours.
    with suppress(FileNotFoundError, NotADirectoryError), _opened(base) as top:
        # Mostly there is nothing, and then no folder on the path is given permissions.
        with suppress(PermissionError), closing(_follow(top, folders, open_folder)) as folder:
            os.stat(last, dir_fd=folder, follow_symlinks=False)
        with closing(_follow(top, folders)) as folder:
            remove_at(folder, last)


def remove_at(folder: int, name: str) -> None:
    """Remove `name` from an open folder, even if it is a folder without permissions.

    Uses no recursion and few descriptors, however deep the tree is.
    """
    if _unlink(folder, name):
        return
    with suppress(FileNotFoundError):
        try:
            opened = _step(folder, name)
        except NotADirectoryError:
            _unlink(folder, name)
            return
        with closing(opened) as top:
            _empty(top, lambda: _rmdir(folder, name))


def remove_tree(base: Path) -> None:
    """Remove a tree, even if an engine has taken permissions away or replaced the folder with something else."""
    with (
        suppress(FileNotFoundError),
        closing(os.open(base.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as parent,
    ):
        remove_at(parent, base.name)


def _empty(top: int, removed: Callable[[], bool]) -> None:
    """Empty a folder and remove it. Bounded, because a running engine could add files indefinitely."""
    for _ in range(_PASSES):
        if not os.listdir(top) and removed():
            return
        _empty_once(top)
    raise OSError("a folder cannot be removed: something keeps adding files to it")


def _empty_once(top: int) -> None:
    """Depth first. A folder that is too deep is moved to `top`, for the next pass."""
    open_folders = [(top, "", iter(os.listdir(top)))]
    try:
        while open_folders:
            folder, name, left = open_folders[-1]
            each = next(left, None)
            with suppress(FileNotFoundError, NotADirectoryError):
                if each is None:
                    open_folders.pop()
                    if open_folders:
                        os.close(folder)
                        _rmdir(open_folders[-1][0], name)
                elif _unlink(folder, each):
                    pass
                elif len(open_folders) < _MAX_DEPTH:
                    inner = _step(folder, each)
                    if os.fstat(inner).st_dev != os.fstat(top).st_dev:
                        os.close(inner)
                        # What is mounted inside a tree does not belong to it.
                        raise OSError(errno.EXDEV, "a folder cannot be removed: another file system is mounted in it")
                    open_folders.append((inner, each, iter(os.listdir(inner))))
                else:
                    # Moving a folder requires write permission on it.
                    os.close(open_locked(folder, each, FOLDER, _ALL)[0])
                    os.rename(each, f".{secrets.token_hex(8)}", src_dir_fd=folder, dst_dir_fd=top)
    finally:
        for folder, *_ in open_folders[1:]:
            os.close(folder)


def _rmdir(folder: int, name: str) -> bool:
    """Remove an empty folder. Returns False if it is not empty."""
    try:
        os.rmdir(name, dir_fd=folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def _walk(top: int, parts: list[str]) -> int:
    """Open the folder at the end of the path, creating folders as needed."""
    for _ in range(_TRIES):
        # If a folder on the path is removed meanwhile, start again from the top.
        with suppress(FileNotFoundError):
            return _follow(top, parts, _enter)
    raise OSError(f"{'/'.join(parts)} cannot be created: a folder on the path keeps being removed")


def _follow(top: int, parts: list[str], step: Callable[[int, str], int] | None = None) -> int:
    """Open the folder at the end of the path, which must exist unless `step` creates it."""
    step = step or _step
    folder = os.dup(top)
    try:
        for part in parts:
            folder, above = step(folder, part), folder
            os.close(above)
    except BaseException:
        os.close(folder)
        raise
    return folder


def _enter(folder: int, name: str) -> int:
    for _ in range(_TRIES):
        try:
            return _step(folder, name)
        except FileNotFoundError:
            with suppress(FileExistsError):
                os.mkdir(name, _ALL, dir_fd=folder)
        except NotADirectoryError:
            _unlink(folder, name)
    raise OSError(f"{name} cannot be created: something keeps taking its place")


def _created(top: int, folders: list[str], name: str) -> int:
    for _ in range(_TRIES):
        # The folder may be removed meanwhile.
        with suppress(FileNotFoundError), closing(_walk(top, folders)) as folder:
            return _create(folder, name)
    raise OSError(f"{name} cannot be written: its folder keeps being removed")


def _create(folder: int, name: str) -> int:
    for _ in range(_TRIES):
        try:
            return os.open(name, _NEW_FILE, 0o600, dir_fd=folder)
        except FileExistsError:
            remove_at(folder, name)
    raise OSError(f"{name} cannot be written: something keeps taking its place")


def _step(folder: int, name: str) -> int:
    """Open a folder inside an open folder, with all permissions. Raises `NotADirectoryError` for anything else."""
    try:
        fd = open_folder(folder, name)
    except PermissionError:
        return open_locked(folder, name, FOLDER, _ALL)[0]
    mode = stat.S_IMODE(os.fstat(fd).st_mode)
    if mode & _ALL != _ALL:
        with suppress(PermissionError):
            os.fchmod(fd, mode | _ALL)
    return fd


def _unlink(folder: int, name: str) -> bool:
    """Remove anything but a folder. Returns False if it is a folder."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return True
    except (IsADirectoryError, PermissionError):
        # macOS reports EPERM for a folder.
        with suppress(FileNotFoundError):
            if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                return False
            raise
    return True


def _opened(base: Path) -> AbstractContextManager[int]:
    return closing(os.open(base, FOLDER))


def _parts(name: str) -> list[str]:
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise ValueError(f"{name!r} is not a path below a folder")
    return parts
