"""What an engine is: pure data and pure functions. No engine reads a file, starts a process or knows a run's state.

An engine turns a `Turn` into a `Launch` (what to start) and makes a `Parser` that reads what the program prints.
What differs between engines stands here as data; no other code asks for an engine's name to choose what to do.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from askback.core.errors import ErrorCode
from askback.core.interactions import Json, Question
from askback.core.renewals import Renewal
from askback.core.runs import Handle, Mode, ProfileKind, Usage
from askback.engines.protocols.json_lines import plain

UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
"""How most programs write a session's id, as a pattern."""


class Stream(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"


# What an engine is told.


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """What a probing call of the program gave. `exit_code` is None when it did not end in time."""

    args: tuple[str, ...]
    exit_code: int | None
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What was seen of an installed engine. `features` are what its version has, in the engine's own words.

    `resident` says whether the version can be kept as a process that takes one prompt after the other.
    """

    kind: ProfileKind
    reason: str
    version: str | None = None
    features: tuple[str, ...] = ()
    resident: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One execution of the engine. With a `handle` it goes on with that session, else it starts one.

    Paths are absolute, except `skill_dir`, which is relative to `cwd`.
    """

    prompt: str
    mode: Mode
    attempt_number: int
    command: tuple[str, ...]
    cwd: str
    home: str
    skill_dir: str
    probe: Probe
    handle: Handle | None = None
    model: str | None = None
    output_schema: Mapping[str, Any] | None = None
    extra_args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    """What the program is given anyway: the user's variables that it may have, and those of the settings."""
    credentials: tuple[str, ...] = ()
    """Those of the engine's credential files that are in its home."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What to start, as data. A user's text is in `stdin` or `files`, never a bare argument.

    `files` are written before the start, and again before every other; their paths are relative to the engine's home,
    those of `work_files` to its working directory.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes = b""
    files: Mapping[str, bytes] = field(default_factory=dict)
    work_files: Mapping[str, bytes] = field(default_factory=dict)


# What a parser tells while the engine works.


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionNamed:
    """The engine said which session it is in. After a resume this must be the session that was asked for."""

    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantMessage:
    """A whole assistant message. Only these are searched for the marker, a question or an output."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted:
    call_id: str
    name: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEnded:
    call_id: str
    name: str
    ok: bool
    output: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSeen:
    """The turn's tokens so far; a later one replaces an earlier one.

    With `whole_session` they are those of the session's earlier turns as well.
    """

    usage: Usage
    whole_session: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOver:
    """The engine's own end-of-turn event, good or bad. Its process is expected to end soon, and is ended if it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Bytes that a resident program is to be given now, on its standard input."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A resident program asks by its own protocol, and waits with its turn half done until it is answered.

    What is not for the user to decide is answered by `Send` at once, and never told.
    """

    question: Question


EngineEvent = SessionNamed | AssistantMessage | ToolStarted | ToolEnded | UsageSeen | TurnOver | Send | Asked


# What a parser says at the end.


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How the program ended: `code` as `subprocess` has it (negative: by signal), and what we did to it."""

    code: int
    timed_out: bool = False
    over_limit: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """The engine ended its turn by its own event. `messages` are the assistant's, in order.

    What was told as `AssistantMessage` are the first of them. `session` is for a name that could not be told before all was read.
    `left_out` is how many messages before these were too many to keep; `shortened` says that one lost its beginning.
    """

    messages: tuple[str, ...]
    session: str | None = None
    left_out: int = 0
    shortened: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFailed:
    """The engine did not end its turn properly; `detail` is its own words."""

    code: ErrorCode
    message: str
    detail: str | None = None


class Parser(Protocol):
    """Reads one turn of one program. Survives every line: what it does not know, it passes over."""

    def feed(self, stream: Stream, line: bytes) -> Iterable[EngineEvent]:
        """Take one line without its newline."""
        ...

    def finish(self, ended: Exit) -> Completed | TurnFailed:
        """Say how the turn ended. The exit code alone proves nothing."""
        ...


class Engine(Protocol):
    """One coding-agent program. `launch` is the only place where a command line is built, also for a resume."""

    name: str
    title: str
    default_command: tuple[str, ...]
    install: str
    """The one command that installs it, shown when it is missing."""
    handle_type: str
    handle_pattern: re.Pattern[str]
    profiles: frozenset[ProfileKind]
    """What the engine's module can drive; the probe says what the installed version allows."""
    chosen_by_default: bool
    """Whether a run that names no engine may get this one."""
    env_allow: tuple[str, ...]
    """Variables of the user's environment that the program may have besides the common ones."""

    config_names: tuple[str, ...]
    """Files and folders of a working directory that configure the program, such as `.codex`. No skill may contain them."""
    credentials: tuple[str, ...]
    """The few files, below the user's home, that hold the sign-in; never the history. They are lent to each turn."""
    sign_in: str
    """What to do when it is not signed in, shown to people."""

    def signed_in(self, files: Collection[str], env: Collection[str]) -> bool | None:
        """Whether it is signed in, by the credential files and variables that are there. None: it cannot be told."""
        ...

    def probe_calls(self) -> Sequence[tuple[str, ...]]:
        """Arguments of the calls that show what the installed version can do."""
        ...

    def read_probe(self, results: Sequence[CallResult]) -> Probe: ...

    def launch(self, turn: Turn) -> Launch: ...

    def parser(self, turn: Turn) -> Parser: ...


@runtime_checkable
class RenewingEngine(Engine, Protocol):
    """An engine that renews its sign-in while it works. What any other one changes in its credentials is discarded."""

    renewals: tuple[Renewal, ...]
    """Which of its credentials may be renewed, and which fields of them. Never a file of settings."""


# An engine that stays.


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """How a question ended: the user's answer, or the decision that was left to the engine (`decided` is False then)."""

    response: Json
    decided: bool


class Conversation(Protocol):
    """The talk with one resident program, through all turns of a run. Pure, as a parser is, and survives every line.

    One turn is open at a time: `say` begins it, and it ends with `TurnOver`, or pauses with `Asked`. After either,
    `outcome` says what it came to, and `say` begins the next one in the same process and session.
    """

    def say(self, prompt: str, reply: Reply | None = None) -> Iterable[EngineEvent]:
        """Begin a turn. What is to be sent may come now or, while the program is not ready yet, from `feed`.

        `reply` is given when the turn brings the end of a question. Where the program asked by its own protocol
        (`Asked`), it is answered in that form, and `prompt`, which says the same in words, is not sent.
        """
        ...

    def feed(self, stream: Stream, line: bytes) -> Iterable[EngineEvent]:
        """Take one line without its newline."""
        ...

    def outcome(self) -> Completed | TurnFailed:
        """How the turn that just ended went; `messages` are those of this turn alone. After `Asked`: what was said."""
        ...

    def finish(self, ended: Exit) -> TurnFailed:
        """How a turn ended whose program ended, or had to be ended, in the middle of it."""
        ...


@runtime_checkable
class ResidentEngine(Engine, Protocol):
    """An engine that can also be kept as a process. It has `STICKY_PROCESS` among its `profiles`."""

    def launch_resident(self, turn: Turn) -> Launch:
        """What to start for a run that keeps its process. `stdin` stays empty: all is sent by the conversation."""
        ...

    def conversation(self, turn: Turn) -> Conversation: ...


class HandleInvalid(ValueError):
    """A handle that is not of the engine's form; it never reaches a command line."""


def session_of(engine: Engine, handle: Handle) -> str:
    """The handle's value, once it is certain that it is this engine's and of its form."""
    if handle.engine != engine.name or handle.handle_type != engine.handle_type:
        raise HandleInvalid(f"the handle is of {handle.engine} ({handle.handle_type}), not of {engine.name}")
    if not engine.handle_pattern.fullmatch(handle.handle_value):
        raise HandleInvalid(f"the handle is not a session id of {engine.name}")
    return handle.handle_value


def out_of_bounds(ended: Exit) -> TurnFailed | None:
    """How a turn ended that we had to stop, the same for every engine."""
    if ended.over_limit:
        return TurnFailed(
            code=ErrorCode.OUTPUT_LIMIT_EXCEEDED, message="the engine printed more than one turn may print"
        )
    if ended.timed_out:
        return TurnFailed(code=ErrorCode.TURN_TIMEOUT, message="the turn took longer than it may take")
    return None


_NUMBER = re.compile(r"(?<!\d)\d++(?:\.\d++)++\S*")


def printed_by(results: Sequence[CallResult], args: tuple[str, ...]) -> str:
    """What a call printed on stdout; nothing when it failed or did not end in time."""
    return next((result.stdout for result in results if result.args == args and result.exit_code == 0), "")


def printed_at_all(results: Sequence[CallResult], args: tuple[str, ...]) -> str:
    """What a call printed on either stream, without colours, for programs that print their help on stderr."""
    ended = (result for result in results if result.args == args and result.exit_code == 0)
    return plain("".join(result.stdout + result.stderr for result in ended))


def version_in(text: str) -> str | None:
    number = _NUMBER.search(text)
    return number[0] if number else None


def why_not(results: Sequence[CallResult], args: tuple[str, ...], wanted: str) -> str:
    """What was seen of a call that did not offer what was wanted."""
    called = next((result for result in results if result.args == args), None)
    if called is None or called.exit_code is None:
        return f"its {' '.join(args)} did not end in time"
    if called.exit_code:
        return f"its {' '.join(args)} ended with {called.exit_code}"
    return f"its {' '.join(args)} does not offer {wanted}"
