"""Why a turn failed: determined from the engine's error text, an HTTP status, or how the program ended.

The patterns match texts that the programs were observed to print. Add new wordings to this table, with a test.
"""

from __future__ import annotations

import re

from askback.core.errors import ErrorCode
from askback.engines.base import Exit, TurnFailed
from askback.engines.protocols.json_lines import as_detail

# Rate, usage window, quota, credits and spending cap: all that an account has no more of for now.
_LIMIT = re.compile(
    r"\b4(02|29)\b|rate.?limit|(usage|hour|daily|weekly|monthly) limit|too many requests|quota|resource_exhausted"
    r"|spend(ing)? (cap|limit)|out of credits|credit balance|credits? .{0,20}(deplet|exhaust)|insufficient (balance|credit|fund)"
    r"|payment required",
    re.IGNORECASE,
)
# The order matters: a quota message often mentions the key too, and a message about a lost connection the address.
_SIGNS: tuple[tuple[ErrorCode, re.Pattern[str]], ...] = (
    (ErrorCode.ENGINE_RATE_LIMITED, _LIMIT),
    (
        ErrorCode.ENGINE_AUTH_REQUIRED,
        re.compile(
            r"\b40[13]\b|unauthori[sz]ed|unauthenticated|api.?key|not (logged|signed) in|\blog ?in\b|\bsign in\b|credential"
            r"|auth (type|method)|oauth",
            re.IGNORECASE,
        ),
    ),
    # The server was reached, and then the connection was lost.
    (
        ErrorCode.ENGINE_API_ERROR,
        re.compile(r"ECONNRESET|socket hang up|connection .{0,40}(lost|reset|closed)|disconnected", re.IGNORECASE),
    ),
    (
        ErrorCode.ENGINE_UNREACHABLE,
        re.compile(
            r"\bECONN|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|fetch failed|waiting for network"
            r"|connection (failed|refused|error)|(unable|could not) (to )?connect|ConnectError|error sending request|unreachable|getaddrinfo",
            re.IGNORECASE,
        ),
    ),
    (
        ErrorCode.ENGINE_API_ERROR,
        re.compile(r"\b5\d\d\b|\b5xx\b|internal (server )?error|overloaded|bad gateway|unavailable", re.IGNORECASE),
    ),
)
_STACK_LINE = re.compile(r"^\s+at .*$", re.MULTILINE)


def known_failure(words: str) -> ErrorCode | None:
    """The code for a recognized error text, otherwise None. Stack trace lines are ignored."""
    message = _STACK_LINE.sub("", words)
    return next((code for code, sign in _SIGNS if sign.search(message)), None)


def failure_of(words: str) -> ErrorCode:
    """The code for an engine's error text; `ENGINE_API_ERROR` if it is not recognized."""
    return known_failure(words) or ErrorCode.ENGINE_API_ERROR


def failure_of_status(status: int, words: str) -> ErrorCode:
    """The code for an error with an HTTP status. Without one (0), the error text decides."""
    match status:
        case 401 | 403:
            return ErrorCode.ENGINE_AUTH_REQUIRED
        case 402 | 429:
            return ErrorCode.ENGINE_RATE_LIMITED
        case 0:
            return failure_of(words)
        # An exhausted balance can be a bad request.
        case 400 if _LIMIT.search(words):
            return ErrorCode.ENGINE_RATE_LIMITED
        case _:
            return ErrorCode.ENGINE_API_ERROR


def ended_badly(code: ErrorCode, words: str) -> TurnFailed:
    """The result of a turn that the engine ended with an error."""
    return TurnFailed(code=code, message="the engine ended its turn with an error", detail=as_detail(words))


def unknown_session(words: str) -> TurnFailed:
    """The result of resuming a session that the engine does not find."""
    message = "the engine does not know the session, or no longer has it"
    return TurnFailed(code=ErrorCode.SESSION_RESUME_FAILED, message=message, detail=as_detail(words))


def stopped(ended: Exit, retrying: str, said: str = "") -> TurnFailed | None:
    """The result of a turn that Askback stopped; None if the program ended by itself.

    `retrying` is the engine's last retry notice, or empty if it made progress after that. If the turn timed out while
    the engine was retrying a known failure, the code is that of the failure. `said` is what it printed to stderr.
    """
    detail = as_detail(retrying or said)
    if ended.over_limit:
        message = "the engine printed more than the limit for one turn"
        return TurnFailed(code=ErrorCode.OUTPUT_LIMIT_EXCEEDED, message=message, detail=detail)
    if not ended.timed_out:
        return None
    if (code := known_failure(retrying)) is not None:
        message = "the turn's time ran out while the engine was retrying a failed request"
        return TurnFailed(code=code, message=message, detail=detail)
    return TurnFailed(code=ErrorCode.TURN_TIMEOUT, message="the turn exceeded its time limit", detail=detail)


def crashed(ended: Exit, detail: str | None) -> TurnFailed:
    """The result of a program that ended without its end-of-turn event, whatever its exit code."""
    how = f"by signal {-ended.code}" if ended.code < 0 else f"with exit code {ended.code}"
    return TurnFailed(
        code=ErrorCode.ENGINE_CRASHED, message=f"the engine ended {how} before its turn was over", detail=detail
    )
