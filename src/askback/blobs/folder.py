"""Stored files in a folder: of this machine, or one that several machines share."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, TypeVar

from askback.background.loops import start_thread
from askback.blobs import FileMissing, StoredFile, checked
from askback.blobs.errors import limited, size_of, time_limit, too_large, unavailable
from askback.core.errors import FULL_DISK, disk_full
from askback.fs.atomic import sync_folder

T = TypeVar("T")

_USUAL_SEC = 30.0
_PIECE = 1 << 20
_THREADS = 16
_TRIES = 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_UNFINISHED = ".new-"
"""No key begins with a dot."""
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class FolderFiles:
    """Each file is at the path of its key, private to the user."""

    def __init__(self, root: Path, *, limit_sec: float = _USUAL_SEC) -> None:
        self._root = root
        self._limit_sec = limit_sec
        self._free = asyncio.Semaphore(_THREADS)

    @property
    def place(self) -> str:
        return str(self._root)

    async def put(self, key: str, content: bytes | Path, *, replace: bool = False) -> None:
        path = self._path(key)
        size = len(content) if isinstance(content, bytes) else await asyncio.to_thread(size_of, content)
        await self._run(lambda: self._put(path, content, replace=replace), size)

    async def get(self, key: str, max_bytes: int) -> bytes:
        def read() -> bytes:
            with self._opened(key) as file:
                return file.read(max_bytes + 1)

        content = await self._run(read, max_bytes)
        if len(content) > max_bytes:
            raise too_large(key, max_bytes)
        return content

    async def fetch(self, key: str, target: Path) -> None:
        size = await self.size(key)
        await self._run(lambda: self._fetch(key, target), size or 0)

    async def read(self, key: str) -> AsyncIterator[bytes]:
        file = await self._run(lambda: self._opened(key))
        try:
            while piece := await self._run(lambda: file.read(_PIECE)):
                yield piece
        finally:
            file.close()

    async def size(self, key: str) -> int | None:
        def measure() -> int | None:
            try:
                with self._opened(key) as file:
                    return os.fstat(file.fileno()).st_size
            except FileMissing:
                return None

        return await self._run(measure)

    async def list(self, folder: str) -> Sequence[StoredFile]:
        start = self._path(folder.rstrip("/"))
        return await self._run(lambda: self._listed(start))

    async def delete(self, keys: Sequence[str]) -> None:
        paths = [self._path(key) for key in keys]
        await self._run(lambda: self._delete(paths))

    async def check(self) -> str:
        key = f"check/{secrets.token_hex(8)}"
        await self.put(key, b"askback")
        content = await self.get(key, 100)
        await self.delete([key])
        if content != b"askback":
            raise unavailable(self.place, "what was read differs from what was written")
        return self.place

    async def close(self) -> None:
        """Nothing is open between two calls."""

    # In a thread.

    async def _run(self, work: Callable[[], T], size: int = 0) -> T:
        """Call `work` in a daemon thread: a share that hangs delays neither the caller nor the end of the program."""
        loop = asyncio.get_running_loop()
        async with limited(self.place, time_limit(self._limit_sec, size)):
            await self._free.acquire()
            answer: asyncio.Future[T] = loop.create_future()
            try:
                start_thread(self._work, loop, work, answer, name="askback-folder")
            except BaseException:
                self._free.release()
                raise
            return await answer

    def _work(self, loop: asyncio.AbstractEventLoop, work: Callable[[], T], answer: asyncio.Future[T]) -> None:
        result: list[T] = []
        fault: BaseException | None = None
        try:
            result.append(work())
        except OSError as error:
            why = disk_full() if error.errno in FULL_DISK else unavailable(self.place, error.strerror or "failed")
            fault = why.with_traceback(error.__traceback__)
        except BaseException as error:
            fault = error

        def settle() -> None:
            self._free.release()
            if answer.done():
                return
            if fault is None:
                answer.set_result(result[0])
            else:
                answer.set_exception(fault)

        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle)

    def _path(self, key: str) -> Path:
        return self._root / checked(key)

    def _opened(self, key: str) -> BinaryIO:
        path = self._path(key)
        try:
            self._check_inside(path)
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            file = os.fdopen(fd, "rb")
        except _ABSENT:
            if not self._root.is_dir():
                raise _no_folder() from None
            raise FileMissing(key) from None
        return file

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
                    self._place(partial, path, replace=replace)
                    return
                except (FileNotFoundError, FileExistsError):
                    # Its folder was empty, and another program has removed it.
                    if not left or not partial.exists():
                        raise
        finally:
            partial.unlink(missing_ok=True)

    def _place(self, partial: Path, path: Path, *, replace: bool) -> None:
        self._make_folders(path.parent)
        self._check_inside(path)
        _move(partial, path, replace=replace)
        sync_folder(path.parent)

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

    def _fetch(self, key: str, target: Path) -> None:
        with self._opened(key) as source:
            _write(target, source)

    def _listed(self, start: Path) -> Sequence[StoredFile]:
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


def _write(path: Path, content: bytes | Path | BinaryIO) -> None:
    """A new file. Nothing stays of one that could not be written."""
    fd = os.open(path, _NEW, 0o600)
    try:
        with os.fdopen(fd, "wb") as target:
            if isinstance(content, bytes):
                target.write(content)
            elif isinstance(content, Path):
                with content.open("rb") as source:
                    shutil.copyfileobj(source, target, _PIECE)
            else:
                shutil.copyfileobj(content, target, _PIECE)
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
