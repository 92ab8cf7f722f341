"""What pages show of long or hostile texts: bounded output, and nothing that is lost without a word."""

from __future__ import annotations

import json
import time

import pytest

from askback.text.formatting import MAX_SEARCH_CHARACTERS, folded, has_all, words_in
from askback.text.json_text import MAX_INDENTED, indented
from askback.web.files import preview_of
from askback.web.page_context import MAX_MARKDOWN, MAX_RENDERED, rendered


def test_deep_json_is_shown_on_one_line_instead_of_as_spaces() -> None:
    deep = "[" * 450 + ",".join(["[]"] * 100_000) + "]" * 450
    shown = preview_of("deep.json", deep.encode())
    assert shown.text is not None
    assert (json.loads(shown.text), shown.is_cut) == (json.loads(deep), False)
    assert len(shown.text) < 2 * len(deep)


def test_json_is_indented_up_to_a_bound() -> None:
    assert indented({"a": [1]}) == '{\n  "a": [\n    1\n  ]\n}'
    assert "\n" not in indented(["x" * MAX_INDENTED])


def test_references_cannot_multiply_a_long_address() -> None:
    text = f"[a]: <http://x/{'y' * 50_000}>\n\n" + "[a] " * 1_000
    html = rendered(text)
    assert len(html) < MAX_RENDERED
    assert html.startswith("<pre>[a]: &lt;http://x/")
    assert "<a href" in rendered(f"[a]: <http://x/{'y' * 500}>\n\n[a] [a]")


def test_a_text_that_is_too_long_to_render_is_shown_as_it_is() -> None:
    text = "*a* <b>\n" * (MAX_MARKDOWN // 8 + 1)
    assert rendered(text).unescape() == f"<pre>{text}</pre>"


@pytest.mark.parametrize("part", ["[", "[[]", "[a][", "*_", "a\n"])
def test_a_text_that_takes_the_parser_long_is_shown_as_it_is(part: str) -> None:
    text = part * (MAX_MARKDOWN // len(part))
    before = time.thread_time()
    assert rendered(text).unescape() == f"<pre>{text}</pre>"
    ordinary = "The *brown* fox [jumps](http://x.example) over `the` dog.\n\n" * (MAX_MARKDOWN // 60)
    assert time.thread_time() - before < 5
    assert rendered(ordinary).startswith("<p>The <em>brown</em>")


def test_a_search_ignores_what_is_beyond_its_limit() -> None:
    assert words_in("Straße  ROT\n") == ["strasse", "rot"]
    assert words_in("x " * MAX_SEARCH_CHARACTERS) == ["x"] * (MAX_SEARCH_CHARACTERS // 2)
    text = folded(["Eine STRASSE", None, "rot"])
    assert has_all(text, words_in("straße rot"))
    assert not has_all(text, words_in("straße blau"))
    assert has_all(text, [])
