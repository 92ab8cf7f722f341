"""Stored files in a folder: of this machine, or one that several machines share."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, TypeVar

from askback.blobs.base import (
    PIECE,
    USUAL_SEC,
    Calls,
    FileMissing,
    Files,
    StoredFile,
    checked,
    too_large,
    unavailable,
)
from askback.core.errors import FULL_DISK, disk_full
from askback.fs.atomic import sync_folder

T = TypeVar("T")

_THREADS = 16
_TRIES = 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_UNFINISHED = ".new-"
"""No key begins with a dot."""
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class FolderFiles(Files):
    """Each file is at the path of its key, private to the user."""

    def __init__(self, root: Path, *, limit_sec: float = USUAL_SEC) -> None:
        self._root = root
        self._calls = Calls(str(root), limit_sec, threads=_THREADS)

    @property
    def place(self) -> str:
        return str(self._root)

    def put(self, key: str, content: bytes | Path, *, replace: bool = False) -> None:
        path = self._path(key)
        size = len(content) if isinstance(content, bytes) else content.stat().st_size
        self._run(lambda: self._put(path, content, replace=replace), size)

    def get(self, key: str, max_bytes: int) -> bytes:
        def read() -> bytes:
            with self._open(key) as file:
                return file.read(max_bytes + 1)

        content = self._run(read, max_bytes)
        if len(content) > max_bytes:
            raise too_large(key, max_bytes)
        return content

    def pieces(self, key: str) -> Iterator[bytes]:
        with self._run(lambda: self._open(key)) as file:
            while piece := self._run(lambda: file.read(PIECE), PIECE):
                yield piece

    def size(self, key: str) -> int | None:
        def measure() -> int:
            with self._open(key) as file:
                return os.fstat(file.fileno()).st_size

        try:
            return self._run(measure)
        except FileMissing:
            return None

    def list(self, folder: str) -> Sequence[StoredFile]:
        start = self._path(folder.rstrip("/"))
        return self._run(lambda: self._list(start))

    def delete(self, keys: Sequence[str]) -> None:
        paths = [self._path(key) for key in keys]
        self._run(lambda: self._delete(paths))

    def _run(self, work: Callable[[], T], size: int = 0) -> T:
        def translated() -> T:
            try:
                return work()
            except OSError as error:
                if error.errno in FULL_DISK:
                    raise disk_full() from error
                raise unavailable(self.place, error.strerror or "failed") from error

        return self._calls.run(translated, size)

    def _path(self, key: str) -> Path:
        return self._root / checked(key)

    def _open(self, key: str) -> BinaryIO:
        path = self._path(key)
        try:
            self._check_inside(path)
            return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")
        except _ABSENT:
            if not self._root.is_dir():
                raise _no_folder() from None
            raise FileMissing(key) from None

    def _check_inside(self, path: Path) -> None:
        """Raises `OSError` if a link in the folder leads elsewhere."""
        if path.parent.resolve() != self._root.resolve() / path.parent.relative_to(self._root):
            raise OSError(errno.ELOOP, "a link in the folder leads elsewhere")

    def _put(self, path: Path, content: bytes | Path, *, replace: bool) -> None:
        if not replace and path.is_file():
            return
        partial = self._root / f"{_UNFINISHED}{secrets.token_hex(8)}"
        try:
            _write(partial, content)
            for left in reversed(range(_TRIES)):
                try:
                    self._make_folders(path.parent)
                    self._check_inside(path)
                    _move(partial, path, replace=replace)
                    sync_folder(path.parent)
                    return
                except (FileNotFoundError, FileExistsError):
                    # Its folder was empty, and another program has removed it.
                    if not left or not partial.exists():
                        raise
        finally:
            partial.unlink(missing_ok=True)

    def _make_folders(self, folder: Path) -> None:
        """Durable, and for their owner alone."""
        if folder.is_dir():
            return
        if folder == self._root:
            # A share that is not mounted must not be replaced by an empty folder.
            raise _no_folder()
        self._make_folders(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        sync_folder(folder.parent)

    def _list(self, start: Path) -> Sequence[StoredFile]:
        if not self._root.is_dir():
            raise _no_folder()
        found = []
        for folder, _, names in os.walk(start, onerror=_raise_unless_gone):
            for name in names:
                path = Path(folder, name)
                with suppress(FileNotFoundError):
                    status = path.lstat()
                    at = datetime.fromtimestamp(status.st_mtime, UTC)
                    key = path.relative_to(self._root).as_posix()
                    found.append(StoredFile(key=key, size=status.st_size, stored_at=at))
        return found

    def _delete(self, paths: Sequence[Path]) -> None:
        for path in paths:
            with suppress(*_ABSENT):
                self._check_inside(path)
                path.unlink()
                # Empty folders go, too. Another program may store a file there at this moment.
                with suppress(OSError):
                    for folder in path.relative_to(self._root).parents[:-1]:
                        (self._root / folder).rmdir()


def _no_folder() -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "there is no such folder; is the share mounted?")


def _write(path: Path, content: bytes | Path) -> None:
    """Write a new file. Nothing stays of one that could not be written."""
    fd = os.open(path, _NEW, 0o600)
    try:
        with os.fdopen(fd, "wb") as target:
            if isinstance(content, bytes):
                target.write(content)
            else:
                with content.open("rb") as source:
                    shutil.copyfileobj(source, target, PIECE)
            target.flush()
            os.fsync(fd)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _move(partial: Path, path: Path, *, replace: bool) -> None:
    if replace:
        partial.replace(path)
        return
    try:
        path.hardlink_to(partial)
    except FileExistsError:
        return
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # A file system without links.
        partial.replace(path)


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, _ABSENT):
        raise error
