"""The interface of an engine: pure data and functions. No engine reads files, starts processes or knows run states.

An engine turns a `Turn` into a `Launch` (what to start) and creates a `Parser` for the program's output. Differences
between engines are data on the engine; no other code checks an engine's name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from askback.core.errors import ErrorCode
from askback.core.interactions import Json, Question
from askback.core.permissions import GateKind
from askback.core.renewals import Renewal
from askback.core.runs import Handle, Mode, ProfileKind, Usage
from askback.engines.gates import HookAnswer, HookCall, denied

UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
"""The pattern of most session ids."""
HELP, VERSION = ("--help",), ("--version",)
"""The probe calls of most programs."""


class Stream(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"


# Input of an engine.


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """The result of a probe call. `exit_code` is None if the program did not end in time."""

    args: tuple[str, ...]
    exit_code: int | None
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What the installed version can do. `features` are names that the engine defines.

    `resident`: whether its process can stay and accept several prompts in sequence. `effort`: the
    profiles in which it has an option for how much the model reasons. `offers`: the option or command that resumes sessions.
    """

    kind: ProfileKind
    reason: str
    offers: str | None = None
    version: str | None = None
    features: tuple[str, ...] = ()
    resident: bool = False
    effort: tuple[ProfileKind, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One execution of the engine. With a `handle`, it resumes that session; otherwise it starts one.

    Paths are absolute, except `skill_dir`, which may be relative to `cwd`.
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
    effort: str | None = None
    """How much the model reasons, in the engine's own word. Set only if the probe has the run's profile in `effort`."""
    may_ask: bool = True
    """Whether a resident program may ask through its own protocol (`Asked`). Not if its run must survive its process."""
    ask_tool: tuple[str, ...] = ()
    """The command of an MCP server with the tool `put_question`; empty if the program gets none."""
    gate: tuple[str, ...] = ()
    """The command of the hook that decides on each call of a tool; empty if every call is allowed."""
    deferred: bool = False
    """The program makes the call that it deferred in its last turn, and gets the answer as its result. No prompt is sent."""
    output_schema: Mapping[str, Any] | None = None
    extra_args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    """The environment of the program: the user's variables that it may see, and those from the settings."""
    credentials: tuple[str, ...] = ()
    """The engine's credential files that exist in its home."""
    users_cwd: bool = False
    """Whether `cwd` is a folder of the user, such as a repository. `Launch.work_files` must then be empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What to start, as data. User text goes into `stdin` or `files`, never into a bare argument.

    `files` are written before every start. Their paths are relative to the engine's home, those of `work_files` to its
    working directory. `settings` are JSON files in the home as well: these values, over those of the configured home.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes = b""
    files: Mapping[str, bytes] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    work_files: Mapping[str, bytes] = field(default_factory=dict)


# Events of a parser while the engine works.


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionNamed:
    """The engine named its session. After a resume this must be the requested one."""

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
    """The turn's tokens so far; replaces earlier counts. `whole_session`: includes the session's earlier turns.

    `models` are those of the turn alone, by their names. `model`: all of it is of this one.
    """

    usage: Usage
    whole_session: bool = False
    model: str | None = None
    models: Mapping[str, Usage] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOver:
    """The engine's own end-of-turn event, good or bad. A process that does not exit soon after it is ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Bytes to write to the standard input of a resident program."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A resident program asks through its own protocol, and waits for the answer in the middle of its turn.

    Requests that are not for the user are answered with `Send` immediately, without this event.
    """

    question: Question


EngineEvent = SessionNamed | AssistantMessage | ToolStarted | ToolEnded | UsageSeen | TurnOver | Send | Asked


# Results of a parser.


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How the program ended: `code` as in `subprocess` (negative: a signal), and whether Askback stopped it."""

    code: int
    timed_out: bool = False
    over_limit: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """The engine ended its turn with its end-of-turn event. `messages` are the assistant's, in order.

    They start with those already reported as `AssistantMessage`. `session` is a session id that was found only at the
    end. `left_out` counts earlier messages that were dropped; `shortened`: a message lost its beginning. `deferred`: the
    turn ended with a call of the ask tool that is made when the session is resumed.
    """

    messages: tuple[str, ...]
    session: str | None = None
    left_out: int = 0
    shortened: bool = False
    deferred: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFailed:
    """The engine did not end its turn properly. `detail` is the engine's own error text.

    `reset` is when a limit of the provider ends, or in how much time, if the program reports it other than in its text.
    """

    code: ErrorCode
    message: str
    detail: str | None = None
    reset: datetime | timedelta | None = None


class Parser(Protocol):
    """Reads one turn of one program. Accepts every line, and ignores lines that it does not recognize."""

    def feed(self, stream: Stream, line: bytes) -> Iterable[EngineEvent]:
        """Read one line, without its newline."""
        ...

    def finish(self, ended: Exit) -> Completed | TurnFailed:
        """The result of the turn. The exit code alone proves nothing."""
        ...


# Resident processes.


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """How a question ended: with the user's answer or, if `answered` is False, without one: the engine decides."""

    response: Json
    answered: bool


class Conversation(Protocol):
    """The conversation with one resident program, for all turns of a run.

    Like a parser, it does no I/O and accepts every line. One turn is open at a time: `say` starts it, and it ends with
    `TurnOver` or pauses with `Asked`. After either, `outcome` returns its result, and `say` starts the next turn in the
    same process and session.
    """

    def say(self, prompt: str, reply: Reply | None = None) -> Iterable[EngineEvent]:
        """Start a turn. `Send` events may come now or, if the program is not ready yet, from `feed`.

        `reply` is set if the turn answers a question. If the program asked through its own protocol (`Asked`), the
        reply is sent in that protocol; `prompt`, the same answer as text, is not sent.
        """
        ...

    def feed(self, stream: Stream, line: bytes) -> Iterable[EngineEvent]:
        """Read one line, without its newline."""
        ...

    def outcome(self) -> Completed | TurnFailed:
        """The result of the turn that just ended, with the messages of this turn alone."""
        ...

    def finish(self, ended: Exit) -> TurnFailed:
        """The result of a turn whose program ended, or was stopped, in the middle of it."""
        ...


@runtime_checkable
class PausableConversation(Conversation, Protocol):
    """A conversation whose turn can wait for an answer in a call of the ask tool.

    While it is paused, `feed` yields nothing but `Send`, and notices if the program ends its turn. After a pause, `say`
    starts a new turn only if the program has ended the paused one.
    """

    @property
    def is_paused(self) -> bool:
        """Whether the program is still in a turn that was paused."""
        ...

    def pause(self) -> Iterable[EngineEvent]:
        """Pause the turn. `outcome` then returns what was said before."""
        ...

    def proceed(self) -> None:
        """Continue the paused turn. `outcome` then returns what is said from now on."""
        ...


@runtime_checkable
class ClosingConversation(Conversation, Protocol):
    """A conversation that can ask its program to store the session, and so to prepare for its end."""

    is_closed: bool
    """Whether the program has done so."""

    def close(self) -> Iterable[Send]: ...


# Lists of models.


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model that a run on this engine can name."""

    id: str
    title: str | None = None
    description: str | None = None
    efforts: tuple[str, ...] = ()
    is_default: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NoModels:
    """The program did not list its models. `reason` says why, in its own words if it has some."""

    reason: str


class ModelQuery(Protocol):
    """The dialog with one process that is asked for its models. Accepts every line, like a parser."""

    def begin(self) -> Iterable[Send]:
        """What to send first."""
        ...

    def feed(self, stream: Stream, line: bytes) -> Iterable[Send]:
        """Read one line, without its newline."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether the answer is complete. A process that stays is ended then."""
        ...

    def finish(self, exit_code: int | None) -> Sequence[Model] | NoModels:
        """The answer. The exit code is None if the process was ended."""
        ...


# The engine.


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionMove:
    """What has to change in a copy of a home, so that its session resumes in another working directory.

    Paths are relative to the home. `*` stands for one name.
    """

    renamed: Mapping[str, str] = field(default_factory=dict)
    """Folders, with their new paths."""
    removed: tuple[str, ...] = ()
    """Files that are created again when they are missing."""
    rewritten: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Text files, with a text in them and what replaces it."""


DEFAULT_CACHES = (".npm", ".cache")


class Engine:
    """One coding-agent program. Subclasses state what differs from the defaults, and do no I/O.

    Only `launch` and `launch_resident` build command lines. The optional methods raise `NotImplementedError` here; the
    properties below say which of them an engine has.
    """

    __slots__ = ()

    name: str
    title: str
    default_command: tuple[str, ...]
    install: str
    """How to install it, shown when it is missing."""
    install_command: str = ""
    """The command in `install`, if there is one: the page shows it in the user's language, with a button to copy it."""
    sign_in: str
    """How to sign in, shown to users."""
    sign_in_command: str = ""
    handle_type: str = "session_id"
    handle_pattern: re.Pattern[str] = re.compile(UUID, re.ASCII)
    profiles: frozenset[ProfileKind] = frozenset({ProfileKind.RESUMABLE})
    """The profiles that this module supports. The probe determines what the installed version supports."""
    chosen_by_default: bool = True
    """Whether a run that names no engine may get this one."""
    env_allow: tuple[str, ...] = ()
    """Variables of the user's environment that the program may see besides the common ones."""
    env: Mapping[str, str] = {}
    """Variables for every start of the program, unless the user has set them."""
    config_names: tuple[str, ...] = ()
    """Names in a working directory that configure the program, such as `.codex`. No skill may contain them."""
    credentials: tuple[str, ...] = ()
    """The few files below the user's home that hold the sign-in, never the history. Each turn gets a copy."""
    renewals: tuple[Renewal, ...] = ()
    """The credentials and fields that the program may renew; other changes are discarded. Never a settings file."""
    caches: tuple[str, ...] = ()
    """Files and folders below the home that the program makes again when they are missing, besides `DEFAULT_CACHES`."""
    takes_ask_tool: bool = False
    """Whether the program takes MCP servers: its launches then configure the one of `Turn.ask_tool`."""
    converses: bool = False
    """Whether every turn is a `conversation`, also of a process that ends with it, and the engine has no `parser`.

    The conversation of a turn with a handle continues that session.
    """
    warm: bool = False
    """Whether the session of a resident process is complete on disk when its turn is over.

    So the session can be resumed by `launch`, even if the resident process is killed at that moment. With
    `Turn.may_ask` False, the program must not ask through its own protocol.
    """

    @property
    def all_caches(self) -> tuple[str, ...]:
        """What is not saved with a run."""
        return (*DEFAULT_CACHES, *self.caches)

    def signed_in(self, files: Collection[str], env: Collection[str]) -> bool | None:
        """Whether the user is signed in, judging by existing credential files and variables. None: unknown."""
        raise NotImplementedError

    @property
    def probe_input(self) -> bytes:
        """What every call gets as its input. A call with an input is over at a line for which `ends_probe` is true."""
        return b""

    def ends_probe(self, line: bytes) -> bool:
        return False

    def probe_calls(self) -> Sequence[tuple[str, ...]]:
        """The arguments of the calls that show what the installed version can do."""
        return (HELP, VERSION)

    def read_probe(self, results: Sequence[CallResult]) -> Probe:
        raise NotImplementedError

    def launch(self, turn: Turn) -> Launch:
        raise NotImplementedError

    def parser(self, turn: Turn) -> Parser:
        raise NotImplementedError

    # Optional: a process that accepts several prompts in sequence. Its engine has `STICKY_PROCESS` among its `profiles`.

    @property
    def can_stay(self) -> bool:
        return self._overrides("launch_resident", "conversation")

    def launch_resident(self, turn: Turn) -> Launch:
        """What to start for a sticky run. `stdin` stays empty: the conversation sends everything."""
        raise NotImplementedError

    def conversation(self, turn: Turn) -> Conversation:
        raise NotImplementedError

    # Optional: a list of models.

    @property
    def lists_models(self) -> bool:
        return self._overrides("model_query")

    def launch_models(self, turn: Turn) -> Launch:
        """What to start. `stdin` stays empty: the query sends everything."""
        return self.launch_resident(turn)

    def model_query(self, turn: Turn) -> ModelQuery:
        raise NotImplementedError

    # Optional: a session that can be resumed in a copy of its home, by another run.

    @property
    def moves_sessions(self) -> bool:
        return self._overrides("move_session")

    def move_session(self, old_cwd: str, new_cwd: str) -> SessionMove:
        raise NotImplementedError

    # Optional: a gate, which is asked before each call of a tool. Its launches configure the command of `Turn.gate`.

    @property
    def has_gate(self) -> bool:
        return self._overrides("gate", "read_hook")

    def gate(self, probe: Probe) -> GateKind:
        """How a call waits for an approval in the installed version."""
        return GateKind.NONE

    def read_hook(self, payload: Json) -> HookCall | None:
        """The call that a hook is about; None if it only shows that hooks work. Raises `ValueError`."""
        raise NotImplementedError

    def allow_call(self) -> HookAnswer:
        return HookAnswer()

    def park_call(self, reason: str) -> HookAnswer:
        """The answer to a call that must not be made now. `reason` is for the model, if the engine passes it on."""
        return denied(reason)

    def _overrides(self, *methods: str) -> bool:
        return all(getattr(type(self), name) is not getattr(Engine, name) for name in methods)


class HandleInvalid(ValueError):
    """A handle that does not have the engine's format. It never reaches a command line."""


def session_of(engine: Engine, handle: Handle) -> str:
    """The handle's value, if the handle belongs to this engine and has its format."""
    if handle.engine != engine.name or handle.handle_type != engine.handle_type:
        raise HandleInvalid(f"the handle belongs to {handle.engine} ({handle.handle_type}), not to {engine.name}")
    if not engine.handle_pattern.fullmatch(handle.handle_value):
        raise HandleInvalid(f"the handle is not a session id of {engine.name}")
    return handle.handle_value
