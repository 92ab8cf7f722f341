"""Reads the `questions` of an ask: the fields of a form.

What is wrong with them is reported. What can still be asked is kept, for runs in which a malformed question is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from askback.core.interactions import MAX_FORM_FIELDS, FormField, Json
from askback.questions.schemas import field_schema, hidden_kind, identifier_of, kind_of, options_of, small, text_of

_PLACE = "ask_user.questions"
_ALONE = ("id", "prompt", "kind", "options", "default", "response_schema", "context")


@dataclass(slots=True, kw_only=True)
class Fields:
    """What was read of a list of questions."""

    fields: tuple[FormField, ...] = ()
    problems: list[str] = field(default_factory=list)
    schema_ignored: bool = False
    alone: Mapping[str, Json] | None = None
    """The only question of the list, as the fields of an ask without a list."""


def read_fields(listed: Json) -> Fields:
    """The fields of a form. An empty list is no form."""
    read = Fields()
    if listed is None or listed == []:
        return read
    if not isinstance(listed, list):
        read.problems.append(f"{_PLACE}: it is not a list of questions")
        return read
    if len(listed) == 1 and isinstance(listed[0], Mapping):
        return _single(listed[0])
    if len(listed) > MAX_FORM_FIELDS:
        read.problems.append(f"{_PLACE}: it has {len(listed)} questions; at most {MAX_FORM_FIELDS} are allowed")
    found = [_field(each, at, read) for at, each in enumerate(listed[:MAX_FORM_FIELDS])]
    read.fields = tuple(each for each in found if each is not None)
    ids = [each.id for each in read.fields]
    for name in dict.fromkeys(name for name in ids if ids.count(name) > 1):
        read.problems.append(f"{_PLACE}: two questions have the id {name!r}")
    return read


def _single(asked: Mapping[str, Json]) -> Fields:
    names = {"question": "prompt", "choices": "options"}
    given = {names.get(name, name): value for name, value in asked.items()}
    if "questions" in given:
        return Fields(problems=[f"{_PLACE}[0]: a form cannot contain another one"])
    if text_of(given.get("prompt")) is None:
        return Fields(problems=[f"{_PLACE}[0].prompt: it is missing"])
    return Fields(alone={name: given[name] for name in _ALONE if name in given})


def _field(asked: Json, at: int, read: Fields) -> FormField | None:
    place = f"{_PLACE}[{at}]"
    if not isinstance(asked, Mapping):
        read.problems.append(f"{place}: it is not an object with a `prompt`")
        asked = {"prompt": asked}
    if "questions" in asked:
        read.problems.append(f"{place}: a form cannot contain another one")
    prompt = text_of(asked.get("prompt")) or text_of(asked.get("question"))
    if prompt is None:
        read.problems.append(f"{place}.prompt: it is missing")
        return None
    if asked.get("kind") == "file":
        read.problems.append(f"{place}: a question for a file must be asked alone")
    options = options_of(asked.get("options", asked.get("choices")))
    wanted = asked.get("response_schema")
    schema = None if wanted is None else small(field_schema(wanted))
    read.schema_ignored |= wanted is not None and schema is None
    return FormField(
        id=identifier_of(asked.get("id", asked.get("interaction_id"))) or f"question-{at + 1}",
        prompt=prompt,
        kind=hidden_kind(kind_of(asked.get("kind"), bool(options)), wanted, schema),
        options=options,
        default=small(asked.get("default")),
        required=asked.get("required") is not False and asked.get("optional") is not True,
        response_schema=schema,
        context=small(asked.get("context")),
    )
