"""Quotas of a token. The request rate is enforced here, open runs and uploads where they are stored, and slots where runs
are claimed.

Each link to a question counts separately. The server's own token has no quota unless the settings define one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from askback.access.failed_sign_ins import LeakyBucket
from askback.access.grants import Grant
from askback.core.access import MAIN as MAIN
from askback.core.errors import RefusalCode
from askback.http.problems import problem, status_of

_BURST_SEC = 10.0
_MAX_BUCKETS = 10_000


class Quota(Protocol):
    """None: no limit."""

    @property
    def open_runs(self) -> int | None: ...

    @property
    def upload_bytes(self) -> int | None: ...

    @property
    def requests_per_min(self) -> int | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unlimited:
    open_runs: int | None = None
    upload_bytes: int | None = None
    requests_per_min: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    usual: Quota = field(default_factory=_Unlimited)
    by_name: Mapping[str, Quota] = field(default_factory=dict)

    def of(self, grant: Grant) -> Quota:
        if grant.link is not None:
            return self.usual
        return self.by_name.get(grant.name) or (_Unlimited() if grant.name == MAIN else self.usual)


class RequestRate:
    """Counts the requests of every caller, sign-ins included. A caller may send those of ten seconds at once."""

    def __init__(self, quotas: Quotas, clock: Callable[[], float] = time.monotonic) -> None:
        self._quotas = quotas
        self._clock = clock
        self._buckets: dict[str, LeakyBucket] = {}

    def refusal(self, grant: Grant) -> Response | None:
        """Counts a request of this caller. The response, if it is one too many."""
        wait_sec = self._wait_sec(grant)
        if wait_sec == 0:
            return None
        code = RefusalCode.QUOTA_EXCEEDED
        after = {"Retry-After": str(math.ceil(wait_sec))}
        detail = "too many requests for this token; see the setting quotas.requests_per_min"
        return problem(status_of(code), detail, code=code, headers=after)

    def _wait_sec(self, grant: Grant) -> float:
        per_min = self._quotas.of(grant).requests_per_min
        if per_min is None:
            return 0.0
        key = grant.owner
        now = self._clock()
        if (bucket := self._buckets.get(key)) is None:
            if len(self._buckets) >= _MAX_BUCKETS:
                # Those that were not used for the time of a burst are empty.
                self._buckets = {key: each for key, each in self._buckets.items() if now - each.at < _BURST_SEC}
            bucket = self._buckets[key] = LeakyBucket(0.0, now)
        rate = per_min / 60
        left = max(1.0, rate * _BURST_SEC) - bucket.drain(now, rate)
        if left < 1:
            return (1 - left) / rate
        bucket.level += 1
        return 0.0


class RateCap:
    """Refuses callers that send too many requests, before their bodies are read."""

    def __init__(self, app: ASGIApp, rate: RequestRate) -> None:
        self._app = app
        self._rate = rate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        grant: Grant | None = scope.get("grant")
        refusal = None if grant is None else self._rate.refusal(grant)
        await (refusal or self._app)(scope, receive, send)
