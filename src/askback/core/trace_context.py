"""The identity of a run's trace: the W3C `traceparent` of its caller, or ids that follow from the run's id. Pure.

Ids that follow from the run's id need no storage. Whichever instance continues the run, after whatever time, adds to the
same trace, and sending a span twice does not make two of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256

_TRACE_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 0x01


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceParent:
    """The span of a caller, in hexadecimal digits. `sampled`: whether the caller records its trace."""

    trace_id: str
    span_id: str
    sampled: bool

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{_SAMPLED if self.sampled else 0:02x}"


def read_trace_parent(text: str | None) -> TraceParent | None:
    """The caller's span. None if there is none, or if the text is invalid: the standard then wants a new trace."""
    found = _TRACE_PARENT.fullmatch(text or "")
    if found is None:
        return None
    version, trace_id, span_id, flags, rest = found.groups()
    invalid_version = version == "ff" or (version == "00" and rest is not None)
    if invalid_version or not trace_id.strip("0") or not span_id.strip("0"):
        return None
    return TraceParent(trace_id=trace_id, span_id=span_id, sampled=bool(int(flags, 16) & _SAMPLED))


def trace_id(run_id: str, parent: TraceParent | None) -> str:
    """The trace that contains the run."""
    return _digest(f"trace {run_id}", 32) if parent is None else parent.trace_id


def span_id(run_id: str, part: str = "") -> str:
    """The span of the run, or of a part of it."""
    return _digest(f"span {run_id} {part}", 16)


def _digest(text: str, digits: int) -> str:
    # All zeros is not a valid id.
    return sha256(f"askback {text}".encode()).hexdigest()[:digits].replace("0" * digits, "f" * digits)
