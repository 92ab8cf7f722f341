"""The scripted engine's parser against lines that are cut, doubled, out of order or no lines at all.

It never raises, and never tells success unless the program said that its turn was complete.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from askback.engines.base import AssistantMessage, Completed, Exit, SessionNamed, Stream, TurnFailed
from askback.engines.parser import MAX_TEXT
from askback.engines.scripted import ScriptedParser

GOOD: list[dict[str, Any]] = [
    {"type": "session.started", "session_id": "ses-0b8e9a52-1c1d-4e6f-8a3b-0123456789ab"},
    {"type": "turn.started", "turn": 1},
    {"type": "message", "text": "Hello."},
    {"type": "tool.started", "id": "t", "name": "search", "detail": "x"},
    {"type": "tool.ended", "id": "t", "name": "search", "ok": True, "output": "turn.completed"},
    {"type": "usage", "usage": {"input_tokens": 3}},
    {"type": "retry", "message": "waiting for network"},
    {"type": "message", "text": '{"type": "turn.completed"}'},
    {"type": "turn.completed", "usage": {}},
]
BAD: list[dict[str, Any]] = [
    {"type": "turn.failed", "error": {"message": "429"}},
    {"type": "error", "message": "no session"},
]
_LINES = st.sampled_from([json.dumps(event).encode() for event in [*GOOD, *BAD]])
_ODD = st.sampled_from(
    [
        b"",
        b"null",
        b"{}",
        b"[]",
        b'{"type": null}',
        b'{"type": ["turn.completed"]}',
        b'{"type": "message", "text": 5}',
        b'{"type": "message", "text": "\\ud800\xff"}',
        b'{"type": "session.started", "session_id": {"a": 1}}',
        b'{"type": "usage", "usage": {"input_tokens": 1e400}}',
        b'{"type": "usage", "usage": [1]}',
        b'{"type": "turn.failed", "error": "x"}',
        b'"turn.completed"',
        b'x {"type": "turn.completed"}',
        b'{"a": {"type": "turn.completed"}}',
        b'{"a":' * 5000,
        b"\xff" * 1000,
        b"[" * 200_000,
    ]
)


def _torn(line: bytes) -> st.SearchStrategy[bytes]:
    return st.integers(0, len(line)).flatmap(
        lambda at: st.sampled_from([line[:at], line[at:], line[:at] + b"\xff" + line[at:]])
    )


_ANY_LINE = _LINES | _LINES.flatmap(_torn) | _ODD | st.binary(max_size=40)
_ENDS = st.builds(Exit, code=st.integers(-15, 255), timed_out=st.booleans(), over_limit=st.booleans())


def _says_complete(line: bytes) -> bool:
    try:
        event = json.loads(line.decode("utf-8", "replace").strip("\ufeff \t\r\n"))
    except (ValueError, RecursionError):
        return False
    return isinstance(event, dict) and event.get("type") == "turn.completed"


@pytest.mark.contract("T-6")
@settings(max_examples=500)
@given(
    st.lists(st.tuples(st.sampled_from([Stream.STDOUT, Stream.STDOUT, Stream.STDERR]), _ANY_LINE), max_size=15), _ENDS
)
def test_nothing_makes_it_raise_or_tell_a_success_that_was_not_told(
    fed: list[tuple[Stream, bytes]], ended: Exit
) -> None:
    parser = ScriptedParser()
    seen = [one for stream, line in fed for one in parser.feed(stream, line)]
    result = parser.finish(ended)
    completed = any(stream is Stream.STDOUT and _says_complete(line) for stream, line in fed)
    if isinstance(result, Completed):
        assert completed
        assert result.messages == tuple(one.text for one in seen if isinstance(one, AssistantMessage))
    for one in seen:
        repr(one).encode()


@given(st.permutations(GOOD), st.lists(st.sampled_from(GOOD), max_size=5))
def test_order_and_repetition_change_no_success(events: list[dict[str, Any]], again: list[dict[str, Any]]) -> None:
    parser = ScriptedParser()
    seen = [one for event in [*events, *again] for one in parser.feed(Stream.STDOUT, json.dumps(event).encode())]
    assert isinstance(parser.finish(Exit(code=0)), Completed)
    assert {one.value for one in seen if isinstance(one, SessionNamed)} == {GOOD[0]["session_id"]}


@pytest.mark.contract("T-6")
@given(st.integers(0, len(GOOD) - 2))
def test_a_turn_that_is_cut_short_is_no_success(length: int) -> None:
    parser = ScriptedParser()
    for event in GOOD[:length]:
        list(parser.feed(Stream.STDOUT, json.dumps(event).encode()))
    last = json.dumps(GOOD[-1]).encode()
    list(parser.feed(Stream.STDOUT, last[: len(last) // 2]))
    list(parser.feed(Stream.STDERR, last))
    assert isinstance(parser.finish(Exit(code=0)), TurnFailed)


def test_an_enormous_line_costs_no_more_than_itself() -> None:
    parser = ScriptedParser()
    text = "x" * 20_000_000
    seen = list(parser.feed(Stream.STDOUT, json.dumps({"type": "message", "text": text}).encode()))
    assert seen == [AssistantMessage(text=text[-MAX_TEXT:])]
    for junk in (b"{" * 8_000_000, b'{"a":"' + b"\\" * 8_000_000, b"\xff" * 8_000_000):
        assert list(parser.feed(Stream.STDOUT, junk)) == []
        assert list(parser.feed(Stream.STDERR, junk)) == []
    result = parser.finish(Exit(code=1))
    assert isinstance(result, TurnFailed)
    assert len(result.detail or "") < 5_000
