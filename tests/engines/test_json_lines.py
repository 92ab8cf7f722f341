"""The toolkit for parsers of programs that print JSON lines."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askback.core.errors import ErrorCode
from askback.engines.base import Exit
from askback.engines.failures import crashed, failure_of
from askback.engines.launches import version_in
from askback.engines.protocols.json_lines import Tail, as_detail, count_at, decode_line, object_at, plain, text_at


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (b'{"type": "a"}', {"type": "a"}),
        (b'\xef\xbb\xbf {"type": "a"} \r', {"type": "a"}),
        (b'{"a": "\xff"}', {"a": "\ufffd"}),
        (b'{"a": "\\ud800"}', {"a": "\ufffd"}),
        (b'{"a": 123456789012345678901234567890}', {"a": 123456789012345678901234567890}),
        (b'{"a": "x\ty"}', {"a": "x\ty"}),
    ],
)
def test_an_object_on_a_line_is_read(line: bytes, event: dict[str, object]) -> None:
    assert decode_line(line) == event


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"Loading...",
        b"[1]",
        b'"x"',
        b"3",
        b'{"a": 1',
        b'{"a": 1} {"b": 2}',
        b'{"a": NaN}',
        b'{"a": ' + b"1" * 10_000 + b"}",
        b'{"a":' * 100_000,
        b"{" * 8_000_000,
        b"\xff\xfe{\x00}\x00",
    ],
    ids=lambda line: repr(line[:12]),
)
def test_anything_else_is_no_event(line: bytes) -> None:
    assert decode_line(line) is None


@given(st.binary(max_size=200))
def test_no_line_makes_it_raise(line: bytes) -> None:
    decode_line(line)
    decode_line(b'{"a": "' + line + b'"}')


def test_fields_are_taken_only_as_what_they_should_be() -> None:
    event = {"a": {"text": "x", "count": 3, "object": {"b": 1}}}
    assert (text_at(event, "a", "text"), count_at(event, "a", "count")) == ("x", 3)
    assert object_at(event, "a", "object") == {"b": 1}
    for path in (("a",), ("a", "count"), ("x", "y"), ("a", "text", "z")):
        assert text_at(event, *path) == ""
    for value in (True, -1, 1.5, "3", None, 10**30, [1]):
        assert count_at({"n": value}, "n") == 0
    assert object_at({"a": [1]}, "a") == {}


@given(st.dictionaries(st.text(max_size=3), st.none() | st.integers() | st.text(max_size=5)), st.text(max_size=3))
def test_what_is_taken_can_be_written_as_utf_8(event: dict[str, object], key: str) -> None:
    text_at(event, key).encode()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("a\x1b[2J\x1b[1;1Hb", "ab"),
        ("\x9b31mc1", "c1"),
        ("bell\x07 back\x08 nul\x00", "bell back nul"),
        ("one\r\ntwo\tthree", "one\ntwo\tthree"),
        ("progress 1%\rprogress 2%", "progress 1%progress 2%"),
        ("cut \x1b[", "cut "),
        ("cut \x1b", "cut "),
        ("naïve 日本 🙂", "naïve 日本 🙂"),
    ],
)
def test_what_moves_a_terminal_is_taken_out(text: str, shown: str) -> None:
    assert plain(text) == shown


@given(st.text(alphabet="\x1b\x9b[]0;mA\\\x07\r\n\tx\x00\x85", max_size=40))
def test_nothing_plain_moves_a_terminal(text: str) -> None:
    assert not set(plain(text)) & set(map(chr, [*range(9), *range(11, 32), *range(127, 160)]))


def test_details_are_the_last_words() -> None:
    assert as_detail(" \n ") is None
    assert as_detail("why\n") == "why"
    detail = as_detail("x" * 100_000 + " the end")
    assert detail is not None
    assert detail.endswith(" the end")
    assert len(detail) < 4_100


@given(st.lists(st.text(alphabet="abc ", max_size=30), max_size=40))
def test_a_tail_keeps_the_last_lines_and_no_more_than_it_may(lines: list[str]) -> None:
    tail = Tail(max_bytes=50)
    for line in lines:
        tail.add(line.encode())
    assert len(tail.text) <= 50
    assert "\n".join(lines).endswith(tail.text)
    if lines:
        assert tail.text.endswith(lines[-1])


def test_a_tail_of_one_enormous_line_is_its_end() -> None:
    tail = Tail(max_bytes=10)
    tail.add(b"x" * 1_000_000 + b"the end")
    assert tail.text == "xxxthe end"


# Words that the programs were seen to print.


@pytest.mark.contract("X-9")
@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("unexpected status 401 Unauthorized: Incorrect API key provided", ErrorCode.ENGINE_AUTH_REQUIRED),
        ("Failed to authenticate. API Error: 401 Incorrect API key provided", ErrorCode.ENGINE_AUTH_REQUIRED),
        ('[API Error: {"error":{"code":401,"status":"UNAUTHENTICATED"}}]', ErrorCode.ENGINE_AUTH_REQUIRED),
        ("Please set an Auth method or specify GEMINI_API_KEY", ErrorCode.ENGINE_AUTH_REQUIRED),
        ("Not logged in · Please run /login", ErrorCode.ENGINE_AUTH_REQUIRED),
        ("exceeded retry limit, last status: 429 Too Many Requests", ErrorCode.ENGINE_RATE_LIMITED),
        ("API Error: Request rejected (429) · Rate limit reached", ErrorCode.ENGINE_RATE_LIMITED),
        ("[API Error: Rate limit reached]\nPlease wait and try again later.", ErrorCode.ENGINE_RATE_LIMITED),
        ("You exceeded your current quota for this API key", ErrorCode.ENGINE_RATE_LIMITED),
        ("waiting for network (Connection failed: error sending request)", ErrorCode.ENGINE_UNREACHABLE),
        ("exception TypeError: fetch failed sending request", ErrorCode.ENGINE_UNREACHABLE),
        ("API Error: Unable to connect to API (ConnectionRefused)", ErrorCode.ENGINE_UNREACHABLE),
        ("connect ECONNREFUSED 127.0.0.1:9", ErrorCode.ENGINE_UNREACHABLE),
        ("You've hit your usage limit. Upgrade your plan or try again at 3 PM.", ErrorCode.ENGINE_RATE_LIMITED),
        ("You've hit your 5-hour limit · resets 11:53pm (UTC)", ErrorCode.ENGINE_RATE_LIMITED),
        ("Your workspace is out of credits. Add credits to continue.", ErrorCode.ENGINE_RATE_LIMITED),
        ("You hit your spend cap set by the owner of your workspace.", ErrorCode.ENGINE_RATE_LIMITED),
        ("Internal error: Insufficient Balance", ErrorCode.ENGINE_RATE_LIMITED),
        ("Internal error\n402 Payment Required", ErrorCode.ENGINE_RATE_LIMITED),
        ("Your prepayment credits are depleted.", ErrorCode.ENGINE_RATE_LIMITED),
        ("Selected model is at capacity. Please try a different model.", ErrorCode.ENGINE_API_ERROR),
        ("API Error: Connection to the API was lost (ECONNRESET).", ErrorCode.ENGINE_API_ERROR),
        ("stream disconnected before completion: error sending request", ErrorCode.ENGINE_API_ERROR),
        ("We’re currently experiencing high demand, which may cause temporary errors.", ErrorCode.ENGINE_API_ERROR),
        ("API Error: 500 Internal error. This is a server-side issue", ErrorCode.ENGINE_API_ERROR),
        ("", ErrorCode.ENGINE_API_ERROR),
        ("processed 4290 tokens, 14013 left, then broke off while logging in the end", ErrorCode.ENGINE_API_ERROR),
    ],
)
def test_an_engines_own_words_say_why_it_failed(words: str, code: ErrorCode) -> None:
    assert failure_of(words) is code


@pytest.mark.contract("X-9")
def test_an_end_without_an_event_is_a_crash_whatever_the_exit_code() -> None:
    for code, how in ((0, "exit code 0"), (3, "exit code 3"), (-9, "signal 9")):
        broke = crashed(Exit(code=code), "last words")
        assert broke.code is ErrorCode.ENGINE_CRASHED
        assert how in broke.message
        assert broke.detail == "last words"


def test_a_line_that_was_written_can_be_read_back() -> None:
    event = {"type": "message", "text": "日本 \u2028 \x00 🙂 \\ud800"}
    for ascii_only in (True, False):
        assert decode_line(json.dumps(event, ensure_ascii=ascii_only).encode()) == event


def test_a_version_is_looked_for_in_whatever_a_program_prints() -> None:
    assert version_in("codex-cli 0.166.0\n") == "0.166.0"
    assert version_in("v12.3-beta of 1 day") == "12.3-beta"
    assert version_in("1" * 1_000_000) is None
