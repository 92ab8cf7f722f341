"""The three streams between a program and us: our ends, and theirs until it has them."""

from __future__ import annotations

import asyncio
import fcntl
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Self

_CHUNK = 1 << 16
_PIPE = 1 << 20
# F_SEAL_SEAL, _SHRINK, _GROW and _WRITE: only Linux has their names.
_SEALS = 0x0001 | 0x0002 | 0x0004 | 0x0008


class Streams:
    def __init__(self, stdin: int | None, stdout: int, stderr: int, theirs: tuple[int, int, int]) -> None:
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self.theirs = theirs

    @classmethod
    def open(cls, stdin: bytes | None) -> Self:
        """Input as a file, so that one of any length neither blocks nor is cut; or, without one, from a pipe."""
        with ExitStack() as opened:
            our_in: int | None = None
            if stdin is None:
                their_in, our_in = _pipe(opened)
            else:
                their_in = read_only(stdin)
                opened.callback(os.close, their_in)
            (out, their_out), (err, their_err) = _pipe(opened), _pipe(opened)
            opened.pop_all()
        _widen(out)
        for fd in (our_in, out, err):
            if fd is not None:
                os.set_blocking(fd, False)
        return cls(our_in, out, err, (their_in, their_out, their_err))

    def hand_over(self) -> None:
        """The program has its ends now."""
        for fd in self.theirs:
            os.close(fd)

    def close(self) -> None:
        for fd in (self.stdin, self.stdout, self.stderr):
            if fd is not None:
                os.close(fd)


def read_only(content: bytes) -> int:
    """An open file with this content that nobody can change, however it is opened again: no name on a disk leads to it."""
    if not content:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    if not hasattr(os, "memfd_create"):
        return _unnamed(content)
    fd = os.memfd_create("stdin", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        _write_all(fd, content)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(fd)


def _unnamed(content: bytes) -> int:
    """For systems without sealed files: there an open file cannot be opened again with more rights."""
    fd, name = tempfile.mkstemp(prefix="askback-stdin-")
    try:
        _write_all(fd, content)
        return os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(fd)
        os.unlink(name)  # noqa: PTH108


def _write_all(fd: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(fd, left) :]


def _pipe(opened: ExitStack) -> tuple[int, int]:
    ends = os.pipe()
    for fd in ends:
        opened.callback(os.close, fd)
    return ends


def _widen(pipe: int) -> None:
    """Programs on Node lose what does not fit into the pipe when they end; a long line then takes the last one with it.

    Only Linux can widen a pipe, and only so many of them for one user.
    """
    with suppress(OSError, AttributeError):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE)


async def chunks(fd: int, enough: asyncio.Future[None]) -> AsyncIterator[bytes]:
    """What comes out of a pipe, until its end; when that is `enough`, only what the pipe can hold by then."""
    left = _PIPE
    while left > 0:
        try:
            chunk = os.read(fd, _CHUNK)
        except BlockingIOError:
            if enough.done():
                return
            await _readable(fd, enough)
            continue
        if not chunk:
            return
        if enough.done():
            left -= len(chunk)
        yield chunk
        # Who prints without a pause must not keep everybody else from their turn.
        await asyncio.sleep(0)


async def _readable(fd: int, enough: asyncio.Future[None]) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, _resolve, ready)
    enough.add_done_callback(wake := lambda _: _resolve(ready))
    try:
        await ready
    finally:
        enough.remove_done_callback(wake)
        loop.remove_reader(fd)


async def writable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(fd, _resolve, ready)
    try:
        await ready
    finally:
        loop.remove_writer(fd)


def _resolve(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its newline. `dropped` lines were longer than allowed; of them only the beginning is kept."""

    data: bytes
    dropped: bool = False


_KEPT_OF_DROPPED = 200


class LineFramer:
    """Feed it chunks as they are read; a line over the cap is discarded to its newline."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._dropping = False

    def feed(self, chunk: bytes) -> Iterator[Line]:
        *whole, rest = chunk.split(b"\n")
        for part in whole:
            self._take(part)
            yield self._flush()
        self._take(rest)

    def finish(self) -> Iterator[Line]:
        """What stands after the last newline counts as a line."""
        if self._buffer:
            yield self._flush()

    def _take(self, part: bytes) -> None:
        if self._dropping:
            return
        self._buffer += part
        if len(self._buffer) > self._limit:
            del self._buffer[_KEPT_OF_DROPPED:]
            self._dropping = True

    def _flush(self) -> Line:
        line = Line(bytes(self._buffer), self._dropping)
        self._buffer.clear()
        self._dropping = False
        return line
