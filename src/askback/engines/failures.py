"""Why an engine failed, read from its own words where it gives no code, and from its end where it says nothing.

The words are those that the programs were seen to print; a new wording belongs in this table, with a test.
"""

from __future__ import annotations

import re

from askback.core.errors import ErrorCode
from askback.engines.base import Broke, Exit

# In this order: a refusal over a quota often mentions the key too, and a broken connection the server's address.
_SIGNS: tuple[tuple[ErrorCode, re.Pattern[str]], ...] = (
    (
        ErrorCode.ENGINE_RATE_LIMITED,
        re.compile(r"\b429\b|rate.?limit|too many requests|quota|resource_exhausted|insufficient_quota", re.IGNORECASE),
    ),
    (
        ErrorCode.ENGINE_AUTH_REQUIRED,
        re.compile(
            r"\b40[13]\b|unauthori[sz]ed|unauthenticated|api.?key|not (logged|signed) in|\blog ?in\b|\bsign in\b|credential",
            re.IGNORECASE,
        ),
    ),
    (
        ErrorCode.ENGINE_UNREACHABLE,
        re.compile(
            r"ECONN|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|fetch failed|waiting for network"
            r"|connection (failed|refused|error|reset)|unable to connect|error sending request|unreachable|getaddrinfo",
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


def crashed(ended: Exit, detail: str | None) -> Broke:
    """A program that is gone without its end-of-turn event, whatever its exit code says."""
    how = f"by signal {-ended.code}" if ended.code < 0 else f"with exit code {ended.code}"
    return Broke(
        code=ErrorCode.ENGINE_CRASHED, message=f"the engine ended {how} before its turn was over", detail=detail
    )
