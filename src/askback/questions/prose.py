"""The text of a message for people: without the question, the output and the marker, which Askback shows in its own way.

Only what the verdict reads as such is left out. A mention of it, such as an example in a sentence, stays.
"""

from __future__ import annotations

from collections.abc import Mapping

from askback.questions.finding import find_questions
from askback.questions.reading import is_done, is_marked, without_marker
from askback.text.json_text import Place, clean, find


def prose(text: str) -> str:
    """The message without its question, or if it says that the skill is done, without its output."""
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
