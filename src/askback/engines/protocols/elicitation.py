"""A form that a program asks its user to fill in, as ACP and MCP have it: read as a question, answered in its own form.

Knows no message of a protocol but these two, the request and its answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from askback.core.interactions import Json, Question, option_label, option_value
from askback.engines.answers.questions import cut, flat_schema
from askback.engines.base import Reply
from askback.engines.protocols.json_lines import object_at, text_at

DECLINED: Mapping[str, Json] = {"action": "decline"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What was asked, and the fields that the answer must fill."""

    question: Question
    schema: Mapping[str, Json]

    @property
    def fields(self) -> Mapping[str, Any]:
        return object_at(self.schema, "properties")

    def answer(self, reply: Reply | None) -> Mapping[str, Json]:
        """The reply in the protocol's form. What nobody decided is answered by defaults, if they fill the form."""
        content = None
        if reply is not None:
            content = self._filled(reply.response) if reply.decided else self._defaults()
        return DECLINED if content is None else {"action": "accept", "content": content}

    def _filled(self, response: Json) -> Mapping[str, Json] | None:
        if isinstance(response, Mapping):
            return {name: value for name, value in response.items() if name in self.fields}
        if len(self.fields) != 1 or response is None:
            return None
        return {name: _chosen(self.question, response) for name in self.fields}

    def _defaults(self) -> Mapping[str, Json] | None:
        required = self.schema.get("required", ())
        filled = {name: _default(field) for name, field in self.fields.items()}
        known = {name: value for name, value in filled.items() if value is not None}
        return known if known and all(name in known for name in required) else None


def read_form(params: Mapping[str, Any]) -> Form | None:
    """The form in a request; None for what can be shown to no user, such as an address that is to be opened."""
    schema, prompt = flat_schema(params.get("requestedSchema")), text_at(params, "message")
    if text_at(params, "mode") not in ("", "form") or schema is None or not prompt.strip():
        return None
    fields = list(schema["properties"].values())
    options = _options(fields[0]) if len(fields) == 1 else ()
    if not options:
        return Form(question=Question(prompt=cut(prompt), response_schema=schema), schema=schema)
    question = Question(prompt=cut(prompt), kind="choice", options=options, default=fields[0].get("default"))
    return Form(question=question, schema=schema)


def _options(field: Mapping[str, Any]) -> tuple[Json, ...]:
    """The choices of a field that takes one of them."""
    if field["type"] == "boolean":
        return ({"label": "yes", "value": True}, {"label": "no", "value": False})
    if titled := field.get("oneOf"):
        return tuple({"label": each.get("title", each["const"]), "value": each["const"]} for each in titled)
    values, names = field.get("enum", ()), field.get("enumNames", ())
    if len(names) != len(values):
        return tuple(values)
    return tuple({"label": name, "value": value} for value, name in zip(values, names, strict=True))


def _chosen(question: Question, response: Json) -> Json:
    """The value of the option that was named by its label; any other response as it is."""
    named = (option_value(option) for option in question.options if option_label(option) == response)
    return next(named, response)


def _default(field: Mapping[str, Any]) -> Json:
    """The value that is taken if nobody says anything: the default, or the first choice, which is the recommended one."""
    options = () if field["type"] == "boolean" else _options(field)
    return field.get("default", option_value(options[0]) if options else None)
