"""Writing and removing below a folder that an engine may change at the same moment.

Paths are walked one component at a time by open folders, and no link is followed on any step, the first included. What
an engine puts in the way is removed; a component that it swaps after it was opened makes no difference, because what
follows is relative to the open folder. This module alone writes into a run's folders on our side.
"""

# Open folders have no path that pathlib could take.
# ruff: noqa: PTH208
from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ALL = 0o700
_TRIES = 1000
"""How often one step is tried again while an engine puts things in the way."""
_DEEPEST = 64
"""How many folders are open at a time while a tree is removed."""
_PASSES = 10_000
_LINK = (errno.ELOOP, errno.EMLINK)
"""How systems say that the last component is a link that may not be followed."""
_BUFFER = 1 << 20


class Obstructed(OSError):
    """An engine kept putting things in the way."""


def write(base: Path, name: str, content: bytes, *, durable: bool = False) -> None:
    """A new file below `base`, with folders as needed, in the place of whatever is there. Only the user may read it."""
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
    """A new file, open for writing. `name` is a relative path without `.` and `..`."""
    *folders, last = _parts(name)
    with _opened(base) as top:
        fd = _created(top, folders, last)
    with os.fdopen(fd, "wb") as file:
        yield file


def make_folder(base: Path, name: str) -> None:
    """A folder below `base`, with those above it, unless it is there."""
    with _opened(base) as top:
        os.close(_walk(top, _parts(name)))


def has_folder(base: Path, name: str) -> bool:
    """Whether there is such a folder; what a link leads to is none."""
    try:
        with _opened(base) as top:
            os.close(_find(top, _parts(name)))
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def move_in(source: Path, base: Path, name: str) -> None:
    """Move our file or folder to its place below `base`, replacing anything that is there."""
    *folders, last = _parts(name)
    with _opened(base) as top:
        folder = _walk(top, folders)
        try:
            remove_at(folder, last)
            os.rename(source, last, dst_dir_fd=folder)
        finally:
            os.close(folder)


def remove(base: Path, name: str) -> None:
    """Remove a file, a link or a whole folder below `base`, if it is there."""
    *folders, last = _parts(name)
    with suppress(FileNotFoundError, NotADirectoryError), _opened(base) as top:
        # A symlink on the way means as well that the place holds nothing that we wrote.
        folder = _find(top, folders)
        try:
            remove_at(folder, last)
        finally:
            os.close(folder)


def remove_at(folder: int, name: str) -> None:
    """Remove whatever is called `name` in an open folder, also a folder that an engine has locked.

    Without recursion and with few open files, however deep it is.
    """
    if _unlink(folder, name):
        return
    with suppress(FileNotFoundError):
        try:
            top = _step(folder, name)
        except NotADirectoryError:
            _unlink(folder, name)
            return
        try:
            _empty(top, lambda: _rmdir(folder, name))
        finally:
            os.close(top)


def _empty(top: int, removed: Callable[[], bool]) -> None:
    """Bounded, because a running engine could add files indefinitely."""
    for _ in range(_PASSES):
        if not os.listdir(top) and removed():
            return
        _empty_once(top)
    raise Obstructed("a folder cannot be removed: something is put back into it")


def _empty_once(top: int) -> None:
    """Depth first. A folder that lies too deep becomes an entry of `top`, for the next pass."""
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
                elif len(open_folders) < _DEEPEST:
                    inner = _step(folder, each)
                    open_folders.append((inner, each, iter(os.listdir(inner))))
                else:
                    # To move a folder one must be allowed to write to it.
                    _unlock(folder, each)
                    os.rename(each, f".{secrets.token_hex(8)}", src_dir_fd=folder, dst_dir_fd=top)
    finally:
        for folder, *_ in open_folders[1:]:
            os.close(folder)


def _rmdir(folder: int, name: str) -> bool:
    """Remove an empty folder. False: it is not empty."""
    try:
        os.rmdir(name, dir_fd=folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def _walk(top: int, parts: list[str]) -> int:
    """The open folder at the end of the way, made as needed."""
    for _ in range(_TRIES):
        # A folder on the way may be removed while we are in it: then again from the top.
        with suppress(FileNotFoundError):
            return _follow(top, parts, _enter)
    raise Obstructed(f"{'/'.join(parts)} cannot be made: a folder on the way is removed again and again")


def _find(top: int, parts: list[str]) -> int:
    """The same where it must be there already."""
    return _follow(top, parts, _step)


def _follow(top: int, parts: list[str], step: Callable[[int, str], int]) -> int:
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
    raise Obstructed(f"{name} cannot be made a folder: something is put in its place")


def _created(top: int, folders: list[str], name: str) -> int:
    for _ in range(_TRIES):
        folder = _walk(top, folders)
        try:
            return _create(folder, name)
        except FileNotFoundError:
            # The folder itself was removed meanwhile.
            continue
        finally:
            os.close(folder)
    raise Obstructed(f"{name} cannot be written: its folder is removed again and again")


def _create(folder: int, name: str) -> int:
    for _ in range(_TRIES):
        try:
            return os.open(name, _NEW_FILE, 0o600, dir_fd=folder)
        except FileExistsError:
            remove_at(folder, name)
    raise Obstructed(f"{name} cannot be written: something is put in its place")


def _step(folder: int, name: str) -> int:
    """Open a folder in a folder. `NotADirectoryError` for everything else, links included."""
    try:
        try:
            return _open_unlocked(folder, name)
        except PermissionError:
            _unlock(folder, name)
            return _open_unlocked(folder, name)
    except OSError as error:
        if error.errno in _LINK:
            raise NotADirectoryError(errno.ENOTDIR, f"{name} is a link") from error
        raise


def _open_unlocked(folder: int, name: str) -> int:
    fd = os.open(name, _FOLDER, dir_fd=folder)
    mode = stat.S_IMODE(os.fstat(fd).st_mode)
    if mode & _ALL != _ALL:
        with suppress(PermissionError):
            os.fchmod(fd, mode | _ALL)
    return fd


def _unlock(folder: int, name: str) -> None:
    """Give ourselves all rights on a folder that cannot be opened; never through a link."""
    if not hasattr(os, "O_PATH"):
        os.chmod(name, _ALL, dir_fd=folder, follow_symlinks=False)
        return
    fd = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        # An open path cannot be changed itself, but by the name that the kernel has for it.
        os.chmod(f"/proc/self/fd/{fd}", stat.S_IMODE(os.fstat(fd).st_mode) | _ALL)  # noqa: PTH101
    finally:
        os.close(fd)


def _unlink(folder: int, name: str) -> bool:
    """Remove what is no folder. False: it is one."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return True
    except (IsADirectoryError, PermissionError):
        # On macOS a folder gives EPERM.
        with suppress(FileNotFoundError):
            if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                return False
            raise
    return True


@contextmanager
def _opened(base: Path) -> Iterator[int]:
    fd = os.open(base, _FOLDER)
    try:
        yield fd
    finally:
        os.close(fd)


def _parts(name: str) -> list[str]:
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise ValueError(f"{name!r} is no path below a folder")
    return parts
