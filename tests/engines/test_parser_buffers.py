"""What is kept of a turn, however much a program says: the newest, within bounds, and nothing is lost unsaid."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from askback.core.interactions import MAX_PROMPT_BYTES, MAX_QUESTION_BYTES, Question, bounded
from askback.engines.base import Completed, Stream
from askback.engines.claude.turn import ClaudeParser
from askback.engines.parser import MAX_MESSAGES, MAX_TEXT, Messages, Pieces, Recent
from askback.text.json_text import MAX_VALUES, NotJson, find, loads


def test_the_newest_messages_are_kept_and_the_rest_counted() -> None:
    messages = Messages(str(number) for number in range(MAX_MESSAGES + 7))
    ended = messages.completed()
    assert ended.messages == tuple(str(number) for number in range(7, MAX_MESSAGES + 7))
    assert (ended.left_out, messages.said) == (7, MAX_MESSAGES + 7)
    assert messages.completed(after=MAX_MESSAGES + 5).messages == tuple(
        map(str, range(MAX_MESSAGES + 5, MAX_MESSAGES + 7))
    )


def test_of_a_message_that_is_too_long_the_end_is_kept() -> None:
    ended = Messages(["a" * MAX_TEXT, "b" * MAX_TEXT + "the end"]).completed()
    assert ended == Completed(messages=("b" * (MAX_TEXT - 7) + "the end",), left_out=1, shortened=True)


@pytest.mark.parametrize("size", [1, 3, 1000, 3_000_000])
def test_pieces_of_any_size_give_the_end_of_their_text(size: int) -> None:
    piece = ("abcdefg" * (size // 7 + 1))[:size]
    count = 20 if size > 100_000 else 10_000
    pieces = Pieces()
    for _ in range(count):
        pieces.add(piece)
    whole = piece * count
    assert pieces.text == whole[-MAX_TEXT:]
    assert pieces.shortened == (len(whole) > MAX_TEXT)


def test_millions_of_tools_that_never_end_cost_a_constant() -> None:
    recent: Recent[str] = Recent()
    for number in range(100_000):
        recent.put(f"call-{number}", "tool")
    assert "call-99999" in recent
    assert "call-0" not in recent


def test_a_claude_that_talks_without_end_is_kept_within_bounds() -> None:
    parser = ClaudeParser(resuming=False)
    text = {"type": "assistant", "message": {"id": "m", "content": [{"type": "text", "text": "x" * 100_000}]}}
    line = json.dumps(text).encode()
    tracemalloc.start()
    for _ in range(400):
        list(parser.feed(Stream.STDOUT, line))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 30_000_000


@pytest.mark.parametrize("text", ["[" + "[]," * MAX_VALUES + "[]]", "[" + "1," * MAX_VALUES + "1]"])
def test_a_document_with_too_many_values_is_not_made(text: str) -> None:
    tracemalloc.start()
    with pytest.raises(NotJson):
        loads(text)
    assert find(f"Here it is: {text}") == ()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60_000_000


def test_signs_within_a_text_are_no_values() -> None:
    text = '\\"{[,:' * MAX_VALUES
    assert loads(json.dumps({"text": text})) == {"text": text}
    assert find(f'{"a, b: [c] " * MAX_VALUES} {{"colour": "blue"}}')[0].value == {"colour": "blue"}


@pytest.mark.parametrize("letter", ["x", "\x01", "漢", "\ud800"])
def test_a_question_fits_whatever_it_is_made_of(letter: str) -> None:
    long = letter * 70_000
    asked = Question(
        prompt=f"Which? {long}",
        options=tuple({"label": f"{number}{letter * 900}", "value": number} for number in range(200)),
        response_schema={"type": "object", "properties": {"a": {"type": "string", "description": long}}},
        context={"note": long},
        default="blue",
    )
    small = bounded(asked)
    parts = [small.prompt, list(small.options), small.response_schema, small.default, small.context]
    assert len(json.dumps(parts, ensure_ascii=False).encode(errors="replace")) <= MAX_QUESTION_BYTES
    assert len(json.dumps(small.prompt, ensure_ascii=False).encode(errors="replace")) <= MAX_PROMPT_BYTES
    assert small.prompt.startswith("Which? ")
    assert small.prompt.endswith("[… truncated: the question is too long]")
    assert bounded(small) is small


def test_a_question_of_a_usual_size_is_left_as_it_is() -> None:
    asked = Question(prompt="Which colour?", options=("red", "blue"), context={"files": ["a"] * 100})
    assert bounded(asked) is asked
