"""An answer typed on the terminal. Waiting for it uses no thread, so it can be canceled."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

from askback.background.loops import racing
from askback.cli import output

MAX_PLAIN_LINE = 4095
"""The maximum bytes of a line without our editor. The terminal silently drops the rest."""

QUIET_SEC = 0.6
"""The time after a prompt appears in which an empty line is no answer, so that nobody sends a default unseen."""

ANSWER_NEEDED = "an answer is required (Ctrl-D leaves the run waiting)"

Settled = Callable[[], Awaitable[None]]
"""Returns when the answer is no longer needed."""


class Abandoned(Exception):
    """The user leaves the question open (Ctrl-D or Ctrl-C), or the terminal was closed."""


class TooLong(Exception):
    """The terminal has cut the line."""


def on_terminal() -> bool:
    """Whether a user can see a question and type an answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def discard_typed() -> None:
    """Discard what was typed before the question was shown."""
    with suppress(termios.error):
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    # The editor keeps keys that arrived after an Enter. Before its first use there are none, and its import is slow.
    if (editor := sys.modules.get("askback.cli.terminal.line_editor")) is not None:
        editor.discard_typeahead()


async def read_line(prompt: str, *, secret: bool, settled: Settled) -> str | None:
    """What was typed, or None if the question is settled first."""
    async with racing(_typed(prompt, secret=secret), settled()) as (reading, settling):
        is_typed = reading.done()
    # The editor has restored the terminal: something else can be written there.
    line: str | None = reading.result() if is_typed else settling.result()
    return line


def unless_left(settled: Settled, left: asyncio.Future[None]) -> Settled:
    """A wait for `settled` that raises `Abandoned` as soon as `left` is done."""

    async def first() -> None:
        settling = asyncio.ensure_future(settled())
        try:
            await asyncio.wait({settling, left}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            settling.cancel()
        if left.done():
            raise Abandoned
        settling.result()

    return first


@contextmanager
def interrupt_leaves(settled: Settled) -> Iterator[Settled]:
    """Within the block, Ctrl-C leaves the question open, like Ctrl-D."""
    loop = asyncio.get_running_loop()
    left: asyncio.Future[None] = loop.create_future()
    is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN

    def leave() -> None:
        if not left.done():
            left.set_result(None)

    if not is_ignored:
        loop.add_signal_handler(signal.SIGINT, leave)
    try:
        yield unless_left(settled, left)
    finally:
        if not is_ignored:
            loop.remove_signal_handler(signal.SIGINT)


async def _typed(prompt: str, *, secret: bool) -> str:
    from askback.cli.terminal.line_editor import edit_line, is_dumb_terminal

    if is_dumb_terminal():
        return await _plain_line(prompt, secret=secret)
    try:
        quiet = QuietTime()
        return await edit_line(
            prompt, secret=secret, on_shown=quiet.restart, ignores_empty_line=quiet.ignores_empty_line
        )
    except (EOFError, OSError):
        raise Abandoned from None
    except KeyboardInterrupt:
        # The editor reads Ctrl-C as a key; everywhere else it is a signal. Raise that signal.
        signal.raise_signal(signal.SIGINT)
        await asyncio.Event().wait()
        raise


class QuietTime:
    """Starts when the prompt appears, and again with each empty line that comes too early."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = clock()

    def restart(self) -> None:
        self._since = self._clock()

    def ignores_empty_line(self) -> bool:
        """Whether an empty line that arrives now is ignored."""
        is_early = self._clock() - self._since < QUIET_SEC
        if is_early:
            self.restart()
        return is_early


async def _plain_line(prompt: str, *, secret: bool) -> str:
    """A line as the terminal itself edits it."""
    quiet = QuietTime()
    output.to_stderr(prompt, end="")
    answered = False
    try:
        data = await _read_line(sys.stdin.fileno())
        while data and not data.strip() and quiet.ignores_empty_line():
            # The terminal itself shows the line break, unless it shows nothing.
            output.to_stderr("" if secret else prompt, end="")
            data = await _read_line(sys.stdin.fileno())
        answered = bool(data)
    finally:
        # With a secret, the line break was not shown either.
        if secret or not answered:
            output.to_stderr("")
    if not data:
        raise Abandoned
    if len(data) > MAX_PLAIN_LINE:
        raise TooLong
    return data.decode(errors="replace").rstrip("\r\n")


async def _read_line(fd: int) -> bytes:
    """Empty when the terminal was closed or the input ended."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[bytes] = loop.create_future()
    collected = bytearray()

    def take() -> None:
        chunk = b""
        with suppress(OSError):
            chunk = os.read(fd, MAX_PLAIN_LINE + 1)
        collected.extend(chunk)
        if not line.done() and (not chunk or chunk.endswith(b"\n") or len(collected) > MAX_PLAIN_LINE):
            line.set_result(bytes(collected) if chunk else b"")

    loop.add_reader(fd, take)
    try:
        return await line
    finally:
        loop.remove_reader(fd)


@contextmanager
def echo_off() -> Iterator[None]:
    """The terminal does not show what is typed, from before the question is shown until it is settled."""
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
