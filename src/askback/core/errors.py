"""All codes: the errors that end a run, the warnings of a run, and the refusals of a request.

A failed run is a value, a `RunError` with an `ErrorCode`. A caller's mistake, or a machine that cannot do
the work, is an exception with a `RefusalCode`. HTTP and the command line map the five kinds, never single
codes:

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
from enum import StrEnum

from askback.core.actors import Actor
from askback.core.open_values import OpenValue

FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""No space left: on the disk, for this user, or for a file of that size."""
TEMPORARY = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY})
"""The system is short of processes, memory or open files; the same call may succeed a moment later."""


class ErrorCode(OpenValue):
    """Why a run failed. Each code means one thing and is never reused."""

    SESSION_RESUME_FAILED = "SESSION_RESUME_FAILED"
    INTERACTION_WAIT_TIMEOUT = "INTERACTION_WAIT_TIMEOUT"
    INTERACTION_PROCESS_LOST = "INTERACTION_PROCESS_LOST"
    INTERACTIVE_MAX_ATTEMPT_EXCEEDED = "INTERACTIVE_MAX_ATTEMPT_EXCEEDED"
    ASK_USER_PAYLOAD_INVALID = "ASK_USER_PAYLOAD_INVALID"
    OUTPUT_SCHEMA_INVALID = "OUTPUT_SCHEMA_INVALID"
    ORCHESTRATOR_RESTART_INTERRUPTED = "ORCHESTRATOR_RESTART_INTERRUPTED"
    ENGINE_NOT_FOUND = "ENGINE_NOT_FOUND"
    ENGINE_AUTH_REQUIRED = "ENGINE_AUTH_REQUIRED"
    ENGINE_RATE_LIMITED = "ENGINE_RATE_LIMITED"
    ENGINE_UNREACHABLE = "ENGINE_UNREACHABLE"
    ENGINE_API_ERROR = "ENGINE_API_ERROR"
    ENGINE_CRASHED = "ENGINE_CRASHED"
    SCRIPT_INVALID = "SCRIPT_INVALID"
    TURN_TIMEOUT = "TURN_TIMEOUT"
    OUTPUT_LIMIT_EXCEEDED = "OUTPUT_LIMIT_EXCEEDED"
    ENGINE_START_FAILED = "ENGINE_START_FAILED"
    WORKDIR_UNAVAILABLE = "WORKDIR_UNAVAILABLE"
    RESOURCE_LIMIT_EXCEEDED = "RESOURCE_LIMIT_EXCEEDED"
    MEMORY_LIMIT = "MEMORY_LIMIT"
    PROCESS_LIMIT = "PROCESS_LIMIT"
    CPU_LIMIT = "CPU_LIMIT"
    DISK_LIMIT = "DISK_LIMIT"
    INTERNAL_ERROR = "INTERNAL_ERROR"


ERROR_MEANINGS: dict[ErrorCode, str] = {
    ErrorCode.SESSION_RESUME_FAILED: "The engine could not resume the run's session, or there is no session to resume.",
    ErrorCode.INTERACTION_WAIT_TIMEOUT: "A sticky run's deadline passed without a reply; its process was ended.",
    ErrorCode.INTERACTION_PROCESS_LOST: "A sticky run's process ended while it waited for a reply.",
    ErrorCode.INTERACTIVE_MAX_ATTEMPT_EXCEEDED: "The last turn that `max_attempt` allows ended without completion evidence.",
    ErrorCode.ASK_USER_PAYLOAD_INVALID: "With strict validation: the engine's question has no `interaction_id` or no `prompt`.",
    ErrorCode.OUTPUT_SCHEMA_INVALID: "The output did not pass its schema, or named a file that does not exist, even after the allowed repair turns.",
    ErrorCode.ORCHESTRATOR_RESTART_INTERRUPTED: "The turn was interrupted more often than it may be restarted: by restarts of the server, by an unusable database, or by a disk that the run itself has filled. The message names the last cause.",
    ErrorCode.ENGINE_NOT_FOUND: "The engine's program is not installed or cannot be started.",
    ErrorCode.ENGINE_AUTH_REQUIRED: "The engine is not signed in, or its key was refused.",
    ErrorCode.ENGINE_RATE_LIMITED: "The model provider allows no more for now: rate limit, usage limit, quota, credits or spending cap.",
    ErrorCode.ENGINE_UNREACHABLE: "The engine could not connect to the model provider.",
    ErrorCode.ENGINE_API_ERROR: "The model provider returned an error, refused, or closed the connection.",
    ErrorCode.ENGINE_CRASHED: "The engine ended without its end-of-turn event.",
    ErrorCode.SCRIPT_INVALID: "The script of the engine `scripted` cannot be played; `detail` says why.",
    ErrorCode.TURN_TIMEOUT: "The turn took longer than `turn_timeout_sec`; the engine was ended.",
    ErrorCode.OUTPUT_LIMIT_EXCEEDED: "The engine printed more in one turn than `limits.output` allows; it was ended.",
    ErrorCode.ENGINE_START_FAILED: "For several minutes the machine had no processes, memory or open files left to start the engine.",
    ErrorCode.WORKDIR_UNAVAILABLE: "The run's `workdir` is no longer there, was replaced by a link, is not allowed any more, or cannot be used; the message says which.",
    ErrorCode.RESOURCE_LIMIT_EXCEEDED: "The engine exceeded a resource limit, in a turn or while a sticky run waited; it was ended with all its processes. `cause` is one of the next four; the message has the figures and the setting.",
    ErrorCode.MEMORY_LIMIT: "As a cause: the engine and its descendants used more memory than `limits.memory`.",
    ErrorCode.PROCESS_LIMIT: "As a cause: the engine had more processes than `limits.processes`, or 16 times as many threads.",
    ErrorCode.CPU_LIMIT: "As a cause: the engine and its descendants used more CPU time than `limits.cpu_sec`.",
    ErrorCode.DISK_LIMIT: "As a cause: the run's files took more room than `limits.disk`, or the run used up the disk's last free space (`limits.disk_reserve`).",
    ErrorCode.INTERNAL_ERROR: "An error in Askback itself; `detail` says where, the log has the rest.",
}


class WarningCode(OpenValue):
    """What a run may report without failing."""

    INTERACTIVE_COMPLETED_WITHOUT_DONE_MARKER = "INTERACTIVE_COMPLETED_WITHOUT_DONE_MARKER"
    ASK_USER_PAYLOAD_INVALID = "ASK_USER_PAYLOAD_INVALID"
    AUTO_RUN_ASKED = "AUTO_RUN_ASKED"
    ENGINE_LINE_TRUNCATED = "ENGINE_LINE_TRUNCATED"
    SIGN_IN_CHANGE_REFUSED = "SIGN_IN_CHANGE_REFUSED"
    ASSISTANT_TEXT_TRUNCATED = "ASSISTANT_TEXT_TRUNCATED"
    EVENTS_TRUNCATED = "EVENTS_TRUNCATED"
    QUESTION_TRUNCATED = "QUESTION_TRUNCATED"
    RESPONSE_SCHEMA_IGNORED = "RESPONSE_SCHEMA_IGNORED"
    EFFORT_IGNORED = "EFFORT_IGNORED"
    CONTEXT_REBUILT = "CONTEXT_REBUILT"
    ENGINE_START_DELAYED = "ENGINE_START_DELAYED"
    WORKDIR_TURN_REPEATED = "WORKDIR_TURN_REPEATED"
    WORKDIR_GIT_CREATED = "WORKDIR_GIT_CREATED"
    ARTIFACTS_NOT_COLLECTED = "ARTIFACTS_NOT_COLLECTED"
    FILES_NOT_KEPT = "FILES_NOT_KEPT"


WARNING_MEANINGS: dict[WarningCode, str] = {
    WarningCode.INTERACTIVE_COMPLETED_WITHOUT_DONE_MARKER: "The output passed its schema, but the engine did not say that it was done.",
    WarningCode.ASK_USER_PAYLOAD_INVALID: "The engine's question was malformed. If the run waits, the question shown was made from the engine's message.",
    WarningCode.AUTO_RUN_ASKED: "The engine asked a question in `auto` mode, where nobody can answer.",
    WarningCode.ENGINE_LINE_TRUNCATED: "A line of the engine was longer than `limits.line`; it was left out.",
    WarningCode.SIGN_IN_CHANGE_REFUSED: "The engine changed more than the tokens in its sign-in; no change was saved.",
    WarningCode.ASSISTANT_TEXT_TRUNCATED: "A turn had more than 5,000 assistant messages, or more than 8 million characters in them; only the newest were read.",
    WarningCode.EVENTS_TRUNCATED: "A turn had more events, or longer ones, than are kept; the turn's raw output has all of them.",
    WarningCode.QUESTION_TRUNCATED: "The engine's question was larger than a question may be; parts of it were cut or left out.",
    WarningCode.RESPONSE_SCHEMA_IGNORED: "The `response_schema` of the engine's question is neither a scalar nor a flat object; the question takes any answer.",
    WarningCode.EFFORT_IGNORED: "The skill or the settings name an `effort`, but the installed engine has no such option.",
    WarningCode.CONTEXT_REBUILT: "The engine had lost the run's session. A new session was started with the skill, its input, and the questions and answers so far; what else was said or done in the lost session is not in it.",
    WarningCode.ENGINE_START_DELAYED: "The system was short of processes, memory or open files; the engine was started later.",
    WarningCode.WORKDIR_TURN_REPEATED: "An interrupted turn was repeated in the run's `workdir`, which still has what the first attempt changed there.",
    WarningCode.WORKDIR_GIT_CREATED: "A git repository has appeared in the run's `workdir`, or one was replaced. Its configuration can name programs that git runs: look at it before you use git there.",
    WarningCode.ARTIFACTS_NOT_COLLECTED: "Files in `artifacts/` of the run's `workdir` could not be copied to the run; they are still in that folder.",
    WarningCode.FILES_NOT_KEPT: "Files of the run could not be put into the store of `files`, for example because they are too large. They are only on the machine of its last turn; the message says why, and whether the run can continue elsewhere.",
}


class RefusalCode(StrEnum):
    """Why a request was refused. A refused request changes nothing."""

    INPUT_INVALID = "INPUT_INVALID"
    SKILL_INVALID = "SKILL_INVALID"
    SETTINGS_INVALID = "SETTINGS_INVALID"
    SETTINGS_UNTRUSTED = "SETTINGS_UNTRUSTED"
    REPLY_INVALID = "REPLY_INVALID"
    ENGINE_UNKNOWN = "ENGINE_UNKNOWN"
    ENGINE_NOT_FOUND = "ENGINE_NOT_FOUND"
    ENGINE_UNSUITABLE = "ENGINE_UNSUITABLE"
    PROFILE_UNAVAILABLE = "PROFILE_UNAVAILABLE"
    IDEMPOTENCY_KEY_REUSED = "IDEMPOTENCY_KEY_REUSED"
    RUN_NOT_FOUND = "RUN_NOT_FOUND"
    SKILL_NOT_FOUND = "SKILL_NOT_FOUND"
    SKILL_FILE_NOT_FOUND = "SKILL_FILE_NOT_FOUND"
    INTERACTION_NOT_FOUND = "INTERACTION_NOT_FOUND"
    TOKEN_NOT_FOUND = "TOKEN_NOT_FOUND"
    SESSION_NOT_FOUND = "SESSION_NOT_FOUND"
    SUBSCRIPTION_NOT_FOUND = "SUBSCRIPTION_NOT_FOUND"
    LINK_NOT_FOUND = "LINK_NOT_FOUND"
    INVITATION_NOT_FOUND = "INVITATION_NOT_FOUND"
    UPLOAD_NOT_FOUND = "UPLOAD_NOT_FOUND"
    ARTIFACT_NOT_FOUND = "ARTIFACT_NOT_FOUND"
    INTERACTION_NOT_PENDING = "INTERACTION_NOT_PENDING"
    RUN_FINAL = "RUN_FINAL"
    RUN_NOT_FINAL = "RUN_NOT_FINAL"
    RUN_HELD = "RUN_HELD"
    RUN_STALE = "RUN_STALE"
    STATE_UNSUITABLE = "STATE_UNSUITABLE"
    WORKDIR_IN_USE = "WORKDIR_IN_USE"
    WORKDIR_NOT_ALLOWED = "WORKDIR_NOT_ALLOWED"
    SCOPE_MISSING = "SCOPE_MISSING"
    SKILL_DAMAGED = "SKILL_DAMAGED"
    STORE_NEWER = "STORE_NEWER"
    STORE_CORRUPT = "STORE_CORRUPT"
    STORE_READ_ONLY = "STORE_READ_ONLY"
    STORE_UNUSABLE = "STORE_UNUSABLE"
    FILES_UNAVAILABLE = "FILES_UNAVAILABLE"
    DISK_FULL = "DISK_FULL"
    FILES_UNREMOVABLE = "FILES_UNREMOVABLE"
    PORT_UNUSABLE = "PORT_UNUSABLE"
    RESOURCE_SHORTAGE = "RESOURCE_SHORTAGE"
    SERVER_BUSY = "SERVER_BUSY"
    NO_WORKER = "NO_WORKER"
    BUNDLE_TOO_LARGE = "BUNDLE_TOO_LARGE"
    QUOTA_EXCEEDED = "QUOTA_EXCEEDED"


REFUSAL_MEANINGS: dict[RefusalCode, str] = {
    RefusalCode.INPUT_INVALID: "The input, a parameter, an option or an argument is not valid.",
    RefusalCode.SKILL_INVALID: "The skill package has errors; each is listed with its file and position.",
    RefusalCode.SETTINGS_INVALID: "The settings file or the environment has errors; each is listed with its key.",
    RefusalCode.SETTINGS_UNTRUSTED: "The working directory has a settings file that was not trusted; see `askback trust`.",
    RefusalCode.REPLY_INVALID: "The reply does not match the question.",
    RefusalCode.ENGINE_UNKNOWN: "No engine has that name.",
    RefusalCode.ENGINE_NOT_FOUND: "The engine is known, but its program is not installed; the message says what to install.",
    RefusalCode.ENGINE_UNSUITABLE: "The skill, or the session that the run continues, does not allow that engine or mode.",
    RefusalCode.PROFILE_UNAVAILABLE: "The engine does not support the requested profile; the message says what the probe saw.",
    RefusalCode.IDEMPOTENCY_KEY_REUSED: "The idempotency key was used before, for another request.",
    RefusalCode.RUN_NOT_FOUND: "There is no such run.",
    RefusalCode.SKILL_NOT_FOUND: "There is no such skill.",
    RefusalCode.SKILL_FILE_NOT_FOUND: "The skill has no such file.",
    RefusalCode.INTERACTION_NOT_FOUND: "The run has no such question.",
    RefusalCode.TOKEN_NOT_FOUND: "There is no token with that name.",
    RefusalCode.SESSION_NOT_FOUND: "There is no such browser session, or it belongs to another token.",
    RefusalCode.SUBSCRIPTION_NOT_FOUND: "There is no such push subscription, or it belongs to another token.",
    RefusalCode.LINK_NOT_FOUND: "The pending question has no such link.",
    RefusalCode.INVITATION_NOT_FOUND: "There is no such invitation, or it was used or has expired.",
    RefusalCode.UPLOAD_NOT_FOUND: "There is no such upload.",
    RefusalCode.ARTIFACT_NOT_FOUND: "The run has no such artifact.",
    RefusalCode.INTERACTION_NOT_PENDING: "That question is not pending.",
    RefusalCode.RUN_FINAL: "The run is over.",
    RefusalCode.RUN_NOT_FINAL: "The run is not over yet.",
    RefusalCode.RUN_HELD: "Another program is executing the run.",
    RefusalCode.RUN_STALE: "The run has changed since it was read, or another worker holds it.",
    RefusalCode.STATE_UNSUITABLE: "The run cannot do this in its current state.",
    RefusalCode.WORKDIR_IN_USE: "An unfinished run works in that folder, in a part of it, or in a folder around it.",
    RefusalCode.WORKDIR_NOT_ALLOWED: "The `workdirs` of the settings do not allow a run in that folder.",
    RefusalCode.SCOPE_MISSING: "The token does not allow this call.",
    RefusalCode.SKILL_DAMAGED: "A stored skill package was changed or is damaged; the message says what to do.",
    RefusalCode.STORE_NEWER: "The database was written by a newer version of Askback.",
    RefusalCode.STORE_CORRUPT: "The database is damaged; it was left untouched.",
    RefusalCode.STORE_READ_ONLY: "The database cannot be written to.",
    RefusalCode.STORE_UNUSABLE: "The database cannot be opened or used; try again after `Retry-After`.",
    RefusalCode.FILES_UNAVAILABLE: "The store of `files`, such as a bucket, cannot be used; the message says why.",
    RefusalCode.DISK_FULL: "The disk is full; everything stored before is safe.",
    RefusalCode.FILES_UNREMOVABLE: "Files of the run cannot be removed; the log of the server says why.",
    RefusalCode.PORT_UNUSABLE: "The server cannot listen on that address.",
    RefusalCode.RESOURCE_SHORTAGE: "The machine is short of processes, memory or open files; try again after `Retry-After`.",
    RefusalCode.SERVER_BUSY: "Too many requests of this kind are waiting; try again after `Retry-After`.",
    RefusalCode.NO_WORKER: "No program is there that executes runs, so no engine can be chosen; start a worker, or name the engine.",
    RefusalCode.BUNDLE_TOO_LARGE: "The run's files exceed the limit of one zip file; fetch them one by one.",
    RefusalCode.QUOTA_EXCEEDED: "A quota of the token is used up; try again after `Retry-After`.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunError:
    """Why a run failed: `message` is for people, `cause` a finer code, `detail` the engine's own words."""

    code: ErrorCode
    message: str
    cause: ErrorCode | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWarning:
    code: WarningCode
    message: str


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


REFUSAL_KINDS: dict[RefusalCode, type[AskbackError]] = {
    RefusalCode.INPUT_INVALID: Invalid,
    RefusalCode.SKILL_INVALID: Invalid,
    RefusalCode.SETTINGS_INVALID: Invalid,
    RefusalCode.SETTINGS_UNTRUSTED: Invalid,
    RefusalCode.REPLY_INVALID: Invalid,
    RefusalCode.ENGINE_UNKNOWN: Invalid,
    RefusalCode.ENGINE_NOT_FOUND: Invalid,
    RefusalCode.ENGINE_UNSUITABLE: Invalid,
    RefusalCode.PROFILE_UNAVAILABLE: Invalid,
    RefusalCode.IDEMPOTENCY_KEY_REUSED: Invalid,
    RefusalCode.RUN_NOT_FOUND: NotFound,
    RefusalCode.SKILL_NOT_FOUND: NotFound,
    RefusalCode.SKILL_FILE_NOT_FOUND: NotFound,
    RefusalCode.INTERACTION_NOT_FOUND: NotFound,
    RefusalCode.TOKEN_NOT_FOUND: NotFound,
    RefusalCode.SESSION_NOT_FOUND: NotFound,
    RefusalCode.SUBSCRIPTION_NOT_FOUND: NotFound,
    RefusalCode.LINK_NOT_FOUND: NotFound,
    RefusalCode.INVITATION_NOT_FOUND: NotFound,
    RefusalCode.UPLOAD_NOT_FOUND: NotFound,
    RefusalCode.ARTIFACT_NOT_FOUND: NotFound,
    RefusalCode.INTERACTION_NOT_PENDING: Conflict,
    RefusalCode.RUN_FINAL: Conflict,
    RefusalCode.RUN_NOT_FINAL: Conflict,
    RefusalCode.RUN_HELD: Conflict,
    RefusalCode.RUN_STALE: Conflict,
    RefusalCode.STATE_UNSUITABLE: Conflict,
    RefusalCode.WORKDIR_IN_USE: Conflict,
    RefusalCode.WORKDIR_NOT_ALLOWED: Forbidden,
    RefusalCode.SCOPE_MISSING: Forbidden,
    RefusalCode.SKILL_DAMAGED: Unavailable,
    RefusalCode.STORE_NEWER: Unavailable,
    RefusalCode.STORE_CORRUPT: Unavailable,
    RefusalCode.STORE_READ_ONLY: Unavailable,
    RefusalCode.STORE_UNUSABLE: Unavailable,
    RefusalCode.FILES_UNAVAILABLE: Unavailable,
    RefusalCode.DISK_FULL: Unavailable,
    RefusalCode.FILES_UNREMOVABLE: Unavailable,
    RefusalCode.PORT_UNUSABLE: Unavailable,
    RefusalCode.RESOURCE_SHORTAGE: Unavailable,
    RefusalCode.SERVER_BUSY: Unavailable,
    RefusalCode.NO_WORKER: Unavailable,
    RefusalCode.BUNDLE_TOO_LARGE: Invalid,
    RefusalCode.QUOTA_EXCEEDED: Conflict,
}
"""The kind of exception that each code is raised with."""


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
