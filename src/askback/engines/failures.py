"""Why an engine failed, read from its own words where it gives no code, and from its end where it says nothing.

The words are those that the programs were seen to print; a new wording belongs in this table, with a test.
"""

from __future__ import annotations

import re

from askback.core.errors import ErrorCode
from askback.engines.base import Exit, TurnFailed, out_of_bounds
from askback.engines.protocols.json_lines import as_detail

# In this order: a refusal over a quota often mentions the key too, and a broken connection the server's address.
_SIGNS: tuple[tuple[ErrorCode, re.Pattern[str]], ...] = (
    (
        ErrorCode.ENGINE_RATE_LIMITED,
        re.compile(r"\b429\b|rate.?limit|usage limit|too many requests|quota|resource_exhausted", re.IGNORECASE),
    ),
    (
        ErrorCode.ENGINE_AUTH_REQUIRED,
        re.compile(
            r"\b40[13]\b|unauthori[sz]ed|unauthenticated|api.?key|not (logged|signed) in|\blog ?in\b|\bsign in\b|credential"
            r"|auth (type|method)|oauth",
            re.IGNORECASE,
        ),
    ),
    # It was there, and then no more.
    (
        ErrorCode.ENGINE_API_ERROR,
        re.compile(r"ECONNRESET|socket hang up|connection .{0,40}(lost|reset|closed)|disconnected", re.IGNORECASE),
    ),
    (
        ErrorCode.ENGINE_UNREACHABLE,
        re.compile(
            r"ECONN|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|fetch failed|waiting for network"
            r"|connection (failed|refused|error)|unable to connect|error sending request|unreachable|getaddrinfo",
            re.IGNORECASE,
        ),
    ),
)


def failure_of(words: str) -> ErrorCode:
    """The code for an engine's error; `ENGINE_API_ERROR` when its words say nothing finer."""
    for code, sign in _SIGNS:
        if sign.search(words):
            return code
    return ErrorCode.ENGINE_API_ERROR


def failure_of_status(status: int, words: str) -> ErrorCode:
    """The code for an error that came with an HTTP status; without one the words decide."""
    match status:
        case 401 | 403:
            return ErrorCode.ENGINE_AUTH_REQUIRED
        case 429:
            return ErrorCode.ENGINE_RATE_LIMITED
        case 0:
            return failure_of(words)
        case _:
            return ErrorCode.ENGINE_API_ERROR


def ended_badly(code: ErrorCode, words: str) -> TurnFailed:
    """A turn that the engine itself ended with an error, in its own words."""
    return TurnFailed(code=code, message="the engine ended its turn with an error", detail=as_detail(words))


def unknown_session(words: str) -> TurnFailed:
    """A resume of a session that the engine does not find."""
    message = "the engine does not know the session (any more)"
    return TurnFailed(code=ErrorCode.SESSION_RESUME_FAILED, message=message, detail=as_detail(words))


def stopped(ended: Exit, retrying: str) -> TurnFailed | None:
    """A turn that we had to stop, or None. `retrying`: what the engine said of trying again, where that was its last word."""
    broke = out_of_bounds(ended)
    if broke is None or broke.code is not ErrorCode.TURN_TIMEOUT or not retrying:
        return broke
    if failure_of(retrying) is not ErrorCode.ENGINE_UNREACHABLE:
        return TurnFailed(code=broke.code, message=broke.message, detail=as_detail(retrying))
    message = "the turn's time ran out while the engine was trying to connect"
    return TurnFailed(code=ErrorCode.ENGINE_UNREACHABLE, message=message, detail=as_detail(retrying))


def crashed(ended: Exit, detail: str | None) -> TurnFailed:
    """A program that is gone without its end-of-turn event, whatever its exit code says."""
    how = f"by signal {-ended.code}" if ended.code < 0 else f"with exit code {ended.code}"
    return TurnFailed(
        code=ErrorCode.ENGINE_CRASHED, message=f"the engine ended {how} before its turn was over", detail=detail
    )
