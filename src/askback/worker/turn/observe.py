"""What happens in a turn, as it happens: raw output, events, the session's handle, usage and warnings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from typing import Any, BinaryIO, assert_never

from askback.core.errors import RunWarning, WarningCode
from askback.core.events import EventType, NewEvent
from askback.core.interactions import Question
from askback.core.runs import Handle, ProcessIdentity, Run, Usage
from askback.core.signals import HandleNamed, ProcessStarted
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
from askback.store.base import Store, move
from askback.text.redaction import Redactor
from askback.worker.turn.context import Parsing
from askback.worker.turn.gate import Gate
from askback.workspace.layout import Workspace

# What is kept as events; the raw output has all of it.
_MAX_NAME = 200
_MAX_MODELS = 50
_MAX_TEXT = {"text": 256_000, "detail": 16_000, "output": 16_000, "call_id": _MAX_NAME, "name": _MAX_NAME}
"""How many characters an event has of each text."""
MAX_EVENTS = 50_000
MAX_EVENT_TEXT = 32_000_000
"""Events of one turn, and the characters in all of them."""
_UNRECORDED_SEC = 1.0
"""For how long a process is only known to its keeper: most engines name their session before, and short turns end."""


class RawOutput:
    """The files that hold what an engine printed in one attempt at a turn, without secrets.

    A file is created with its first line: most engines print nothing to stderr.
    """

    def __init__(self, workspace: Workspace, turn_name: str) -> None:
        self._workspace = workspace
        self._turn_name = turn_name
        self._files: dict[str, BinaryIO] = {}

    def write(self, stream: str, line: bytes) -> None:
        file = self._files.get(stream)
        if file is None:
            file = self._files[stream] = self._workspace.open_raw(self._turn_name, stream)
        file.write(line + b"\n")

    def close(self) -> None:
        with ExitStack() as files:
            for file in self._files.values():
                files.callback(file.close)


class TurnObserver:
    """What was observed of a turn so far. `strayed` is set when the engine uses another session than requested.

    A resident process may print between turns. After `close`, its lines are recorded and its requests get a response,
    but nothing more is reported for this turn.
    """

    def __init__(
        self,
        *,
        run: Run,
        engine: Engine,
        read: Callable[[Stream, bytes], Iterable[EngineEvent]],
        record: Callable[[str, bytes], None],
        send: Callable[[bytes], Awaitable[None]],
        first_output: Callable[[], None],
        decline: Callable[[], Iterable[EngineEvent]] | None = None,
        gate: Gate | None = None,
        store: Store,
        feed: EventFeed,
        redactor: Redactor,
        clock: Callable[[], datetime],
        parsing: Parsing,
        lock: asyncio.Lock,
    ) -> None:
        self.run = run
        self.usage: Usage | None = None
        self.warnings: tuple[RunWarning, ...] = ()
        self.strayed = asyncio.Event()
        self.turn_over = asyncio.Event()
        self.session: str | None = None
        self.asked: Question | None = None
        self.used_tools = False
        self.open_calls: set[str] = set()
        """The calls of tools that have started and not ended."""
        self.redactor = redactor
        self.printed = 0
        """Bytes that the turn has printed."""
        self._engine = engine
        self._read = read
        self._record = record
        self._send = send
        self._first_output = first_output
        self._decline = decline
        """How a question in the engine's own protocol is declined; None: it becomes the run's question."""
        self._gate = gate
        self._store = store
        self._feed = feed
        self._clock = clock
        self._parsing = parsing
        self._lock = lock
        """Lines of stdout and stderr are never read at the same time."""
        self._closed = False
        self._process: ProcessIdentity | None = None
        """The process of the turn, until it is stored."""
        self._storing = asyncio.Lock()
        self._messages_reported = 0
        self._events = 0
        self._event_text = 0

    @property
    def confirmed(self) -> bool:
        """Whether the engine has named the session that it was asked to resume."""
        return self.run.handle is not None and self.session == self.run.handle.handle_value

    async def record_process(self, process: ProcessIdentity) -> None:
        """Store which process executes the turn: with the handle, if that is named soon.

        That of a sticky run at once: the run is bound to it. It is not needed to end what a program that died has left, but
        finds more where there is no keeper.
        """
        self._process = process
        if not self.run.sticky:
            await asyncio.sleep(_UNRECORDED_SEC)
        async with self._storing:
            if self._process is not None:
                signal = ProcessStarted(epoch=self.run.epoch, process=process, at=self._clock())
                self.run = await move(self._store, self.run.id, signal, seen=self.run)
                self._process = None

    async def take(self, stream: str, line: Line) -> None:
        if not self.printed:
            self._first_output()
        self.printed += len(line.data) + 1
        async with self._lock:
            seen = await self._parsing.run(lambda: self._take(stream, line), len(line.data))
        await self.report(seen)

    def _take(self, stream: str, line: Line) -> Iterable[EngineEvent]:
        self._record(stream, self.redactor.line(line.data))
        if line.dropped:
            message = f"a line of the engine's {stream} was too long and was left out"
            self._warn(WarningCode.ENGINE_LINE_TRUNCATED, message)
            return ()
        # Read unmasked: a secret may be a word of the protocol. Events are masked when they are reported.
        return tuple(self._read(Stream(stream), line.data))

    async def report(self, seen: Iterable[EngineEvent]) -> None:
        for each in seen:
            if not self._closed or isinstance(each, Send):
                await self._report(each)

    def close(self) -> None:
        """Report nothing more: the turn is over."""
        self._closed = True

    def warn_of_delay(self) -> None:
        message = "the machine was short of processes, memory or open files; the engine was started later"
        self._warn(WarningCode.ENGINE_START_DELAYED, message)

    async def take_end(self, result: Completed) -> None:
        """Report what is known only at the end: the session, and messages not reported so far."""
        if result.session is not None:
            await self._name_session(result.session)
        for text in result.messages[max(0, self._messages_reported - result.left_out) :]:
            await self._report(AssistantMessage(text=text))
        if result.left_out or result.shortened:
            message = "the assistant wrote more than is kept of one turn; only the newest part was read"
            self._warn(WarningCode.ASSISTANT_TEXT_TRUNCATED, message)

    async def _report(self, seen: EngineEvent) -> None:
        if self._gate is not None and isinstance(seen, AssistantMessage | ToolStarted):
            self._gate.model_spoke()
        if self._gate is not None and isinstance(seen, ToolEnded):
            self._gate.tool_ended(seen.call_id, ok=seen.ok)
        match seen:
            case SessionNamed(value=value):
                await self._name_session(value)
            case UsageSeen():
                self.usage = _of_turn(seen, self.run)
            case TurnOver():
                self.turn_over.set()
            case Send(data=data):
                await self._send(data)
            case Asked() if self._decline is not None:
                for each in self._decline():
                    await self._report(each)
            case Asked(question=question):
                self.asked = question
                self.turn_over.set()
            case AssistantMessage(text=text):
                self._messages_reported += 1
                await self._event(EventType.ASSISTANT_MESSAGE, text=text)
            case ToolStarted():
                self.used_tools = True
                self.open_calls.add(seen.call_id)
                await self._event(EventType.TOOL_STARTED, **_call(seen), detail=seen.detail)
            case ToolEnded():
                self.open_calls.discard(seen.call_id)
                await self._event(EventType.TOOL_ENDED, **_call(seen), ok=seen.ok, output=seen.output)
            case _:
                assert_never(seen)

    async def _name_session(self, value: str) -> None:
        if self.run.handle is not None:
            self.session = value
            if not self.confirmed:
                self.strayed.set()
            return
        # An id that cannot be resumed, or contains a secret, is no handle: the turn may complete but not wait.
        known = len(value) <= _MAX_NAME and self._engine.handle_pattern.fullmatch(value) is not None
        if not known or self.redactor.text(value) != value:
            return
        handle = Handle(
            engine=self._engine.name,
            handle_type=self._engine.handle_type,
            handle_value=value,
            created_at_turn=self.run.attempt_number,
        )
        self.session = value
        async with self._storing:
            signal = HandleNamed(epoch=self.run.epoch, handle=handle, at=self._clock(), process=self._process)
            self.run = await move(self._store, self.run.id, signal, seen=self.run)
            self._process = None

    async def _event(self, kind: EventType, **data: Any) -> None:
        """Store an event. Its texts are masked first and cut afterwards: a cut could leave a part of a secret."""
        texts = {name: len(value) for name, value in data.items() if isinstance(value, str)}
        size = sum(min(length, _MAX_TEXT[name]) for name, length in texts.items())
        if self._events >= MAX_EVENTS or self._event_text + size > MAX_EVENT_TEXT:
            self._warn(
                WarningCode.EVENTS_TRUNCATED, "the turn had more events than are kept; its raw output has all of them"
            )
            return
        self._events += 1
        self._event_text += size
        masked = await self._parsing.run(lambda: self.redactor.value(data), sum(texts.values()))
        masked |= {name: _cut(masked[name], _MAX_TEXT[name]) for name in texts}
        data = masked | {"attempt_number": self.run.attempt_number}
        await self._feed.put(NewEvent(type=kind, at=self._clock(), data=data), size)

    def _warn(self, code: WarningCode, message: str) -> None:
        warning = RunWarning(code=code, message=message)
        if warning not in self.warnings:
            self.warnings = (*self.warnings, warning)


def _of_turn(seen: UsageSeen, run: Run) -> Usage:
    """What the turn has used so far, by model."""
    usage = seen.usage.beyond(run.session_usage) if seen.whole_session else seen.usage
    models = [each.of_model(name[:_MAX_NAME]) for name, each in seen.models.items()]
    return replace(
        usage, by_model=tuple(models[:_MAX_MODELS]) or (usage.of_model(seen.model and seen.model[:_MAX_NAME]),)
    )


def _call(seen: ToolStarted | ToolEnded) -> dict[str, Any]:
    return {"call_id": seen.call_id, "name": seen.name}


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + " […]"


_MAX_WAITING = 256
_MAX_WAITING_TEXT = 1_000_000


class EventFeed:
    """The events of a turn on their way to the store, in batches."""

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
        """Take an event with `size` characters of text; waits if the store cannot write as fast as the engine prints."""
        await self._room.wait()
        if self._ended:
            return
        self._waiting.append(event)
        self._waiting_text += size
        self._news.set()
        if len(self._waiting) >= _MAX_WAITING or self._waiting_text >= _MAX_WAITING_TEXT:
            self._room.clear()

    def close(self) -> None:
        self._closed = True
        self._news.set()

    async def run(self) -> None:
        """Write until closed and empty. Raises `StaleWrite` if the run is no longer ours."""
        try:
            while not self._closed or self._waiting:
                await self._news.wait()
                self._news.clear()
                events, self._waiting, self._waiting_text = self._waiting, [], 0
                self._room.set()
                if events:
                    await self._store.append(self._run_id, self._epoch, events)
        finally:
            # Nothing is written after this, so nobody may wait for room.
            self._ended = True
            self._room.set()
