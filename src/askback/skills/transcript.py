"""Questions and answers as text for an engine: one answer, or all of them for a session that replaces a lost one. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from askback.core.interactions import Interaction, InteractionOutcome, Json
from askback.text.json_text import indented

MAX_TRANSCRIPT_CHARS = 200_000
"""Characters of the questions and answers before the newest."""
MAX_FIELD_PROMPT = 500
"""Characters of a form's question that are repeated with its answer."""
MAX_EARLIER_CHARS = 10_000
"""Characters of one earlier question or answer, if all of them are too long."""
_CUT = " [… cut]"


def transcript_part(interactions: Sequence[Interaction]) -> str:
    """What was asked and answered in a session that was lost, oldest first."""
    intro = (
        "## What happened so far\n\n"
        "You began this work in an earlier session, which was lost. This is a new session in the same working directory, "
        "and files that you wrote are still there: look at them first. "
    )
    closed = [each for each in interactions if each.answered_by is not None]
    if not closed:
        return intro + "The user was asked nothing yet."
    entries = "\n\n".join(_entries(closed))
    return f"{intro}Your questions to the user and the answers, oldest first:\n\n<transcript>\n{entries}\n</transcript>"


def _entries(closed: Sequence[Interaction]) -> list[str]:
    """The newest one is complete. If the others are too long, their texts are cut, and the oldest left out."""
    newest, earlier = _entry(closed[-1]), [_entry(each) for each in closed[:-1]]
    if sum(map(len, earlier)) <= MAX_TRANSCRIPT_CHARS:
        return [*earlier, newest]
    shown, room = [newest], MAX_TRANSCRIPT_CHARS
    for number, each in reversed(list(enumerate(closed[:-1], start=1))):
        entry = _entry(each, MAX_EARLIER_CHARS)
        room -= len(entry)
        if room < 0:
            shown.append(f"(The first {number} questions are left out here: the transcript is too long.)")
            break
        shown.append(entry)
    return shown[::-1]


def _entry(interaction: Interaction, limit: int | None = None) -> str:
    question: dict[str, Json] = {"interaction_id": interaction.interaction_id, "prompt": interaction.prompt}
    if limit is not None:
        question["prompt"] = _cut(interaction.prompt, limit)
    else:
        asks = [{"id": field.id, "prompt": field.prompt} for field in interaction.questions]
        shown = {"options": list(interaction.options), "questions": asks, "context": interaction.context}
        question |= {name: value for name, value in shown.items() if value}
    asked = data_block("question", question)
    if interaction.outcome is InteractionOutcome.AUTO_DECIDED:
        return f"{asked}\n\n{unanswered(interaction)}"
    return f"{asked}\n\n{answer_block(interaction.interaction_id, _cut(answer_text(interaction), limit))}"


def _cut(text: str, limit: int | None) -> str:
    return text if limit is None or len(text) <= limit else text[:limit] + _CUT


def answer_text(interaction: Interaction) -> str:
    """The answer word for word; as JSON if it is not a text."""
    answer = interaction.response
    return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)


def asked_before(interaction: Interaction) -> str:
    """The question, for an engine whose session may not have it."""
    question = {"interaction_id": interaction.interaction_id, "prompt": _cut(interaction.prompt, MAX_EARLIER_CHARS)}
    return f"You asked the user:\n\n{data_block('question', question)}"


def answered(interaction: Interaction) -> str:
    """That there is an answer. For a form, which questions it answers: the answer itself has only their ids."""
    if not interaction.questions:
        return f'The user answered your question "{interaction.interaction_id}". The answer, word for word:'
    given = interaction.response if isinstance(interaction.response, Mapping) else {}
    asked = "\n".join(
        f"- {field.id}: {json.dumps(_cut(field.prompt, MAX_FIELD_PROMPT), ensure_ascii=False)}"
        + ("" if field.id in given else " (left unanswered)")
        for field in interaction.questions
    )
    return (
        f'The user answered your form "{interaction.interaction_id}". Its questions by their ids:\n\n{asked}\n\n'
        "The answers by the same ids, as JSON:"
    )


def answer_block(interaction_id: str, text: str) -> str:
    return f'<user_reply interaction_id="{interaction_id}">\n{text}\n</user_reply>'


def unanswered(interaction: Interaction) -> str:
    """That there was no answer, and what to do instead."""
    intro = f'The user did not answer your question "{interaction.interaction_id}" in time. '
    if interaction.default is None:
        return intro + "Make the most sensible choice yourself, and say in the result that you did."
    value = json.dumps(interaction.default, ensure_ascii=False)
    return intro + f"Decide yourself; the default that you named is {value}. Say in the result that you did."


def data_block(tag: str, value: Json) -> str:
    """A value as JSON between tags. No text in it looks like a tag: the escapes mean the same to a JSON parser."""
    text = indented(value).replace("</", "<\\/").replace(f"<{tag}>", f"\\u003c{tag}>")
    return f"<{tag}>\n{text}\n</{tag}>"
