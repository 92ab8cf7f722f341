"""One line typed on the terminal, read without a thread, so that waiting for it can be given up."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

from askback.cli import output

LONGEST = 4095
"""A terminal hands over no more of a line than so many bytes, and drops the rest without a word."""

ANSWER_NEEDED = "an answer is needed (Ctrl-D leaves the run waiting)"

Gone = Callable[[], Awaitable[None]]
"""Ends when nobody needs the line any more."""


class Abandoned(Exception):
    """The terminal was closed, or the user ended the input (Ctrl-D)."""


class TooLong(Exception):
    """The terminal has cut the line."""


def on_terminal() -> bool:
    """Somebody can see a question and type an answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def forget_typed() -> None:
    """What was typed before a question stood there is no answer to it."""
    with suppress(termios.error):
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


async def read_line(prompt: str, *, secret: bool, gone: Gone) -> str | None:
    """The line without its end, or None when `gone` ends first. Of a secret the terminal shows no line end either."""
    output.tell(prompt, end="")
    reading = asyncio.ensure_future(_line(sys.stdin.fileno()))
    leaving = asyncio.ensure_future(gone())
    try:
        done, _ = await asyncio.wait({reading, leaving}, return_when=asyncio.FIRST_COMPLETED)
        line = reading.result() if reading in done else leaving.result()
    finally:
        reading.cancel()
        leaving.cancel()
    if secret or line is None:
        output.tell("")
    return line


async def _line(fd: int) -> str:
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[bytes] = loop.create_future()
    collected = bytearray()

    def take() -> None:
        chunk = _read(fd)
        collected.extend(chunk)
        if not typed.done() and (not chunk or chunk.endswith(b"\n") or len(collected) > LONGEST):
            typed.set_result(bytes(collected) if chunk else b"")

    loop.add_reader(fd, take)
    try:
        data = await typed
    finally:
        loop.remove_reader(fd)
    if not data:
        output.tell("")
        raise Abandoned
    if len(data) > LONGEST:
        raise TooLong
    return data.decode(errors="replace").rstrip("\r\n")


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, LONGEST + 1)
    except OSError:
        # The terminal was closed.
        return b""


@contextmanager
def unseen() -> Iterator[None]:
    """The terminal does not show what is typed: before the question stands there, and until it is settled."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    quiet = termios.tcgetattr(fd)
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(fd, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(fd, termios.TCSADRAIN, before)
