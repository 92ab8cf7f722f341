"""A talk with a real program that stays, through its engine's conversation alone: no run, no store."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from askback.core.interactions import Question
from askback.engines.base import (
    Asked,
    Completed,
    Engine,
    EngineEvent,
    Exit,
    Reply,
    Send,
    SessionNamed,
    Stream,
    Turn,
    TurnFailed,
    TurnOver,
)

_Kind = TypeVar("_Kind")
_MOST_LINE = 1 << 26


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


class Talk:
    """`async with Talk(engine, turn, env) as talk: outcome = await talk.say("…")`. The program does not outlive it."""

    def __init__(self, engine: Engine, turn: Turn, env: Mapping[str, str], *, turn_timeout_sec: float = 60.0) -> None:
        self._launch = engine.launch_resident(turn)
        self._conversation = engine.conversation(turn)
        self._turn, self._env, self._timeout_sec = turn, env, turn_timeout_sec
        self._lines: asyncio.Queue[tuple[Stream, bytes] | None] = asyncio.Queue()
        self._readers: list[asyncio.Task[None]] = []
        self.seen: list[EngineEvent] = []
        """What the last turn told, without what was sent."""
        self.sessions: list[str] = []
        self.printed: list[tuple[Stream, bytes]] = []
        self.sent: list[bytes] = []

    async def __aenter__(self) -> Self:
        write_files(Path(self._turn.home), self._launch.files)
        write_files(Path(self._turn.cwd), self._launch.work_files)
        pipe = asyncio.subprocess.PIPE
        self.process = await asyncio.create_subprocess_exec(
            *self._launch.argv,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            cwd=self._turn.cwd,
            env={**self._env, **self._turn.env, **self._launch.env},
            start_new_session=True,
            limit=_MOST_LINE,
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        pipes = ((Stream.STDOUT, self.process.stdout), (Stream.STDERR, self.process.stderr))
        self._readers = [asyncio.ensure_future(self._read(stream, reader)) for stream, reader in pipes]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(patience_sec=0)

    async def say(self, prompt: str, reply: Reply | None = None) -> Completed | TurnFailed:
        """One turn, until it is over, a question was asked, the program has ended or the time is up."""
        self.seen = []
        try:
            async with asyncio.timeout(self._timeout_sec):
                return await self._play(prompt, reply)
        except TimeoutError:
            await self.close(patience_sec=0)
            return self._conversation.finish(Exit(code=self.process.returncode or 0, timed_out=True))

    async def _play(self, prompt: str, reply: Reply | None) -> Completed | TurnFailed:
        is_over = await self._take(self._conversation.say(prompt, reply))
        while not is_over:
            printed = await self._lines.get()
            if printed is None:
                return self._conversation.finish(Exit(code=await self.process.wait()))
            is_over = await self._take(self._conversation.feed(*printed))
        return self._conversation.outcome()

    async def _take(self, told: Iterable[EngineEvent]) -> bool:
        is_over = False
        assert self.process.stdin is not None
        for seen in told:
            if isinstance(seen, Send):
                self.sent.append(seen.data)
                with suppress(BrokenPipeError, ConnectionResetError):
                    self.process.stdin.write(seen.data)
                    await self.process.stdin.drain()
                continue
            assert not is_over, f"{seen} came after the turn's end"
            self.seen.append(seen)
            is_over = isinstance(seen, TurnOver | Asked)
            if isinstance(seen, SessionNamed):
                self.sessions.append(seen.value)
        return is_over

    async def _read(self, stream: Stream, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            self.printed.append((stream, line.removesuffix(b"\n")))
            self._lines.put_nowait(self.printed[-1])
        if stream is Stream.STDOUT:
            self._lines.put_nowait(None)

    def overhear(self) -> list[EngineEvent]:
        """What was printed since the last turn ended, told to the conversation as it would be while waiting."""
        told: list[EngineEvent] = []
        while not self._lines.empty():
            printed = self._lines.get_nowait()
            told += self._conversation.feed(*printed) if printed is not None else ()
        return told

    def told(self, kind: type[_Kind]) -> list[_Kind]:
        """What of one kind the last turn told."""
        return [seen for seen in self.seen if isinstance(seen, kind)]

    @property
    def question(self) -> Question:
        (asked,) = self.told(Asked)
        return asked.question

    async def close(self, patience_sec: float = 20.0) -> int:
        """End the program's input, and the program where that is not enough; its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            await asyncio.wait_for(self.process.wait(), patience_sec)
        except TimeoutError:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        exit_code = await self.process.wait()
        await asyncio.gather(*self._readers)
        return exit_code
