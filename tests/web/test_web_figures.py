"""Texts and figures of the page that need no browser."""

from __future__ import annotations

from datetime import date

import pytest

from askback.text.formatting import size
from askback.web import translations
from askback.web.dashboard import HEIGHT, WIDTH, bars, chart, round_up, squares, success_share
from askback.web.page_context import MAX_CHARACTERS, count_text, day_text, duration_text, rendered
from askback.web.skills import MAX_ROWS, rows
from askback.wire.runs import Usage
from askback.wire.server import Finished

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


ENGLISH, CHINESE = (translations.load()[language] for language in ("en", "zh"))


@pytest.mark.parametrize(
    ("seconds", "english", "chinese"),
    [
        (0.004, "4 ms", "4 毫秒"),
        (4.4, "4 s", "4 秒"),
        (60, "1 min", "1 分"),
        (286, "4 min 46 s", "4 分 46 秒"),
        (7500, "2 h 5 min", "2 小时 5 分"),
        (86400 * 3 + 7200, "3 d 2 h", "3 天 2 小时"),
    ],
)
def test_lengths_of_time_are_told_in_two_units(seconds: float, english: str, chinese: str) -> None:
    told = [duration_text(seconds, t).replace("\u00a0", " ") for t in (ENGLISH, CHINESE)]
    assert told == [english, chinese]


@pytest.mark.parametrize(
    ("number", "english", "chinese"),
    [
        (0, "0", "0"),
        (999, "999", "999"),
        (1000, "1k", "1000"),
        (12_345, "12.3k", "1.2 万"),
        (15_760_000, "15.8M", "1576 万"),
        (3_000_000_000, "3B", "30 亿"),
    ],
)
def test_large_numbers_are_told_in_the_units_of_the_language(number: int, english: str, chinese: str) -> None:
    assert [count_text(number, t) for t in (ENGLISH, CHINESE)] == [english, chinese]


def test_a_day_is_told_as_the_language_writes_it() -> None:
    assert [day_text(date(2026, 3, 1), t) for t in (ENGLISH, CHINESE)] == ["1 Mar", "3月1日"]


def test_sizes_are_told_in_the_unit_that_fits() -> None:
    assert [size(number) for number in (0, 1536, 640 * 10**6, 2**60)] == ["0 B", "1.5 kB", "640 MB", "1152922 TB"]


def test_a_chart_has_a_column_for_each_day_and_leaves_nothing_unseen() -> None:
    days = [date(2026, 3, 1), date(2026, 3, 2), date(2026, 3, 3)]
    counts = [{"succeeded": 1000, "failed": 1}, {"succeeded": 0, "failed": 0}, {"succeeded": 10, "failed": 0}]
    made = chart(list(zip(days, counts, strict=True)))
    assert (made.top, made.total, made.totals) == (2000, 1011, {"succeeded": 1010, "failed": 1})
    assert made.busiest.day == days[0]
    first, empty, small = made.columns
    assert empty.parts == ()
    assert [part.kind for part in first.parts] == ["succeeded", "failed"]
    assert min(part.height for column in (first, small) for part in column.parts) >= 2
    for column in made.columns:
        assert 0 <= column.x < column.x + column.width <= WIDTH
        assert all(0 <= part.y <= part.y + part.height <= HEIGHT + 0.01 for part in column.parts)


def test_a_chart_without_runs_has_a_scale() -> None:
    assert (chart([]).total, chart([(date(2026, 3, 1), {"failed": 0})]).top) == (0, 1)
    assert [round_up(value) for value in (0, 1, 3, 9, 10, 11, 61, 999)] == [1, 1, 4, 10, 10, 20, 80, 1000]


def test_bars_are_ranked_and_as_long_as_their_share() -> None:
    made = bars([("a", 5), ("none", 0), ("b", 20), ("c", 5)], most=2)
    assert [(bar.name, bar.width) for bar in made] == [("b", 100.0), ("a", 25.0)]


def test_a_share_is_not_rounded_to_perfection() -> None:
    def finished(succeeded: int, failed: int) -> Finished:
        usage = Usage(input_tokens=0, output_tokens=0, cached_tokens=0, total_tokens=0)
        return Finished(succeeded=succeeded, failed=failed, canceled=9, usage=usage)

    assert success_share([finished(999, 1)]) == 99
    assert success_share([finished(3, 0), finished(0, 1)]) == 75
    assert success_share([finished(0, 0)]) is None


def test_slots_are_squares() -> None:
    assert squares(1, 4) == [True, False, False, False]
    assert (len(squares(1, 1000)), any(squares(1, 1000))) == (16, True)
