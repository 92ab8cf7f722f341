"""What an assistant's messages hold: the marker, a question, an output. Only whole assistant messages are given here.

Says what was found, not what it means for the run: `core.outcomes.conclude` reads the contract's order.
Nothing in a message, however hostile, makes this raise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from askback.core.interactions import Json, Question
from askback.core.outcomes import Answer
from askback.engines.json_text import Found, Place, clean, find
from askback.engines.markers import MARKER, is_done, is_key_alone, is_marked, without_key, without_marker
from askback.engines.questions import Asked, cut, find_questions, is_question, read_question

Check = Callable[[Json], tuple[str, ...]]
"""What an output schema says against a value; nothing when it passes."""

_MOST_CHECKED = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    """A message taken apart: `plain` is its text without questions and marker, `found` the JSON values in that."""

    text: str
    plain: str
    found: tuple[Found, ...]
    asked: tuple[Asked, ...]
    done: bool
    key_alone: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Output:
    value: Json = None
    problems: tuple[str, ...] | None = None


def read_answer(messages: Sequence[str], check: Check | None, *, whole_turn: bool = False) -> Answer:
    """Find what the messages of one turn hold. `check` is the output schema's, None for a skill that has none.

    Without a marker only the last message may hold the output, so that a draft on the way to a question is not
    taken for the result; `whole_turn` lifts that for runs that cannot wait.
    """
    read = [_read(clean(text)) for text in messages if text.strip()]
    done = any(message.done for message in read)
    searched = read if done or whole_turn else read[-1:]
    output = _free_output(searched) if check is None else _checked_output(searched, check)
    question, problems = _last_question(read)
    return Answer(
        message=_last_text(read),
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


def _without_blocks(text: str, asked: Sequence[Asked]) -> str:
    """A marker or an object within a question belongs to the question."""
    pieces, at = [], 0
    for one in asked:
        pieces.append(text[at : one.start])
        at = max(at, one.end)
    return "\n".join([*pieces, text[at:]]) if asked else text


def _checked_output(messages: Sequence[_Message], check: Check) -> _Output:
    """The first value that passes, the last message first. One that carries the marker itself is the output, and no other."""
    values = [(one.value, MARKER in message.plain) for message in reversed(messages) for one in message.found]
    if not values and any(message.key_alone for message in messages):
        values = [({}, False)]
    marked = [pair for pair in values if is_marked(pair[0])]
    first = _Output()
    for value, holds_key in (marked or values)[:_MOST_CHECKED]:
        output = without_key(value) if holds_key else value
        problems = check(output)
        if not problems:
            return _Output(value=output, problems=())
        if first.problems is None:
            first = _Output(value=output, problems=problems)
    return first


def _free_output(messages: Sequence[_Message]) -> _Output:
    """Without a schema: the JSON that the last message consists of or has in a block, else its text."""
    for message in reversed(messages):
        if message.asked or not message.plain:
            continue
        blocks = [one.value for one in message.found if one.place is not Place.EMBEDDED]
        return _Output(value=without_key(blocks[0]) if blocks else message.plain, problems=())
    return _Output()


def _last_question(messages: Sequence[_Message]) -> tuple[Question | None, tuple[str, ...]]:
    for message in reversed(messages):
        if message.asked:
            return read_question(message.asked[-1], message.text)
    return None, ()


def _last_text(messages: Sequence[_Message]) -> str:
    return next((cut(message.plain) for message in reversed(messages) if message.plain), "")
