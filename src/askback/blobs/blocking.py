"""Stored files for code that runs in threads: every call waits for its result."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from askback.background.loops import start_thread
from askback.blobs import Files, StoredFile

T = TypeVar("T")


class BlockingFiles:
    """The same methods as `Files`. The event loop is in a separate daemon thread, which starts with the first call."""

    def __init__(self, files: Files) -> None:
        """No other event loop may use these files."""
        self._files = files
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def put(self, key: str, content: bytes | Path, *, replace: bool = False) -> None:
        self._wait(lambda files: files.put(key, content, replace=replace))

    def get(self, key: str, max_bytes: int) -> bytes:
        return self._wait(lambda files: files.get(key, max_bytes))

    def fetch(self, key: str, target: Path) -> None:
        self._wait(lambda files: files.fetch(key, target))

    def size(self, key: str) -> int | None:
        return self._wait(lambda files: files.size(key))

    def list(self, folder: str) -> Sequence[StoredFile]:
        return self._wait(lambda files: files.list(folder))

    def delete(self, keys: Sequence[str]) -> None:
        self._wait(lambda files: files.delete(keys))

    def open(self, key: str) -> BinaryIO:
        """The content, read piece by piece. Raises `FileMissing`."""

        async def begin(files: Files) -> tuple[AsyncIterator[bytes], bytes]:
            pieces = files.read(key)
            return pieces, await anext(pieces, b"")

        pieces, first = self._wait(begin)
        return cast(BinaryIO, io.BufferedReader(_Reader(self._next, pieces, first)))

    def close(self) -> None:
        """Does not wait: a call that hangs must not delay the end of the program."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(loop.stop)

    def _next(self, pieces: AsyncIterator[bytes]) -> bytes:
        async def following(_: Files) -> bytes:
            return await anext(pieces, b"")

        return self._wait(following)

    def _wait(self, call: Callable[[Files], Coroutine[Any, Any, T]]) -> T:
        loop = self._started()
        return asyncio.run_coroutine_threadsafe(call(self._files), loop).result()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                try:
                    start_thread(_run, loop, name="askback-files")
                except BaseException:
                    loop.close()
                    raise
                self._loop = loop
            return self._loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


class _Reader(io.RawIOBase):
    def __init__(
        self, following: Callable[[AsyncIterator[bytes]], bytes], pieces: AsyncIterator[bytes], first: bytes
    ) -> None:
        super().__init__()
        self._following = following
        self._pieces = pieces
        self._left = memoryview(first)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._left:
            self._left = memoryview(self._following(self._pieces))
        taken = min(len(buffer), len(self._left))
        buffer[:taken] = self._left[:taken]
        self._left = self._left[taken:]
        return taken
