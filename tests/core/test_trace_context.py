"""The identity of a trace: that of a valid caller, else one that follows from the run's id."""

from __future__ import annotations

import pytest

from askback.core.trace_context import TraceParent, read_trace_parent, span_id, trace_id

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("text", "sampled"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-03", True),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-brings", True),
    ],
)
def test_a_valid_caller_is_read(text: str, sampled: bool) -> None:
    assert read_trace_parent(text) == TraceParent(trace_id=TRACE, span_id=SPAN, sampled=sampled)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "nonsense",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01\n",
        f" 00-{TRACE}-{SPAN}-01",
    ],
)
def test_an_invalid_caller_is_none(text: str | None) -> None:
    assert read_trace_parent(text) is None


def test_what_is_stored_is_read_again() -> None:
    for sampled in (True, False):
        caller = TraceParent(trace_id=TRACE, span_id=SPAN, sampled=sampled)
        assert read_trace_parent(str(caller)) == caller


def test_ids_follow_from_the_run() -> None:
    caller = read_trace_parent(f"00-{TRACE}-{SPAN}-01")
    assert trace_id("run-1", None) == trace_id("run-1", None) != trace_id("run-2", None)
    assert trace_id("run-1", caller) == TRACE
    assert len({span_id("run-1"), span_id("run-2"), span_id("run-1", "turn 1"), span_id("run-1", "turn 2")}) == 4
    assert (len(trace_id("run-1", None)), len(span_id("run-1"))) == (32, 16)
