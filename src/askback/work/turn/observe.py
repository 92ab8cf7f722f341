"""Reading one turn as it happens: raw output kept, events told, the session's handle stored and checked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import Any, TypeVar, assert_never

from askback.core.errors import RunWarning, WarningCode
from askback.core.events import EventType, NewEvent
from askback.core.interactions import Question
from askback.core.runs import Handle, Run, Usage
from askback.core.signals import HandleNamed
from askback.engines.base import (
    Asked,
    AssistantMessage,
    Completed,
    Engine,
    EngineEvent,
    Send,
    SessionNamed,
    Stream,
    ToolEnded,
    ToolStarted,
    TurnOver,
    UsageSeen,
)
from askback.process.streams import Line
from askback.process.workspace import Workspace
from askback.store.base import Store, move
from askback.text.redaction import Redactor

# What is told as events; all of it is in the raw output.
_MOST_TOOL_TEXT = 16_000
_MOST_MESSAGE_TEXT = 256_000
_MOST_NAME = 200
MOST_EVENTS = 50_000
MOST_EVENT_TEXT = 32_000_000
"""Events of one turn, and the characters in all of them."""


Read = Callable[[Stream, bytes], Iterable[EngineEvent]]
"""The `feed` of a parser, or of a conversation."""


class TurnObserver:
    """What was seen of a turn so far. `strayed` is set when the engine went on in another session than asked for.

    A resident program goes on printing between turns: after `close` its lines are kept, and it is answered where its
    protocol wants that, but nothing more is told of this turn.
    """

    def __init__(
        self,
        *,
        run: Run,
        engine: Engine,
        read: Read,
        store: Store,
        feed: EventFeed,
        redactor: Redactor,
        clock: Callable[[], datetime],
        parsing: Parsing,
        lock: asyncio.Lock,
        send: Callable[[bytes], Awaitable[None]] | None = None,
    ) -> None:
        self.run = run
        self.usage: Usage | None = None
        self.warnings: tuple[RunWarning, ...] = ()
        self.strayed = asyncio.Event()
        self.turn_over = asyncio.Event()
        self.session: str | None = None
        self.asked: Question | None = None
        self._engine = engine
        self._read = read
        self._send = send
        self._closed = False
        self._store = store
        self._feed = feed
        self.redactor = redactor
        self._clock = clock
        self._parsing = parsing
        self._lock = lock
        """Of the parser or the conversation: two lines, of stdout and of stderr, are never read at the same time."""
        self.printed = 0
        """Bytes that the turn has printed."""
        self._raw: dict[str, Callable[[bytes], Any]] = {}
        self._messages_told = 0
        self._events = 0
        self._event_text = 0

    @contextmanager
    def keeping_raw(self, workspace: Workspace, turn_name: str) -> Iterator[None]:
        """Write down every line as it comes, beside the run."""
        with ExitStack() as files:
            for stream in Stream:
                self._raw[stream] = files.enter_context(workspace.open_raw(turn_name, stream)).write
            yield

    @property
    def confirmed(self) -> bool:
        """The engine said that it is in the session it was asked to go on with."""
        return self.run.handle is not None and self.session == self.run.handle.handle_value

    async def take(self, stream: str, line: Line) -> None:
        self.printed += len(line.data) + 1
        async with self._lock:
            seen = await self._parsing.run(lambda: self._take(stream, line), len(line.data))
        await self.tell(seen)

    def _take(self, stream: str, line: Line) -> Iterable[EngineEvent]:
        self._raw[stream](self.redactor.line(line.data) + b"\n")
        if line.dropped:
            self._warn(
                WarningCode.ENGINE_LINE_TRUNCATED, f"a line of the engine's {stream} was too long and was left out"
            )
            return ()
        # Read as it is: a secret may be a word of the protocol. What comes of it is masked when it is told.
        return tuple(self._read(Stream(stream), line.data))

    async def tell(self, seen: Iterable[EngineEvent]) -> None:
        for each in seen:
            if not self._closed or isinstance(each, Send):
                await self._tell(each)

    def close(self) -> None:
        """The turn is over."""
        self._closed = True

    def warn_of_delay(self) -> None:
        """The engine could not be started at once."""
        message = "the machine was short of processes, memory or open files; the engine was started later"
        self._warn(WarningCode.ENGINE_START_DELAYED, message)

    async def take_end(self, result: Completed) -> None:
        """What an engine says only when all of it was read: its session, and messages that were not told on the way."""
        if result.session is not None:
            await self._name_session(result.session)
        for text in result.messages[max(0, self._messages_told - result.left_out) :]:
            await self._tell(AssistantMessage(text=text))
        if result.left_out or result.shortened:
            message = "the assistant said more than is kept of one turn; only the newest of it was read"
            self._warn(WarningCode.ASSISTANT_TEXT_TRUNCATED, message)

    async def _tell(self, seen: EngineEvent) -> None:
        match seen:
            case SessionNamed(value=value):
                await self._name_session(value)
            case UsageSeen(usage=usage, whole_session=whole_session):
                self.usage = usage.beyond(self.run.usage or Usage()) if whole_session else usage
            case TurnOver():
                self.turn_over.set()
            case Send(data=data):
                assert self._send is not None, "only a resident program is talked to"
                await self._send(data)
            case Asked(question=question):
                self.asked = question
                self.turn_over.set()
            case AssistantMessage(text=text):
                self._messages_told += 1
                await self._event(EventType.ASSISTANT_MESSAGE, text=_cut(text, _MOST_MESSAGE_TEXT))
            case ToolStarted():
                detail = _cut(seen.detail, _MOST_TOOL_TEXT)
                await self._event(EventType.TOOL_STARTED, **_call(seen), detail=detail)
            case ToolEnded():
                output = _cut(seen.output, _MOST_TOOL_TEXT)
                await self._event(EventType.TOOL_ENDED, **_call(seen), ok=seen.ok, output=output)
            case _:
                assert_never(seen)

    async def _name_session(self, value: str) -> None:
        if self.run.handle is not None:
            self.session = value
            if not self.confirmed:
                self.strayed.set()
            return
        # An id that could not be resumed by, or that tells a secret, is no handle: such a turn may complete, but not wait.
        known = len(value) <= _MOST_NAME and self._engine.handle_pattern.fullmatch(value) is not None
        if not known or self.redactor.text(value) != value:
            return
        handle = Handle(
            engine=self._engine.name,
            handle_type=self._engine.handle_type,
            handle_value=value,
            created_at_turn=self.run.attempt_number,
        )
        signal = HandleNamed(epoch=self.run.epoch, handle=handle, at=self._clock())
        self.session = value
        self.run = await move(self._store, self.run.id, signal, seen=self.run)

    async def _event(self, kind: EventType, **data: Any) -> None:
        size = sum(len(value) for value in data.values() if isinstance(value, str))
        if self._events >= MOST_EVENTS or self._event_text + size > MOST_EVENT_TEXT:
            self._warn(WarningCode.EVENTS_TRUNCATED, "the turn had more events than are kept; its raw output has all")
            return
        self._events += 1
        self._event_text += size
        masked = await self._parsing.run(lambda: self.redactor.value(data), size)
        told = masked | {"attempt_number": self.run.attempt_number}
        await self._feed.put(NewEvent(type=kind, at=self._clock(), data=told), size)

    def _warn(self, code: WarningCode, message: str) -> None:
        warning = RunWarning(code=code, message=message)
        if warning not in self.warnings:
            self.warnings = (*self.warnings, warning)


def _call(seen: ToolStarted | ToolEnded) -> dict[str, Any]:
    return {"call_id": seen.call_id[:_MOST_NAME], "name": seen.name[:_MOST_NAME]}


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + " […]"


_MOST_WAITING = 256
_MOST_WAITING_TEXT = 1_000_000


class EventFeed:
    def __init__(self, store: Store, run_id: str, epoch: int) -> None:
        self._store = store
        self._run_id = run_id
        self._epoch = epoch
        self._waiting: list[NewEvent] = []
        self._waiting_text = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._closed = False
        self._ended = False

    async def put(self, event: NewEvent, size: int = 0) -> None:
        """Take an event with so many characters of text; a turn that talks faster than the store writes is held up here."""
        await self._room.wait()
        if self._ended:
            return
        self._waiting.append(event)
        self._waiting_text += size
        self._news.set()
        if len(self._waiting) >= _MOST_WAITING or self._waiting_text >= _MOST_WAITING_TEXT:
            self._room.clear()

    def close(self) -> None:
        self._closed = True
        self._news.set()

    async def run(self) -> None:
        """Write until closed and empty. Raises `StaleWrite` when the run is no longer ours."""
        try:
            while not self._closed or self._waiting:
                await self._news.wait()
                self._news.clear()
                events, self._waiting, self._waiting_text = self._waiting, [], 0
                self._room.set()
                if events:
                    await self._store.append(self._run_id, self._epoch, events)
        finally:
            # Nobody takes events any more, however it came: whoever waits for room would wait for ever.
            self._ended = True
            self._room.set()


T = TypeVar("T")

_THREADS = 1
"""They would only wait for each other: what is parsed holds the interpreter."""
_SHORT = 65_536
"""Characters that are read at once: a change of threads would cost more than they do."""


class Parsing:
    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="askback-parsing")

    async def run(self, work: Callable[[], T], size: int) -> T:
        """Do work that reads a text of that size."""
        if size <= _SHORT:
            return work()
        return await self.aside(work)

    async def aside(self, work: Callable[[], T]) -> T:
        """Do work that may take long whatever the size of its text."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)
