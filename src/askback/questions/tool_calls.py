"""Checks the arguments of `put_question`, by the rules for a question in a message. The model gets what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from askback.core.interactions import MAX_PROMPT_BYTES, MAX_QUESTION_BYTES, Json, Question, bounded
from askback.questions.finding import QuestionBlock, is_question, read_question

MAX_PARTS = 4_000
"""Objects and lists in the schemas of a call. A usable schema that is not too large has fewer."""
_TOO_COMPLEX = f"response_schema: it has more than {MAX_PARTS:,} objects and lists"


@dataclass(frozen=True, slots=True, kw_only=True)
class PutQuestion:
    """A question that a tool put. It can be asked only if it has no problems."""

    question: Question
    problems: tuple[str, ...]


def read_call(arguments: Json) -> PutQuestion:
    """Stricter than for a message: nothing of the question is dropped silently, since the model can correct it."""
    fields = arguments["ask_user"] if is_question(arguments) else arguments
    if not _has_few_parts(_schemas(fields)):
        empty, _ = read_question(QuestionBlock(start=0, end=0, fields={}), "")
        return PutQuestion(question=empty, problems=(_TOO_COMPLEX,))
    question, problems = read_question(QuestionBlock(start=0, end=0, fields=fields), "")
    found = [each.removeprefix("ask_user.") for each in problems]
    if question.schema_ignored:
        found.append("response_schema: it is neither a scalar nor a flat object of scalars")
    if not found and bounded(question) is not question:
        found.append(f"it is too large: at most {MAX_QUESTION_BYTES:,} bytes, and {MAX_PROMPT_BYTES:,} for the prompt")
    return PutQuestion(question=question, problems=tuple(found))


def _schemas(fields: Json) -> list[Json]:
    if not isinstance(fields, Mapping):
        return []
    listed = fields.get("questions")
    asked = [fields, *(listed if isinstance(listed, list) else ())]
    return [each.get("response_schema") for each in asked if isinstance(each, Mapping)]


def _has_few_parts(values: list[Json]) -> bool:
    """Counted before anything else looks at them, and no further than needed."""
    left, seen = [each for each in values if isinstance(each, Mapping | list)], 0
    while left and seen + len(left) <= MAX_PARTS:
        part = left.pop()
        seen += 1
        inner = part.values() if isinstance(part, Mapping) else part
        left += [each for each in inner if isinstance(each, Mapping | list)]
    return not left
