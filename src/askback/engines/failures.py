"""Why a turn failed: recognized by the engine's own words, by an HTTP status, or by how the program ended.

The words are those that the programs were seen to print. A new wording belongs into this table, with a test.
"""

from __future__ import annotations

import re

from askback.core.errors import ErrorCode
from askback.engines.base import Exit, TurnFailed, out_of_bounds
from askback.engines.protocols.json_lines import as_detail

# In this order: a message about a quota often mentions the key too, and one about a lost connection the address.
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
    # The server was reached, and then the connection was lost.
    (
        ErrorCode.ENGINE_API_ERROR,
        re.compile(r"ECONNRESET|socket hang up|connection .{0,40}(lost|reset|closed)|disconnected", re.IGNORECASE),
    ),
    (
        ErrorCode.ENGINE_UNREACHABLE,
        re.compile(
            r"\bECONN|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|fetch failed|waiting for network"
            r"|connection (failed|refused|error)|unable to connect|error sending request|unreachable|getaddrinfo",
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
    """The code for a failure that the words name; None for words that name none. Lines of a stack trace do not count."""
    said = _STACK_LINE.sub("", words)
    return next((code for code, sign in _SIGNS if sign.search(said)), None)


def failure_of(words: str) -> ErrorCode:
    """The code for an engine's error; `ENGINE_API_ERROR` when its words say nothing more precise."""
    return known_failure(words) or ErrorCode.ENGINE_API_ERROR


def failure_of_status(status: int, words: str) -> ErrorCode:
    """The code for an error with an HTTP status; without one (0) the words decide."""
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
    """A turn that the engine itself ended with an error."""
    return TurnFailed(code=code, message="the engine ended its turn with an error", detail=as_detail(words))


def unknown_session(words: str) -> TurnFailed:
    """A resume of a session that the engine does not find."""
    message = "the engine does not know the session (any more)"
    return TurnFailed(code=ErrorCode.SESSION_RESUME_FAILED, message=message, detail=as_detail(words))


def stopped(ended: Exit, retrying: str, said: str = "") -> TurnFailed | None:
    """A turn that Askback had to stop; None for a program that ended by itself.

    `retrying` is the engine's last message about a retry, unless it made progress after that: a turn whose time ran out
    while the engine kept retrying a known failure has the code of that failure. `said` is what it printed on stderr.
    """
    failed = out_of_bounds(ended)
    if failed is None:
        return None
    detail = as_detail(retrying or said)
    code = known_failure(retrying) if failed.code is ErrorCode.TURN_TIMEOUT else None
    if code is None:
        return TurnFailed(code=failed.code, message=failed.message, detail=detail)
    message = "the turn's time ran out while the engine was retrying a failed request"
    return TurnFailed(code=code, message=message, detail=detail)


def crashed(ended: Exit, detail: str | None) -> TurnFailed:
    """A program that ended without its end-of-turn event, whatever its exit code says."""
    how = f"by signal {-ended.code}" if ended.code < 0 else f"with exit code {ended.code}"
    return TurnFailed(
        code=ErrorCode.ENGINE_CRASHED, message=f"the engine ended {how} before its turn was over", detail=detail
    )
