"""The exceptions of the client.

CallFailed
├── TokenUnusable        the token contains characters that cannot be sent
├── ServerUnreachable    the connection failed or was lost
├── WaitTimedOut         the run neither asked nor ended in time; also a TimeoutError
├── AnswerUnreadable     the response is not from an Askback server
└── Refused              an error response: `code`, `status`, `message`, `problems`, `answered_with`
    ├── Unauthorized     401: no valid token
    ├── Forbidden        403: the token lacks a scope
    ├── NotFound         404
    ├── Conflict         409: not possible in the current state
    └── ServerFault      5xx: the server has a problem
"""

from __future__ import annotations

from collections.abc import Sequence

from askback.wire.base import Actor


class CallFailed(Exception):
    """A call failed. `message` says why."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class TokenUnusable(CallFailed):
    def __init__(self) -> None:
        super().__init__("the token contains an invalid character; copy it exactly as the server printed it")


class WaitTimedOut(CallFailed, TimeoutError):
    def __init__(self, run_id: str, timeout_sec: float) -> None:
        super().__init__(f"run {run_id} is still running after {timeout_sec:g} s; wait again, or cancel it")
        self.run_id = run_id
        self.timeout_sec = timeout_sec


class ServerUnreachable(CallFailed):
    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"cannot reach the server at {url}: {reason}")
        self.url = url
        self.reason = reason


class AnswerUnreadable(CallFailed):
    pass


class Refused(CallFailed):
    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        problems: Sequence[str] = (),
        answered_with: Actor | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.problems = tuple(problems)
        self.answered_with = answered_with
        """Who closed the question before, if that is why the call was refused."""


class Unauthorized(Refused):
    pass


class Forbidden(Refused):
    pass


class NotFound(Refused):
    pass


class Conflict(Refused):
    pass


class ServerFault(Refused):
    pass


_KINDS: dict[int, type[Refused]] = {401: Unauthorized, 403: Forbidden, 404: NotFound, 409: Conflict}


def refusal(
    status: int, code: str, message: str, problems: Sequence[str] = (), answered_with: Actor | None = None
) -> Refused:
    kind = ServerFault if status >= 500 else _KINDS.get(status, Refused)
    return kind(status, code, message, problems, answered_with)
