"""All codes: the errors that end a run, the warnings of a run, and the refusals of a request.

A failed run is a value, a `RunError` with an `ErrorCode`. A caller's mistake, or a machine that cannot do
the work, is an exception with a `RefusalCode`. HTTP and the command line map the five kinds, never single
codes. Each code is written once, with its meaning and, for a refusal, its kind:

    AskbackError
    ├── Invalid       the request is not valid; `problems` lists each problem with its path
    ├── NotFound      there is no such run, skill, question or file
    ├── Conflict      the request is not possible in the current state
    ├── Forbidden     the caller may not do this
    └── Unavailable   this machine, file or disk cannot do the work now
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum, auto
from typing import Self

from askback.core.actors import Actor
from askback.core.values import OpenValue

FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""No space left: on the disk, for this user, or for a file of that size."""
TEMPORARY = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY})
"""The system is short of processes, memory or open files; the same call may succeed a moment later."""


class ErrorCode(OpenValue):
    """Why a run failed. Each code means one thing and is never reused."""

    SESSION_RESUME_FAILED = auto(), "The engine could not resume the run's session, or there is no session to resume."
    INTERACTION_WAIT_TIMEOUT = auto(), "A sticky run's deadline passed without a reply; its process was ended."
    INTERACTION_PROCESS_LOST = auto(), "A sticky run's process ended while it waited for a reply."
    INTERACTIVE_MAX_ATTEMPT_EXCEEDED = (
        auto(),
        "The last turn that `max_attempt` allows ended without completion evidence.",
    )
    ASK_USER_PAYLOAD_INVALID = (
        auto(),
        "With strict validation: the engine's question has no `interaction_id` or no `prompt`.",
    )
    OUTPUT_SCHEMA_INVALID = (
        auto(),
        "The output did not pass its schema, or named a file that does not exist, even after the allowed repair turns.",
    )
    ORCHESTRATOR_RESTART_INTERRUPTED = (
        auto(),
        "The turn was interrupted more often than it may be restarted: by restarts of the server, by an unusable database, or by a disk that the run itself has filled. The message names the last cause.",
    )
    ENGINE_NOT_FOUND = auto(), "The engine's program is not installed or cannot be started."
    ENGINE_AUTH_REQUIRED = auto(), "The engine is not signed in, or its key was refused."
    ENGINE_RATE_LIMITED = (
        auto(),
        "The model provider allows no more for now: rate limit, usage limit, quota, credits or spending cap.",
    )
    ENGINE_UNREACHABLE = auto(), "The engine could not connect to the model provider."
    ENGINE_API_ERROR = auto(), "The model provider returned an error, refused, or closed the connection."
    ENGINE_CRASHED = auto(), "The engine ended without its end-of-turn event."
    SCRIPT_INVALID = auto(), "The script of the engine `scripted` cannot be played; `detail` says why."
    TURN_TIMEOUT = auto(), "The turn took longer than `turn_timeout_sec`; the engine was ended."
    OUTPUT_LIMIT_EXCEEDED = auto(), "The engine printed more in one turn than `limits.output` allows; it was ended."
    ENGINE_START_FAILED = (
        auto(),
        "For several minutes the machine had no processes, memory or open files left to start the engine.",
    )
    WORKDIR_UNAVAILABLE = (
        auto(),
        "The run's `workdir` is no longer there, was replaced by a link, is not allowed any more, or cannot be used; the message says which.",
    )
    RESOURCE_LIMIT_EXCEEDED = (
        auto(),
        "The engine exceeded a resource limit, in a turn or while a sticky run waited; it was ended with all its processes. `cause` is one of the next four; the message has the figures and the setting.",
    )
    MEMORY_LIMIT = auto(), "As a cause: the engine and its descendants used more memory than `limits.memory`."
    PROCESS_LIMIT = (
        auto(),
        "As a cause: the engine had more processes than `limits.processes`, or 16 times as many threads.",
    )
    CPU_LIMIT = auto(), "As a cause: the engine and its descendants used more CPU time than `limits.cpu_sec`."
    DISK_LIMIT = (
        auto(),
        "As a cause: the run's files took more room than `limits.disk`, its home has too many files to be saved, or the run used up the disk's last free space (`limits.disk_reserve`).",
    )
    PERMISSION_GATE_FAILED = (
        auto(),
        "The engine did not ask the gate of the run's `permissions` before it used a tool, or the gate could not work. The engine was ended.",
    )
    INTERNAL_ERROR = auto(), "An error in Askback itself; `detail` says where, the log has the rest."


class WarningCode(OpenValue):
    """What a run may report without failing."""

    INTERACTIVE_COMPLETED_WITHOUT_DONE_MARKER = (
        auto(),
        "The output passed its schema, but the engine did not say that it was done.",
    )
    ASK_USER_PAYLOAD_INVALID = (
        auto(),
        "The engine's question was malformed. If the run waits, the question shown was made from the engine's message.",
    )
    AUTO_RUN_ASKED = auto(), "The engine asked a question in `auto` mode, where nobody can answer."
    ENGINE_LINE_TRUNCATED = auto(), "A line of the engine was longer than `limits.line`; it was left out."
    SIGN_IN_CHANGE_REFUSED = auto(), "The engine changed more than the tokens in its sign-in; no change was saved."
    ASSISTANT_TEXT_TRUNCATED = (
        auto(),
        "A turn had more than 5,000 assistant messages, or more than 8 million characters in them; only the newest were read.",
    )
    EVENTS_TRUNCATED = (
        auto(),
        "A turn had more events, or longer ones, than are kept; the turn's raw output has all of them.",
    )
    QUESTION_TRUNCATED = (
        auto(),
        "The engine's question was larger than a question may be; parts of it were cut or left out.",
    )
    RESPONSE_SCHEMA_IGNORED = (
        auto(),
        "The `response_schema` of the engine's question is neither a scalar nor a flat object; the question takes any answer.",
    )
    PERMISSION_NOT_ASKED = (
        auto(),
        "A tool call needed an approval. It was denied, because nobody can be asked in `auto` mode.",
    )
    EFFORT_IGNORED = auto(), "The skill or the settings name an `effort`, but the installed engine has no such option."
    CONTEXT_REBUILT = (
        auto(),
        "The engine had lost the run's session. A new session was started with the skill, its input, and the questions and answers so far; what else was said or done in the lost session is not in it.",
    )
    ENGINE_START_DELAYED = (
        auto(),
        "The system was short of processes, memory or open files; the engine was started later.",
    )
    WORKDIR_TURN_REPEATED = (
        auto(),
        "An interrupted turn was repeated in the run's `workdir`, which still has what the first attempt changed there.",
    )
    WORKDIR_GIT_CREATED = (
        auto(),
        "A git repository has appeared in the run's `workdir`, or one was replaced. Its configuration can name programs that git runs: look at it before you use git there.",
    )
    ARTIFACTS_NOT_COLLECTED = (
        auto(),
        "Files in `artifacts/` of the run's `workdir` could not be copied to the run; they are still in that folder.",
    )
    FILES_NOT_KEPT = (
        auto(),
        "Files of the run could not be put into the store of `files`, for example because they are too large. They are only on the machine of its last turn; the message says why, and whether the run can continue elsewhere.",
    )


class LimitKind(OpenValue):
    """Of what the model provider allows no more for now."""

    RATE = "rate", "Requests or tokens per time, usually for seconds or minutes."
    USAGE_WINDOW = "usage_window", "The use that a plan includes, for example per five hours or per week."
    QUOTA = "quota", "A quota of the account or project, for example per day."
    CREDITS = "credits", "Prepaid credits or a balance: somebody has to pay."
    SPENDING_CAP = "spending_cap", "A cap that the owner of the account has set."


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A limit of the model provider. `resets_at` is None if it is not known."""

    kind: LimitKind
    resets_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunError:
    """Why a run failed: `message` is for people, `cause` a finer code, `detail` the engine's own words."""

    code: ErrorCode
    message: str
    cause: ErrorCode | None = None
    detail: str | None = None
    limit: Limit | None = None
    """If the code or the cause is `ENGINE_RATE_LIMITED`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWarning:
    code: WarningCode
    message: str


class FieldCode(StrEnum):
    """What is wrong with a field of a request."""

    REQUIRED = "required"
    UNKNOWN = "unknown"
    INVALID = "invalid"


class FieldProblem(str):
    """A mistake in a request: text for people, such as `input.days: is required`, with its parts for programs."""

    path: tuple[str | int, ...]
    """The names and indexes that lead to the field. Empty: it is about the whole request."""
    code: str
    """A `FieldCode`, or one of a newer version."""
    message: str
    """The text without the path."""

    def __new__(cls, text: str, path: Sequence[str | int] = (), message: str | None = None, code: str = "") -> Self:
        made = super().__new__(cls, text)
        made.path, made.code = tuple(path), code or FieldCode.INVALID
        made.message = text if message is None else message
        return made

    @classmethod
    def at(cls, path: Sequence[str | int], message: str, code: str = "", *, place: str | None = None) -> Self:
        """`place` is the path as text, if it is not simply `a.b[3]`."""
        if place is None:
            place = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in path).removeprefix(".")
        return cls(f"{place}: {message}", path, message, code)

    def inner(self) -> FieldProblem:
        """The same problem for a reader who sees the fields of the first object in the path, without its name."""
        return FieldProblem.at(self.path[1:], self.message, self.code) if len(self.path) > 1 else self

    @classmethod
    def of(cls, text: str) -> FieldProblem:
        """A problem that may be a plain text, which is about the whole request."""
        return text if isinstance(text, FieldProblem) else cls(text)


class AskbackError(Exception):
    """A refused request. `message` says what happened and what to do about it."""

    def __init__(self, code: RefusalCode, message: str, problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.problems = tuple(problems)


class Invalid(AskbackError):
    """The request is not valid."""


class NotFound(AskbackError):
    """There is no such thing."""


class Conflict(AskbackError):
    """The request is not possible in the current state."""


class AlreadyClosed(Conflict):
    """The question was closed before. `answered_with` says by whom, if that is known."""

    def __init__(self, message: str, answered_with: Actor | None) -> None:
        super().__init__(RefusalCode.INTERACTION_NOT_PENDING, message)
        self.answered_with = answered_with


class Forbidden(AskbackError):
    """The caller is not allowed to do this."""


class Unavailable(AskbackError):
    """This machine cannot do the work now."""


class RefusalCode(StrEnum):
    """Why a request was refused, and the kind of exception that it is raised with. A refused request changes nothing."""

    kind: type[AskbackError]
    meaning: str

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[str]) -> str:
        return name

    def __new__(cls, value: str, kind: type[AskbackError], meaning: str) -> Self:
        member = str.__new__(cls, value)
        member._value_, member.kind, member.meaning = value, kind, meaning
        return member

    INPUT_INVALID = auto(), Invalid, "The input, a parameter, an option or an argument is not valid."
    SKILL_INVALID = auto(), Invalid, "The skill package has errors; each is listed with its file and position."
    SETTINGS_INVALID = auto(), Invalid, "The settings file or the environment has errors; each is listed with its key."
    SETTINGS_UNTRUSTED = (
        auto(),
        Invalid,
        "The working directory has a settings file that was not trusted; see `askback trust`.",
    )
    REPLY_INVALID = auto(), Invalid, "The reply does not match the question."
    ENGINE_UNKNOWN = auto(), Invalid, "No engine has that name."
    ENGINE_NOT_FOUND = (
        auto(),
        Invalid,
        "The engine is known, but its program is not installed; the message says what to install.",
    )
    ENGINE_UNSUITABLE = (
        auto(),
        Invalid,
        "The skill, or the session that the run continues, does not allow that engine or mode.",
    )
    PROFILE_UNAVAILABLE = (
        auto(),
        Invalid,
        "The engine does not support the requested profile; the message says what the probe saw.",
    )
    IDEMPOTENCY_KEY_REUSED = auto(), Invalid, "The idempotency key was used before, for another request."
    RUN_NOT_FOUND = auto(), NotFound, "There is no such run."
    SKILL_NOT_FOUND = auto(), NotFound, "There is no such skill."
    SKILL_FILE_NOT_FOUND = auto(), NotFound, "The skill has no such file."
    INTERACTION_NOT_FOUND = auto(), NotFound, "The run has no such question."
    TOKEN_NOT_FOUND = auto(), NotFound, "There is no token with that name."
    SESSION_NOT_FOUND = auto(), NotFound, "There is no such browser session, or it belongs to another token."
    SUBSCRIPTION_NOT_FOUND = auto(), NotFound, "There is no such push subscription, or it belongs to another token."
    LINK_NOT_FOUND = auto(), NotFound, "The pending question has no such link."
    INVITATION_NOT_FOUND = auto(), NotFound, "There is no such invitation, or it was used or has expired."
    UPLOAD_NOT_FOUND = auto(), NotFound, "There is no such upload."
    ARTIFACT_NOT_FOUND = auto(), NotFound, "The run has no such artifact."
    INTERACTION_NOT_PENDING = auto(), Conflict, "That question is not pending."
    RUN_FINAL = auto(), Conflict, "The run is over."
    RUN_NOT_FINAL = auto(), Conflict, "The run is not over yet."
    RUN_HELD = auto(), Conflict, "Another program is executing the run."
    RUN_STALE = auto(), Conflict, "The run has changed since it was read, or another worker holds it."
    STATE_UNSUITABLE = auto(), Conflict, "The run cannot do this in its current state."
    WORKDIR_IN_USE = (
        auto(),
        Conflict,
        "An unfinished run works in that folder, in a part of it, or in a folder around it.",
    )
    WORKDIR_NOT_ALLOWED = auto(), Forbidden, "The `workdirs` of the settings do not allow a run in that folder."
    SCOPE_MISSING = auto(), Forbidden, "The token does not allow this call."
    SKILL_DAMAGED = (
        auto(),
        Unavailable,
        "A stored skill package was changed or is damaged; the message says what to do.",
    )
    STORE_NEWER = auto(), Unavailable, "The database was written by a newer version of Askback."
    STORE_CORRUPT = auto(), Unavailable, "The database is damaged; it was left untouched."
    STORE_READ_ONLY = auto(), Unavailable, "The database cannot be written to."
    STORE_UNUSABLE = auto(), Unavailable, "The database cannot be opened or used; try again after `Retry-After`."
    FILES_UNAVAILABLE = (
        auto(),
        Unavailable,
        "The store of `files`, such as a bucket, cannot be used; the message says why.",
    )
    DISK_FULL = auto(), Unavailable, "The disk is full; everything stored before is safe."
    FILES_UNREMOVABLE = auto(), Unavailable, "Files of the run cannot be removed; the log of the server says why."
    PORT_UNUSABLE = auto(), Unavailable, "The server cannot listen on that address."
    RESOURCE_SHORTAGE = (
        auto(),
        Unavailable,
        "The machine is short of processes, memory or open files; try again after `Retry-After`.",
    )
    SERVER_BUSY = auto(), Unavailable, "Too many requests of this kind are waiting; try again after `Retry-After`."
    NO_WORKER = (
        auto(),
        Unavailable,
        "No program is there that executes runs, so no engine can be chosen; start a worker, or name the engine.",
    )
    BUNDLE_TOO_LARGE = auto(), Invalid, "The run's files exceed the limit of one zip file; fetch them one by one."
    QUOTA_EXCEEDED = auto(), Conflict, "A quota of the token is used up; try again after `Retry-After`."


def is_temporary(fault: BaseException | None) -> bool:
    """Whether a shortage caused the exception, directly or through its `__cause__`."""
    while fault is not None:
        if isinstance(fault, OSError) and fault.errno in TEMPORARY:
            return True
        if isinstance(fault, RuntimeError) and str(fault) == "can't start new thread":
            return True
        fault = fault.__cause__
    return False


def is_outage(fault: BaseException) -> bool:
    """Whether the same work may succeed later: the machine, the database or the disk cannot do it now."""
    return isinstance(fault, Unavailable | OSError | MemoryError) or is_temporary(fault)


def disk_full() -> Unavailable:
    return Unavailable(RefusalCode.DISK_FULL, "the disk is full; free some space and try again")


def shortage(fault: Exception) -> Unavailable:
    """The refusal for a fault that `is_temporary`."""
    cause = (fault.strerror if isinstance(fault, OSError) else None) or fault
    message = f"this machine is short of resources at the moment ({cause}); try again"
    return Unavailable(RefusalCode.RESOURCE_SHORTAGE, message)


def raise_if_temporary(fault: OSError) -> None:
    """Raise `Unavailable` for a shortage, so that a caller does not blame the file that it used."""
    if fault.errno in TEMPORARY:
        raise shortage(fault) from fault
