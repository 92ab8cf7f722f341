"""Finds the marker, a question and an output in the assistant messages of a turn. Accepts only whole messages.

Reports what was found, not what it means for the run: `core.outcomes.conclude` applies the contract's precedence.
`prose` is the rest of a message. No message, however hostile, makes this raise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from askback.core.interactions import MAX_PROMPT_BYTES, Json
from askback.core.outcomes import MARKER, Answer
from askback.questions.finding import QuestionBlock, find_questions, is_question, read_question
from askback.text.json_text import Found, Place, clean, find

Check = Callable[[Json], tuple[str, ...]]
"""Validates a value against the output schema. Returns the errors; empty if it passes."""

_MAX_CHECKED = 100

_MAX_TEXT = 2 * MAX_PROMPT_BYTES
"""More than is shown of a question, so that it is marked as cut. The rest is dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    """A parsed message: `plain` is its text without questions and marker, `found` the JSON values in `plain`."""

    text: str
    plain: str
    found: tuple[Found, ...]
    asked: tuple[QuestionBlock, ...]
    done: bool
    key_alone: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Output:
    value: Json = None
    problems: tuple[str, ...] | None = None


def read_answer(messages: Sequence[str], check: Check | None, *, whole_turn: bool = False) -> Answer:
    """Read the messages of one turn. `check` is None for a skill without an output schema.

    Without a marker, only the last message can contain the output, so that a draft before a question is not taken for
    the result. `whole_turn` lifts that restriction, for runs that cannot wait.
    """
    read = [_read(clean(text)) for text in messages if text.strip()]
    done = any(message.done for message in read)
    searched = read if done or whole_turn else read[-1:]
    output = _free_output(searched) if check is None else _checked_output(searched, check)
    last = next((message for message in reversed(read) if message.asked), None)
    question, problems = (None, ()) if last is None else read_question(last.asked[-1], last.text)
    return Answer(
        message=next((message.plain[:_MAX_TEXT] for message in reversed(read) if message.plain), ""),
        done=done,
        output=output.value,
        output_problems=output.problems,
        question=question,
        question_problems=problems,
    )


def _read(text: str) -> _Message:
    found = find(text)
    asked = find_questions(text, found)
    rest = _without_blocks(text, asked)
    plain = without_marker(rest)
    if plain != text:
        found = find(plain)
    return _Message(
        text=text,
        plain=plain.strip(),
        found=tuple(one for one in found if not is_question(one.value)),
        asked=tuple(asked),
        done=is_done(rest),
        key_alone=is_key_alone(rest),
    )


def _without_blocks(text: str, asked: Sequence[QuestionBlock]) -> str:
    """The text without its questions: a marker or an object inside a question is part of the question."""
    pieces, at = [], 0
    for one in asked:
        pieces.append(text[at : one.start])
        at = max(at, one.end)
    return "\n".join([*pieces, text[at:]]) if asked else text


def _checked_output(messages: Sequence[_Message], check: Check) -> _Output:
    """The first value that passes the check, starting with the last message.

    If any value has the marker as a key, only such values are considered.
    """
    values = [(one.value, MARKER in message.plain) for message in reversed(messages) for one in message.found]
    if not values and any(message.key_alone for message in messages):
        values = [({}, False)]
    marked = [pair for pair in values if is_marked(pair[0])]
    first = _Output()
    for value, holds_key in (marked or values)[:_MAX_CHECKED]:
        output = without_key(value) if holds_key else value
        problems = check(output)
        if not problems:
            return _Output(value=output, problems=())
        if first.problems is None:
            first = _Output(value=output, problems=problems)
    return first


def _free_output(messages: Sequence[_Message]) -> _Output:
    """The output without a schema: the last message, if it is JSON; its fenced JSON block; otherwise its text."""
    for message in reversed(messages):
        if message.asked or not message.plain:
            continue
        blocks = [one.value for one in message.found if one.place is not Place.EMBEDDED]
        return _Output(value=without_key(blocks[0]) if blocks else message.plain, problems=())
    return _Output()


_QUOTES, _CLOSING_QUOTES = "\"'`“‘«", "\"'`”’»"
_DRESS = rf"[\s*.!{_QUOTES}{_CLOSING_QUOTES}]*"
# In a JSON string, a line break is the escape `\n`, which ends in a letter.
_WORD = rf"(?:(?<![A-Za-z0-9_])|(?<=\\[nrt])){MARKER}(?![A-Za-z0-9_])"
_BARE = re.compile(rf"(?!(?<=[{_QUOTES}]){MARKER}\\?[{_CLOSING_QUOTES}]){_WORD}")
_SENTENCE_ENDS = ".!?。！？"
_AFTER_BACKTICKS = re.compile(r"`+[ \t*.]*")
_NOTHING_ELSE = re.compile(rf"{_DRESS}{MARKER}{_DRESS}")
_KEY = re.compile(rf'"{MARKER}"\s*:\s*true\b')
_KEY_ALONE = re.compile(rf'(?:```(?:json)?\s*)?\{{\s*"{MARKER}"\s*:\s*true\s*\}}(?:\s*```)?')
_AROUND = 200
"""How far before and after the marker an object with only that key may start and end."""
_MAX_KEYS = 10_000
_MAX_DRESSED = 1_000
# The rest of a line that contained only the marker: `**…**`, `<!-- … -->`, a list dash.
_EMPTY_LINE = re.compile(r"[ \t]*+(?:[*`>#-]++|<!--[ \t]*+-->)?+\s*+")


def is_done(text: str) -> bool:
    """Whether the text contains the marker as a statement rather than as a quotation."""
    if MARKER not in text:
        return False
    # Matched only where the marker occurs: a search over a long text would hold the GIL for too long.
    bare = any(_BARE.match(text, at) for at in _places(text))
    return (
        bare
        or _KEY.search(text) is not None
        or any(_before_backticks(line) is not None for line in _marked_lines(text))
        or _is_all(text)
    )


def _places(text: str) -> Iterator[int]:
    at = text.find(MARKER)
    while at >= 0:
        yield at
        at = text.find(MARKER, at + len(MARKER))


def _marked_lines(text: str) -> Iterator[str]:
    at = text.find(MARKER)
    while at >= 0:
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        yield text[text.rfind("\n", 0, at) + 1 : end]
        at = text.find(MARKER, end)


def _is_all(text: str) -> bool:
    """Whether the text is only the marker, apart from quotes, emphasis and punctuation."""
    return len(text) <= _MAX_DRESSED and _NOTHING_ELSE.fullmatch(text) is not None


def _before_backticks(line: str) -> str | None:
    """The text before a marker in backticks at the end of the line; None unless that is empty or a full sentence."""
    before, _, after = line.rpartition(MARKER)
    if not before.endswith("`") or not _AFTER_BACKTICKS.fullmatch(after):
        return None
    rest = before.rstrip("`").rstrip(" \t*")
    return rest if not rest or rest[-1] in _SENTENCE_ENDS else None


def without_marker(text: str) -> str:
    """The text without the marker, and without lines that contained nothing else. Keys of larger objects stay."""
    if MARKER not in text:
        return text
    if _is_all(text):
        return ""
    lines = (_cut_line(line) for line in _without(text, _keys_alone(text)).split("\n"))
    return "\n".join(line for line in lines if line is not None)


def _cut_line(line: str) -> str | None:
    if MARKER not in line:
        return line
    before = _before_backticks(line)
    rest = line if before is None else before
    rest = _without(rest, ((at, at + len(MARKER)) for at in _places(rest) if _BARE.match(rest, at)))
    if rest == line:
        return line
    return None if _EMPTY_LINE.fullmatch(rest) else rest.rstrip()


def is_key_alone(text: str) -> bool:
    """Whether the text contains an object with the marker as its only key."""
    return next(_keys_alone(text), None) is not None


def _keys_alone(text: str) -> Iterator[tuple[int, int]]:
    """The spans of objects with the marker as their only key."""
    key, end = f'"{MARKER}"', 0
    at = text.find(key)
    for _ in range(_MAX_KEYS):
        if at < 0:
            return
        found = _KEY_ALONE.search(text, max(end, at - _AROUND), at + _AROUND)
        if found is not None:
            yield found.span()
            end = found.end()
        at = text.find(key, max(end, at + len(key)))


def _without(text: str, spans: Iterator[tuple[int, int]]) -> str:
    pieces, at = [], 0
    for start, end in spans:
        pieces.append(text[at:start])
        at = end
    return "".join([*pieces, text[at:]])


def is_marked(value: Json) -> bool:
    return isinstance(value, dict) and value.get(MARKER) is True


def without_key(value: Json) -> Json:
    """The value without marker keys at any level: they are never part of the data."""
    if isinstance(value, list):
        return [without_key(item) for item in value]
    if isinstance(value, dict):
        return {key: without_key(item) for key, item in value.items() if key != MARKER}
    return value


def prose(text: str) -> str:
    """The message for people, without the question, the output and the marker, which Askback shows in its own way.

    Only what the verdict reads as such is left out. A mention of it, such as an example in a sentence, stays.
    """
    text = clean(text)
    asked = find_questions(text, find(text))
    if asked:
        last = asked[-1]
        # What has no fields of a question, and is followed by text, is most likely an example.
        has_fields = last.yaml is not None or (isinstance(last.fields, Mapping) and bool(last.fields))
        is_asked = has_fields or not text[last.end :].strip()
        return _cut(text, last.start, last.end) if is_asked else text
    return _without_output(text) if is_done(text) else text


def _without_output(text: str) -> str:
    marked = [one for one in find(text) if is_marked(one.value) and len(one.value) > 1]
    if marked:
        return _cut(text, marked[0].start, marked[0].end)
    text = without_marker(text)
    for one in find(text)[:1]:
        if one.place is not Place.EMBEDDED or not text[one.end :].strip():
            return _cut(text, one.start, one.end)
    return text


def _cut(text: str, start: int, end: int) -> str:
    """The text without a part of it. What was around it stays apart: by a space, a line break or an empty line."""
    before, after = text[:start].rstrip(), text[end:].lstrip()
    gap = text[len(before) : start] + text[end : len(text) - len(after)]
    return before + ("\n" * min(gap.count("\n"), 2) or " ") + after
