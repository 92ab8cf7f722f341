"""The Unix socket in a run's folder through which the engine's ask tool reaches Askback.

Whatever connects is the engine or one of its children, so a message is bounded in size and time, and is data only. It is
read and checked in a thread, one message of each run at a time, so that the server responds meanwhile. A sandbox shows no
other run's folder; without one, the modes of the folder and of the socket keep other users out.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from askback.core.interactions import Json
from askback.process import ask_tool_program
from askback.text.json_text import NotJson, loads

_NAME = "ask.sock"
_MAX_CONNECTIONS = 4
_MAX_GATED = 64
"""With a gate, which is asked for each call of a tool. What is refused is denied."""
_READ_SEC = 10.0
_PROGRAM = Path(ask_tool_program.__file__)
_thread = ThreadPoolExecutor(1, thread_name_prefix="askback-questions")

T = TypeVar("T")

DELIVERY_SEC = 10.0
"""How long the tool may take to pass on an answer."""

Answer = tuple[bool, str]
"""Whether the question is accepted, and what the model gets to read."""


class HeldCall:
    """A call that is answered later. `gone` is set when it was answered, or nobody waits for the answer any more."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.gone = asyncio.Event()
        self.delivered = False
        """Whether the tool has passed the answer on to the engine."""

    def tell(self, accepted: bool, text: str) -> None:
        if not self.answer.done():
            self.answer.set_result((accepted, text))


Check = Callable[[Json], Awaitable[Answer | HeldCall]]
"""Takes the arguments of a call."""
Decide = Callable[[Json], Awaitable[dict[str, Json]]]
"""Takes what an engine sends to its gate, and says what the hook prints and how it exits."""
Defer = Callable[[Json], Awaitable[bool]]
"""Takes the arguments of a call, and says whether the engine is to end its turn without making it."""


async def in_thread(read: Callable[[Any], T], given: Any) -> T:
    """Read what an engine has sent. The thread is for that alone: an engine can make it slow."""
    return await asyncio.get_running_loop().run_in_executor(_thread, read, given)


def ask_tool_command(folder: Path) -> tuple[str, ...]:
    """How an engine starts its ask tool, which connects to the socket in this folder."""
    return _python(), "-I", "-S", str(_PROGRAM), str(folder / _NAME)


def gate_command(folder: Path) -> tuple[str, ...]:
    """The hook with which an engine asks, through the socket in this folder, before it calls a tool."""
    *program, path = ask_tool_command(folder)
    return *program, "--gate", path


def ask_tool_files() -> tuple[Path, ...]:
    """What a sandbox has to show for it."""
    return Path(_python()), _PROGRAM


def _python() -> str:
    # The one below a virtual environment: it starts sooner, and it is all that has to be shown.
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


class AskSocket:
    """Serves one connection per call, for as long as the call takes. Closed, it is removed."""

    def __init__(
        self,
        folder: Path,
        check: Check,
        defer: Defer | None = None,
        refusal: Callable[[], str | None] = lambda: None,
        decide: Decide | None = None,
    ) -> None:
        """`refusal`: why the next call is refused without being read, in words for the model; None if it is not."""
        self._folder = folder
        self._check = check
        self._defer = defer
        self._refusal = refusal
        self._decide = decide
        self._turnstile = asyncio.Lock()
        self._connections = 0
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Raises `OSError`."""
        listening = await asyncio.to_thread(_bind, self._folder)
        self._server = await asyncio.start_server(self._serve, sock=listening, limit=self._line_bytes)

    @property
    def _line_bytes(self) -> int:
        return ask_tool_program.CALL_BYTES if self._decide is None else ask_tool_program.GATE_BYTES

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
            with suppress(OSError):
                (self._folder / _NAME).unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        held: HeldCall | None = None
        try:
            if self._connections <= (_MAX_CONNECTIONS if self._decide is None else _MAX_GATED):
                async with asyncio.timeout(_READ_SEC):
                    line = await reader.readline()
                answer = await self._answer(line)
                held = answer if isinstance(answer, HeldCall) else None
                async with asyncio.timeout(_READ_SEC):
                    await _write(writer, {"held": True} if isinstance(answer, HeldCall) else answer)
                if held is not None:
                    await _hold(held, reader, writer)
        except (OSError, ValueError, TimeoutError):
            # It went away, or wrote too much or too slowly.
            pass
        finally:
            self._connections -= 1
            if held is not None:
                held.gone.set()
            writer.close()

    async def _answer(self, line: bytes) -> dict[str, Json] | HeldCall:
        if self._decide is not None and line.startswith(ask_tool_program.GATE):
            async with self._turnstile:
                return await self._decide(await in_thread(_payload, line[len(ask_tool_program.GATE) :]))
        is_hook = line.startswith(ask_tool_program.HOOK)
        if (refusal := self._refusal()) is not None:
            return {"defer": False} if is_hook else _message((False, refusal))
        async with self._turnstile:
            try:
                arguments = await in_thread(loads, line[is_hook:].decode("utf-8", "replace"))
            except NotJson as problem:
                return {"defer": False} if is_hook else _message((False, f"The question cannot be read: {problem}"))
            if is_hook:
                return {"defer": self._defer is not None and await self._defer(arguments)}
            answer = await self._check(arguments)
        return answer if isinstance(answer, HeldCall) else _message(answer)


async def _hold(held: HeldCall, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Wait for the answer, and pass it on. Ends early if the tool or the engine gives up the call."""
    heard = asyncio.ensure_future(reader.read(1))
    try:
        either: set[asyncio.Future[Any]] = {heard, held.answer}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if heard.done():
            return
        async with asyncio.timeout(DELIVERY_SEC):
            await _write(writer, _message(held.answer.result()))
            held.delivered = await heard == ask_tool_program.DELIVERED
    finally:
        heard.cancel()


def _payload(line: bytes) -> Json:
    """None if it is no JSON."""
    try:
        return loads(line.decode())
    except (NotJson, UnicodeDecodeError):
        return None


def _message(answer: Answer) -> dict[str, Json]:
    accepted, text = answer
    return {"accepted": accepted, "text": text}


async def _write(writer: asyncio.StreamWriter, message: dict[str, Json]) -> None:
    writer.write(json.dumps(message).encode() + b"\n")
    await writer.drain()


def _bind(folder: Path) -> socket.socket:
    """A listening socket that only this user can connect to."""
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with suppress(FileNotFoundError):
            os.unlink(_NAME, dir_fd=at)
        # An address has at most 107 bytes. On Linux, the path through the descriptor is always short.
        through = f"/proc/self/fd/{at}"
        name = f"{through if Path(through).exists() else folder}/{_NAME}"
        listening.bind(name)
        # Nobody can connect before it listens.
        Path(name).chmod(0o600)
        listening.listen(_MAX_CONNECTIONS)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    finally:
        os.close(at)
    return listening
