"""Failed sign-ins: counted per address, refused for a while if there are many, and logged once per burst.

A valid token is always accepted, also from an address with many failures: all programs and users of one machine share
127.0.0.1.
"""

from __future__ import annotations

import ipaddress
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

log = logging.getLogger(__name__)

_MINUTE_SEC = 60.0
_MAX_ADDRESSES = 1024
_MAX_WAIT_SEC = 600.0
_LOG_PAUSE_SEC = 1.0
"""Between two log lines, so that an attacker with many addresses cannot fill the log."""


@dataclass(slots=True)
class LeakyBucket:
    """Fills by one for each event, and drains at a constant rate."""

    level: float
    at: float

    def drain(self, now: float, per_sec: float) -> float:
        """Update the level to the current time, and return it."""
        self.level = max(0.0, self.level - (now - self.at) * per_sec)
        self.at = now
        return self.level


class FailedSignIns:
    """A leaky bucket per address: `free` failures at once, then as many per minute. The wait grows with each further one."""

    def __init__(self, free: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._free = free
        self._per_sec = free / _MINUTE_SEC
        self._highest = free + _MAX_WAIT_SEC * self._per_sec
        self._clock = clock
        self._buckets: OrderedDict[str, LeakyBucket] = OrderedDict()
        self._log_at = -math.inf

    def count(self, address: str, kind: str) -> int | None:
        """Count one failure. Returns after how many seconds the address may try again, or None if it may try now."""
        network, now = _network(address), self._clock()
        bucket = self._buckets.setdefault(network, LeakyBucket(0.0, now))
        self._buckets.move_to_end(network)
        if len(self._buckets) > _MAX_ADDRESSES:
            self._buckets.popitem(last=False)
        before = bucket.drain(now, self._per_sec)
        bucket.level = min(before + 1, self._highest)
        if before == 0:
            self._log(now, "sign-in by %s from %s failed", kind, network)
        if bucket.level <= self._free:
            return None
        if before <= self._free:
            self._log(now, "too many failed sign-ins from %s: refusing further ones for a while", network)
        return max(1, math.ceil((bucket.level - self._free) / self._per_sec))

    def _log(self, now: float, message: str, *values: object) -> None:
        if now - self._log_at >= _LOG_PAUSE_SEC:
            self._log_at = now
            log.warning(message, *values)


def _network(address: str) -> str:
    """For IPv6 the /64 network, which is what one customer of a provider gets."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(found) if found.is_loopback else str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)
