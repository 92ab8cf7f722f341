"""The three standard streams of a child: our ends, the child's ends until it has them, and the framing of lines."""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import tempfile
import termios
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Self

_CHUNK = 1 << 16
_PIPE = 1 << 20
# F_SEAL_SEAL, _SHRINK, _GROW and _WRITE: only Linux has their names.
_SEALS = 0x0001 | 0x0002 | 0x0004 | 0x0008


@dataclass(slots=True)
class Streams:
    stdin: int | None
    stdout: int
    stderr: int
    theirs: tuple[int, int, int]

    @classmethod
    def open(cls, stdin: bytes | None) -> Self:
        """Input of any length is a file, so it neither blocks nor is cut. None: the input is a pipe."""
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
        """Close our copies of the child's ends after it has started."""
        for fd in self.theirs:
            os.close(fd)

    def close_input(self) -> None:
        if self.stdin is not None:
            os.close(self.stdin)
            self.stdin = None

    def close(self) -> None:
        for fd in (self.stdin, self.stdout, self.stderr):
            if fd is not None:
                os.close(fd)


def read_only(content: bytes) -> int:
    """An anonymous file (memfd), whose content nobody can change, even by opening it again."""
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
    """For systems without sealed files. There, an open file cannot be reopened with more rights."""
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
    """Enlarge a pipe. Programs on Node lose what does not fit into the pipe when they exit.

    Only Linux can do this, and only for a limited number of pipes per user.
    """
    with suppress(OSError, AttributeError):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE)


async def chunks(fd: int, enough: asyncio.Future[None]) -> AsyncIterator[bytes]:
    """Read a pipe to its end. Once `enough` is done, read at most what the pipe can hold by then."""
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
        # A program that prints without a pause must not block other tasks.
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


def unread(pipe: int) -> int:
    """Bytes in a pipe that nobody has read yet. Where the system does not tell the writer: 0."""
    try:
        (count,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(struct.calcsize("i"))))
    except OSError:
        return 0
    return int(count)


def _resolve(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its newline. A `dropped` line was too long, and only its beginning is kept."""

    data: bytes
    dropped: bool = False


_PREVIEW_BYTES = 200


class LineFramer:
    """Splits chunks into lines. A line over the limit is discarded up to its newline."""

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
        """Text after the last newline counts as a line."""
        if self._buffer:
            yield self._flush()

    def _take(self, part: bytes) -> None:
        if self._dropping:
            return
        self._buffer += part
        if len(self._buffer) > self._limit:
            del self._buffer[_PREVIEW_BYTES:]
            self._dropping = True

    def _flush(self) -> Line:
        line = Line(bytes(self._buffer), self._dropping)
        self._buffer.clear()
        self._dropping = False
        return line
