"""Finds questions in assistant messages, and reads as much as possible of a malformed one.

Whether a malformed question makes the run wait or fail is not decided here. A long one is cut in `core.interactions`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from askback.core.interactions import FORM, Json, Question
from askback.questions.forms import Fields, read_fields
from askback.questions.schemas import hidden_kind, identifier_of, kind_of, options_of, response_schema, small, text_of
from askback.text import yaml_text
from askback.text.json_text import Found, NotJson, loads

_OPEN, _CLOSE = "<ASK_USER_YAML>", "</ASK_USER_YAML>"
_OPEN_LINE = re.compile(r"^[ \t]*<ASK_USER_YAML>", re.MULTILINE)
_FENCE_LINE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})[^\n]*$", re.MULTILINE)
_BROKEN = re.compile(r'["\']ask_user["\']\s{0,100}:')
_BROKEN_PROMPT = re.compile(r'"(?:prompt|question)"\s{0,100}:\s{0,100}("[^"\\]*+(?:\\.[^"\\]*+)*+")', re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionBlock:
    """A question found in a message: the value of `ask_user`, the YAML between the tags, or what is wrong with it."""

    start: int
    end: int
    fields: Json = None
    yaml: str | None = None
    problem: str | None = None


def is_question(value: Json) -> bool:
    """Whether the value is an object with a non-empty `ask_user`. Its other keys do not matter."""
    return isinstance(value, Mapping) and value.get("ask_user") not in (None, False)


def find_questions(text: str, found: Sequence[Found]) -> list[QuestionBlock]:
    """Every question in a message, in order."""
    asked = _yaml_blocks(text)
    asked += [
        QuestionBlock(start=one.start, end=one.end, fields=one.value["ask_user"])
        for one in found
        if is_question(one.value)
    ]
    if not asked and (broken := _broken(text, found)) is not None:
        asked.append(broken)
    return sorted(asked, key=lambda one: one.start)


def _yaml_blocks(text: str) -> list[QuestionBlock]:
    asked: list[QuestionBlock] = []
    at = 0
    while (close := text.find(_CLOSE, at)) >= 0:
        # The nearest opening tag: an earlier one is only mentioned in the text.
        if (start := text.rfind(_OPEN, at, close)) >= 0:
            asked.append(QuestionBlock(start=start, end=close + len(_CLOSE), yaml=text[start + len(_OPEN) : close]))
        at = close + len(_CLOSE)
    if (opening := _OPEN_LINE.search(text, at)) is not None:
        yaml, problem = text[opening.end() :], f"ask_user: the closing {_CLOSE} is missing"
        asked.append(QuestionBlock(start=opening.start(), end=len(text), yaml=yaml, problem=problem))
    return asked


def _broken(text: str, found: Sequence[Found]) -> QuestionBlock | None:
    """An intended question that is not valid JSON. Its prompt is often still readable."""
    for match in _BROKEN.finditer(text):
        if any(one.start <= match.start() < one.end for one in found):
            continue
        prompt = _BROKEN_PROMPT.search(text, match.end())
        fields = {"prompt": _literal(prompt[1])} if prompt else {}
        # The end of the block is unknown, so the block is empty.
        at = match.start()
        return QuestionBlock(start=at, end=at, fields=fields, problem="ask_user: the block is not valid JSON")
    return None


def _literal(quoted: str) -> str:
    try:
        return str(loads(quoted))
    except NotJson:
        return quoted[1:-1]


def read_question(asked: QuestionBlock, text: str) -> tuple[Question, tuple[str, ...]]:
    """The question and its problems. Only missing required fields are problems; other invalid fields are dropped.

    A list of one question is that question. A longer one is a form, whose problems are those of its questions as well.
    """
    given, problems = _fields(asked)
    form = read_fields(given.get("questions"))
    fields = given if form.alone is None else _merged(given, form.alone)
    identifier = identifier_of(fields.get("interaction_id"))
    prompt = text_of(fields.get("prompt")) or text_of(fields.get("question"))
    if not problems:
        problems += ["ask_user.interaction_id: it is missing"] * (identifier is None)
        problems += ["ask_user.prompt: it is missing"] * (prompt is None)
        problems += form.problems
    if form.fields:
        return _form(form, identifier, prompt or _introduction(asked, text), fields), tuple(problems)
    options = options_of(fields.get("options", fields.get("choices")))
    wanted = fields.get("response_schema")
    schema = response_schema(wanted)
    question = Question(
        prompt=prompt or _around(asked, text),
        interaction_id=identifier,
        kind=hidden_kind(kind_of(fields.get("kind"), bool(options)), wanted, schema),
        options=options,
        default=small(fields.get("default")),
        response_schema=schema,
        schema_ignored=wanted is not None and schema is None,
        context=small(fields.get("context")),
    )
    return question, tuple(problems)


def _merged(ask: Mapping[str, Json], alone: Mapping[str, Json]) -> Mapping[str, Json]:
    """The only question of an ask. The prompt of the ask comes first."""
    said, prompt = text_of(ask.get("prompt")) or text_of(ask.get("question")), text_of(alone["prompt"])
    whole = f"{said}\n\n{prompt}" if said and said != prompt else prompt
    return {"interaction_id": alone.get("id"), **ask, **alone, "prompt": whole}


def _form(form: Fields, identifier: str | None, prompt: str, fields: Mapping[str, Json]) -> Question:
    return Question(
        prompt=prompt,
        interaction_id=identifier,
        kind=FORM,
        questions=form.fields,
        schema_ignored=form.schema_ignored,
        context=small(fields.get("context")),
    )


def _introduction(asked: QuestionBlock, text: str) -> str:
    """The prompt of a form without one: what the message says beside its block."""
    return (text[: asked.start] + text[asked.end :]).strip() or "Please answer these questions."


def _fields(asked: QuestionBlock) -> tuple[Mapping[str, Json], list[str]]:
    fields, problems = asked.fields, [asked.problem] if asked.problem else []
    if asked.yaml is not None:
        try:
            fields = yaml_text.load(_FENCE_LINE.sub("", asked.yaml))
        except yaml_text.NotYaml as error:
            return {}, problems or [f"ask_user: the YAML cannot be read: {error}"]
        if is_question(fields):
            fields = fields["ask_user"]
    if isinstance(fields, Mapping):
        return fields, problems
    problems = problems or ["ask_user: it is not an object with `interaction_id` and `prompt`"]
    return ({"prompt": fields} if isinstance(fields, str) else {}), problems


def _around(asked: QuestionBlock, text: str) -> str:
    """The message without the question's block, or the whole message if nothing else is left."""
    return (text[: asked.start] + text[asked.end :]).strip() or text.strip()
