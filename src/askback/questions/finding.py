"""Finds questions in assistant messages and in calls of the ask tool, and reads as much as possible of a malformed one.

Whether a malformed question makes the run wait or fail is not decided here. A long one is cut in `core.interactions`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from askback.core.errors import FieldCode, FieldProblem
from askback.core.interactions import (
    FORM,
    MAX_FORM_FIELDS,
    MAX_PROMPT_BYTES,
    MAX_QUESTION_BYTES,
    FormField,
    Json,
    Question,
    bounded,
)
from askback.questions import schemas
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
    problem: FieldProblem | None = None


def is_question(value: Json) -> bool:
    """Whether the value is an object with a non-empty `ask_user`. Its other keys do not matter."""
    return isinstance(value, Mapping) and value.get("ask_user") not in (None, False)


def find_questions(text: str, found: Sequence[Found]) -> list[QuestionBlock]:
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
        yaml, problem = text[opening.end() :], _problem(f"the closing {_CLOSE} is missing")
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
        return QuestionBlock(start=at, end=at, fields=fields, problem=_problem("the block is not valid JSON"))
    return None


def _literal(quoted: str) -> str:
    try:
        return str(loads(quoted))
    except NotJson:
        return quoted[1:-1]


def _problem(message: str, *path: str | int) -> FieldProblem:
    """`path` leads from the object in `ask_user` to what is wrong."""
    return FieldProblem.at(("ask_user", *path), message)


def _missing(*path: str | int) -> FieldProblem:
    return FieldProblem.at(("ask_user", *path), "it is missing", FieldCode.REQUIRED)


def read_question(asked: QuestionBlock, text: str) -> tuple[Question, tuple[FieldProblem, ...]]:
    """The question and its problems. Only missing required fields are problems; other invalid fields are dropped.

    A list of one question is that question. A longer one is a form, whose problems are those of its questions as well.
    """
    given, problems = _fields(asked)
    form = _read_form(given.get("questions"))
    fields = given if form.alone is None else _merged(given, form.alone)
    identifier = schemas.identifier_of(fields.get("interaction_id"))
    prompt = schemas.text_of(fields.get("prompt")) or schemas.text_of(fields.get("question"))
    if not problems:
        problems += [_missing("interaction_id")] * (identifier is None)
        problems += [_missing("prompt")] * (prompt is None)
        problems += form.problems
    if form.fields:
        question = Question(
            prompt=prompt or _beside(asked, text) or "Please answer these questions.",
            interaction_id=identifier,
            kind=FORM,
            questions=form.fields,
            schema_ignored=form.schema_ignored,
            context=schemas.small(fields.get("context")),
        )
        return question, tuple(problems)
    options = schemas.options_of(fields.get("options", fields.get("choices")))
    wanted = fields.get("response_schema")
    schema = schemas.response_schema(wanted)
    question = Question(
        prompt=prompt or _beside(asked, text) or text.strip(),
        interaction_id=identifier,
        kind=schemas.hidden_kind(schemas.kind_of(fields.get("kind"), bool(options)), wanted, schema),
        options=options,
        default=schemas.small(fields.get("default")),
        response_schema=schema,
        schema_ignored=wanted is not None and schema is None,
        context=schemas.small(fields.get("context")),
    )
    return question, tuple(problems)


def _merged(ask: Mapping[str, Json], alone: Mapping[str, Json]) -> Mapping[str, Json]:
    """The only question of an ask. The prompt of the ask comes first."""
    said, prompt = (
        schemas.text_of(ask.get("prompt")) or schemas.text_of(ask.get("question")),
        schemas.text_of(alone["prompt"]),
    )
    whole = f"{said}\n\n{prompt}" if said and said != prompt else prompt
    return {"interaction_id": alone.get("id"), **ask, **alone, "prompt": whole}


def _fields(asked: QuestionBlock) -> tuple[Mapping[str, Json], list[FieldProblem]]:
    fields, problems = asked.fields, [asked.problem] if asked.problem else []
    if asked.yaml is not None:
        try:
            fields = yaml_text.load(_FENCE_LINE.sub("", asked.yaml))
        except yaml_text.NotYaml as error:
            return {}, problems or [_problem(f"the YAML cannot be read: {error}")]
        if is_question(fields):
            fields = fields["ask_user"]
    if isinstance(fields, Mapping):
        return fields, problems
    problems = problems or [_problem("it is not an object with `interaction_id` and `prompt`")]
    return ({"prompt": fields} if isinstance(fields, str) else {}), problems


def _beside(asked: QuestionBlock, text: str) -> str:
    return (text[: asked.start] + text[asked.end :]).strip()


_ALONE = ("id", "prompt", "kind", "options", "default", "response_schema", "context")


@dataclass(slots=True, kw_only=True)
class _Fields:
    """What was read of the `questions` of an ask: the fields of a form, as far as they can be asked, and what is wrong."""

    fields: tuple[FormField, ...] = ()
    problems: list[FieldProblem] = field(default_factory=list)
    schema_ignored: bool = False
    alone: Mapping[str, Json] | None = None
    """The only question of the list, as the fields of an ask without a list."""


def _read_form(listed: Json) -> _Fields:
    """The fields of a form. An empty list is no form."""
    read = _Fields()
    if listed is None or listed == []:
        return read
    if not isinstance(listed, list):
        read.problems.append(_problem("it is not a list of questions", "questions"))
        return read
    if len(listed) == 1 and isinstance(listed[0], Mapping):
        return _only_question(listed[0])
    if len(listed) > MAX_FORM_FIELDS:
        message = f"it has {len(listed)} questions; at most {MAX_FORM_FIELDS} are allowed"
        read.problems.append(_problem(message, "questions"))
    found = [_form_field(each, at, read) for at, each in enumerate(listed[:MAX_FORM_FIELDS])]
    read.fields = tuple(each for each in found if each is not None)
    ids = [each.id for each in read.fields]
    for name in dict.fromkeys(name for name in ids if ids.count(name) > 1):
        read.problems.append(_problem(f"two questions have the id {name!r}", "questions"))
    return read


def _only_question(asked: Mapping[str, Json]) -> _Fields:
    names = {"question": "prompt", "choices": "options"}
    given = {names.get(name, name): value for name, value in asked.items()}
    if "questions" in given:
        return _Fields(problems=[_problem("a form cannot contain another one", "questions", 0)])
    if schemas.text_of(given.get("prompt")) is None:
        return _Fields(problems=[_missing("questions", 0, "prompt")])
    return _Fields(alone={name: given[name] for name in _ALONE if name in given})


def _form_field(asked: Json, at: int, read: _Fields) -> FormField | None:
    place = ("questions", at)
    if not isinstance(asked, Mapping):
        read.problems.append(_problem("it is not an object with a `prompt`", *place))
        asked = {"prompt": asked}
    if "questions" in asked:
        read.problems.append(_problem("a form cannot contain another one", *place))
    prompt = schemas.text_of(asked.get("prompt")) or schemas.text_of(asked.get("question"))
    if prompt is None:
        read.problems.append(_missing(*place, "prompt"))
        return None
    if asked.get("kind") == "file":
        read.problems.append(_problem("a question for a file must be asked alone", *place))
    options = schemas.options_of(asked.get("options", asked.get("choices")))
    wanted = asked.get("response_schema")
    schema = None if wanted is None else schemas.small(schemas.field_schema(wanted))
    read.schema_ignored |= wanted is not None and schema is None
    return FormField(
        id=schemas.identifier_of(asked.get("id", asked.get("interaction_id"))) or f"question-{at + 1}",
        prompt=prompt,
        kind=schemas.hidden_kind(schemas.kind_of(asked.get("kind"), bool(options)), wanted, schema),
        options=options,
        default=schemas.small(asked.get("default")),
        required=asked.get("required") is not False and asked.get("optional") is not True,
        response_schema=schema,
        context=schemas.small(asked.get("context")),
    )


MAX_PARTS = 4_000
"""Objects and lists in the schemas of a call. A usable schema that is not too large has fewer."""
_TOO_COMPLEX = f"response_schema: it has more than {MAX_PARTS:,} objects and lists"


@dataclass(frozen=True, slots=True, kw_only=True)
class PutQuestion:
    """A question that a tool put. It can be asked only if it has no problems."""

    question: Question
    problems: tuple[str, ...]


def read_call(arguments: Json) -> PutQuestion:
    """Check the arguments of `put_question`. The model gets what is wrong.

    Stricter than for a message: nothing of the question is dropped silently, since the model can correct it.
    """
    fields = arguments["ask_user"] if is_question(arguments) else arguments
    if not _has_few_parts(_schemas(fields)):
        empty, _ = read_question(QuestionBlock(start=0, end=0, fields={}), "")
        return PutQuestion(question=empty, problems=(_TOO_COMPLEX,))
    question, problems = read_question(QuestionBlock(start=0, end=0, fields=fields), "")
    found: list[str] = [each.inner() for each in problems]
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
    """Whether there are at most `MAX_PARTS` objects and lists in the values. Counting stops there."""
    left, seen = [each for each in values if isinstance(each, Mapping | list)], 0
    while left and seen + len(left) <= MAX_PARTS:
        part = left.pop()
        seen += 1
        inner = part.values() if isinstance(part, Mapping) else part
        left += [each for each in inner if isinstance(each, Mapping | list)]
    return not left
