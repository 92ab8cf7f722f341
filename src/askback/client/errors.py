"""What a call may raise.

CallFailed
├── TokenUnusable        the token cannot be sent: no server has made one like this
├── ServerUnreachable    nobody answers there, or the connection broke
├── WaitTimedOut         the run neither asked nor ended in time; also a TimeoutError
├── AnswerUnreadable     somebody answers, but it is not Askback
└── Refused              the server's own refusal: `code`, `status`, `message`, `problems`
    ├── Unauthorized     401: no valid token
    ├── Forbidden        403: the token may not do this
    ├── NotFound         404
    ├── Conflict         409: not in this state
    └── ServerFault      5xx: the server cannot, now
"""

from __future__ import annotations

from collections.abc import Sequence


class CallFailed(Exception):
    """A call did not come to its answer. `message` says what happened."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class TokenUnusable(CallFailed):
    def __init__(self) -> None:
        super().__init__("the token holds a character that no token has; give it as the server printed it")


class WaitTimedOut(CallFailed, TimeoutError):
    def __init__(self, run_id: str, timeout_sec: float) -> None:
        super().__init__(f"run {run_id} is still at work after {timeout_sec:g} s; wait again, or cancel it")
        self.run_id = run_id
        self.timeout_sec = timeout_sec


class ServerUnreachable(CallFailed):
    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"no server answers on {url}: {reason}")
        self.url = url
        self.reason = reason


class AnswerUnreadable(CallFailed):
    pass


class Refused(CallFailed):
    def __init__(self, status: int, code: str, message: str, problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.problems = tuple(problems)


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


def refusal(status: int, code: str, message: str, problems: Sequence[str] = ()) -> Refused:
    """The refusal of the kind that the status stands for."""
    kind = ServerFault if status >= 500 else _KINDS.get(status, Refused)
    return kind(status, code, message, problems)
