"""Unified diffs of two texts."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askback.text import diff as module
from askback.text.diff import diff


def applied(before: str, lines: tuple[str, ...]) -> str:
    """The text that a diff makes of another one."""
    source = before.splitlines(keepends=True)
    made: list[str] = []
    at, last = 0, ""
    for line in lines:
        sign, text = line[0], line[1:] + "\n"
        if sign == "@":
            begin, length = (int(number) for number in line.split()[1][1:].split(","))
            start = begin - 1 if length else begin
            made += source[at:start]
            at = start
        elif sign == "\\":
            if last != "-":
                made[-1] = made[-1].removesuffix("\n")
            continue
        elif sign == "+":
            made.append(text)
        else:
            assert source[at].removesuffix("\n") + "\n" == text
            at += 1
            made += [text] if sign == " " else []
        last = sign
    return "".join([*made, *source[at:]])


TEXTS = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n"]), max_size=30).flatmap(
    lambda lines: st.sampled_from(["", "end"]).map(lambda end: "".join(lines) + end)
)


@given(TEXTS, TEXTS)
def test_a_diff_makes_one_text_of_the_other(before: str, after: str) -> None:
    assert applied(before, diff(before, after).lines) == after


@given(TEXTS, TEXTS)
def test_a_coarse_diff_makes_one_text_of_the_other(before: str, after: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_COMPARED", 0)
        assert applied(before, diff(before, after).lines) == after


def test_changes_have_signs_and_context() -> None:
    before = "".join(f"line {number}\n" for number in range(10))
    found = diff(before, before.replace("line 5\n", "new 5\nmore\n"))
    assert found.lines == (
        "@@ -3,7 +3,8 @@",
        *(" line 2", " line 3", " line 4", "-line 5", "+new 5", "+more", " line 6", " line 7", " line 8"),
    )
    assert not found.cut


def test_a_new_file_and_a_missing_line_feed_are_shown() -> None:
    assert diff("", "a\n").lines == ("@@ -0,0 +1,1 @@", "+a")
    assert diff("a", "a\n").lines == ("@@ -1,1 +1,1 @@", "-a", "\\ No newline at end of file", "+a")
    assert diff("a\r\u2028\x0b", "a\r\u2028\x0b").lines == ()


def test_a_long_diff_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    found = diff("", "\n" * 15_000)
    assert (len(found.lines), found.cut) == (module.MAX_LINES, True)
    found = diff("", "x" * 900_000)
    assert (sum(map(len, found.lines)), found.cut) == (module.MAX_CHARS, True)


def test_texts_that_would_take_too_long_to_match_are_compared_coarsely() -> None:
    chance = random.Random(7)
    lines = [f"{number}\n" for number in range(100)]
    before, after = ("".join(chance.choice(lines) for _ in range(19_000)) for _ in range(2))
    found = diff(f"same\n{before}", f"same\n{after}")
    assert found.lines[:2] == ("@@ -1,19001 +1,19001 @@", " same")
    assert found.cut
