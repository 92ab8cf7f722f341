"""Checks the arguments of `put_question`, by the rules for a question in a message. The model gets what is wrong."""

from __future__ import annotations

from dataclasses import dataclass

from askback.core.interactions import MAX_PROMPT_BYTES, MAX_QUESTION_BYTES, Json, Question, bounded
from askback.engines.answers.questions import QuestionBlock, is_question, read_question


@dataclass(frozen=True, slots=True, kw_only=True)
class PutQuestion:
    """A question that a tool put. It can be asked only if it has no problems."""

    question: Question
    problems: tuple[str, ...]


def read_call(arguments: Json) -> PutQuestion:
    """Stricter than for a message: nothing of the question is dropped silently, since the model can correct it."""
    fields = arguments["ask_user"] if is_question(arguments) else arguments
    question, problems = read_question(QuestionBlock(start=0, end=0, fields=fields), "")
    found = [each.removeprefix("ask_user.") for each in problems]
    if question.schema_ignored:
        found.append("response_schema: it is neither a scalar nor a flat object of scalars")
    if not found and bounded(question) is not question:
        found.append(f"it is too large: at most {MAX_QUESTION_BYTES:,} bytes, and {MAX_PROMPT_BYTES:,} for the prompt")
    return PutQuestion(question=question, problems=tuple(found))
