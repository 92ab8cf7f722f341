"""Texts and figures of the page that need no browser."""

from __future__ import annotations

import pytest

from askback.core.runs import RunState
from askback.web.page_context import MAX_CHARACTERS, duration_text, rendered, size_text
from askback.web.pages import bars, quantile, squares
from askback.web.skills import MAX_ROWS, rows

HOSTILE_MARKDOWN = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "![x](javascript:alert(1))",
    "![x](https://example.com/pixel.png)",
    "[x](javascript:alert(1))",
    "[x](  JaVaScRiPt:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](vbscript:x)",
    "<a href='javascript:alert(1)'>x</a>",
    '[x](https://example.com "onmouseover=alert(1)")',
    "[x]: javascript:alert(1)\n\n[x]",
    "<javascript:alert(1)>",
    "```<script>\nalert(1)\n```",
    "`<svg onload=alert(1)>`",
    "# <style>*{display:none}</style>",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "| <b onclick=x> |\n|---|\n| <form action=x> |",
]


@pytest.mark.parametrize("text", HOSTILE_MARKDOWN)
def test_markdown_of_others_becomes_nothing_that_acts(text: str) -> None:
    made = rendered(text)
    for tag in ("script", "img", "style", "iframe", "svg", "form", "b "):
        assert f"<{tag}" not in made
    assert '<a href="java' not in made.lower()
    assert not any(f'href="{scheme}' in made.lower() for scheme in ("data:", "vbscript:", "javascript:"))
    assert "title=" not in made


def test_markdown_is_shown_below_the_headings_of_the_page_and_bounded() -> None:
    assert rendered("# One\n\n###### Six") == "<h2>One</h2>\n<h6>Six</h6>\n"
    assert 'rel="noopener noreferrer nofollow"' in rendered("<https://example.com>")
    assert len(rendered("x" * (MAX_CHARACTERS + 99))) < MAX_CHARACTERS + 50


def test_a_schema_becomes_a_row_for_each_value() -> None:
    inner = {"type": "object", "required": ["day"], "properties": {"day": {"type": "integer", "minimum": 1}}}
    schema = {
        "required": ["days"],
        "properties": {
            "days": {"type": "array", "items": inner, "minItems": 1},
            "pace": {"oneOf": [{"const": "slow"}, {"const": "fast"}], "description": "How fast."},
            "file": {"type": "string", "x-input-source": "file"},
            "odd": True,
        },
    }
    found = {row.path: row for row in rows(schema)}
    assert list(found) == ["days", "days[].day", "pace", "file", "odd"]
    assert (found["days"].kind, found["days"].required, found["days"].limits) == (
        "object[]",
        True,
        (("minItems", "1"),),
    )
    assert (found["pace"].choices, found["pace"].about) == (("slow", "fast"), "How fast.")
    assert found["file"].is_file
    assert found["days[].day"].required


def test_a_huge_or_odd_schema_gives_a_bounded_table() -> None:
    assert len(rows({"properties": {f"p{number}": {} for number in range(5000)}})) == MAX_ROWS
    assert rows(None) == rows({"properties": [1], "required": 3}) == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.004, "4 ms"),
        (4.4, "4 s"),
        (60, "1 min"),
        (247, "4 min 7 s"),
        (7500, "2 h 5 min"),
        (86400 * 3 + 7200, "3 d 2 h"),
    ],
)
def test_lengths_of_time_are_told_in_two_units(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_sizes_are_told_in_the_unit_that_fits() -> None:
    assert [size_text(size) for size in (0, 1536, 640 * 2**20, 2**60)] == ["0 B", "1.5 KB", "640 MB", "1048576 TB"]


def test_the_bar_of_states_fills_its_width_and_leaves_nothing_unseen() -> None:
    made = bars([(RunState.QUEUED, 1), (RunState.RUNNING, 0), (RunState.SUCCEEDED, 1_000_000)])
    assert [bar.state for bar in made] == [RunState.QUEUED, RunState.SUCCEEDED]
    assert made[0].width > 3
    assert made[-1].x + made[-1].width == pytest.approx(600, abs=0.1)
    assert bars([(RunState.QUEUED, 0)]) == []


def test_slots_and_quantiles() -> None:
    assert squares(1, 4) == [True, False, False, False]
    assert (len(squares(1, 1000)), any(squares(1, 1000))) == (16, True)
    assert (quantile([], 0.5), quantile([1.0], 0.9), quantile([1.0, 2.0, 3.0], 0.5)) == (None, 1.0, 2.0)
