"""What a test tells the double to do: steps, and which conversation takes which.

A step is used up by one request of a conversation. Knows no protocol and no socket.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from double.record import Request
from double.wire import TOKENS, Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    text: str
    tokens: Tokens = TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTool:
    name: str
    arguments: Mapping[str, Any]
    saying: str = ""
    beside: tuple[CallTool, ...] = ()
    """Further calls in the same message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """An HTTP error. Without a body it is an error as the protocol has it."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakOff:
    """The answer begins with this text, and then the connection is closed in mid-stream."""

    text: str


class Hang:
    """No answer until `release`, then `then`, or a closed connection. `reached` is set when the request is there."""

    def __init__(self, then: Step | None) -> None:
        self.then = then
        self.reached = threading.Event()
        self._released = threading.Event()

    def release(self) -> None:
        self._released.set()

    def hold(self) -> None:
        self.reached.set()
        self._released.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Always:
    """This and every further request of the conversation: for CLIs that try again."""

    step: Step


Step = Say | CallTool | Fail | BreakOff | Hang | Always | Callable[[Request], "Step"]
Deed = Say | CallTool | Fail | BreakOff | Hang
"""A step once it is known what to do."""


def say(text: str, tokens: Tokens = TOKENS) -> Say:
    return Say(text=text, tokens=tokens)


def call_tool(name: str, arguments: Mapping[str, Any], saying: str = "") -> CallTool:
    return CallTool(name=name, arguments=arguments, saying=saying)


def run_shell(command: str, saying: str = "") -> Step:
    """Call the shell tool of whichever CLI asks."""

    def choose(request: Request) -> CallTool:
        for name, arguments in _SHELLS.items():
            if name in request.asked.tools:
                return CallTool(name=name, arguments=arguments(command), saying=saying)
        raise LookupError(f"no known shell tool is offered; offered: {', '.join(request.asked.tools)}")

    return choose


_SHELLS: Mapping[str, Callable[[str], Mapping[str, Any]]] = {
    "exec_command": lambda command: {"cmd": command},
    "run_shell_command": lambda command: {"command": command, "is_background": False},
    "Bash": lambda command: {"command": command},
    "bash": lambda command: {"command": command, "description": "a command of the script"},
    "run_terminal_command": lambda command: {"command": command, "description": "a command of the script"},
}


def fail(status: int, headers: Mapping[str, str] | None = None, body: str | None = None) -> Fail:
    return Fail(status=status, headers=headers or {}, body=body)


def break_off(text: str = "This answer is going to") -> BreakOff:
    return BreakOff(text=text)


def hang(then: Step | None = None) -> Hang:
    return Hang(then)


def always(step: Step) -> Always:
    return Always(step=step)


def decide(step: Step, request: Request) -> Deed:
    """What a step means for this request."""
    while not isinstance(step, Deed):
        step = step.step if isinstance(step, Always) else step(request)
    return step


class OutOfSteps(LookupError):
    """A conversation asked for more answers than its script has."""


@dataclass(slots=True, kw_only=True)
class _Part:
    when: str | None
    steps: deque[Step]


class Script:
    """The steps of all conversations. One is known by a text that stands in what its user said."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parts: list[_Part] = []
        self._hanging: list[Hang] = []
        self._closed = False

    def add(self, steps: tuple[Step, ...], when: str | None) -> None:
        with self._lock:
            for part in self._parts:
                if part.when == when:
                    part.steps.extend(steps)
                    return
            self._parts.append(_Part(when=when, steps=deque(steps)))

    def next(self, request: Request) -> Deed:
        with self._lock:
            step = self._take(request)
        return self.follow(step, request)

    def follow(self, step: Step, request: Request) -> Deed:
        deed = decide(step, request)
        if isinstance(deed, Hang):
            with self._lock:
                self._hanging.append(deed)
                if self._closed:
                    deed.release()
        return deed

    def _take(self, request: Request) -> Step:
        part = self._part_for(request)
        if part is None or not part.steps:
            raise OutOfSteps("the script has no step for this request")
        step = part.steps[0]
        if not isinstance(step, Always):
            part.steps.popleft()
        return step

    def _part_for(self, request: Request) -> _Part | None:
        said = "\n".join(request.user_texts)
        named = (part for part in self._parts if part.when is not None and part.when in said)
        unnamed = (part for part in self._parts if part.when is None)
        return next(named, None) or next(unnamed, None)

    def close(self) -> None:
        """Let go of everybody who hangs, and of those who will."""
        with self._lock:
            self._closed = True
            for each in self._hanging:
                each.release()
