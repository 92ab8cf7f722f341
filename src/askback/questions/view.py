"""What people read of a question, whatever shows it: prompt, context, options and fields, as printable text.

Faces decide on layout, length and language; what a question offers is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from askback.core.interactions import APPROVAL, Json, option_label, option_value
from askback.skills.field_values import Schema, readable
from askback.text.formatting import printable


class Asked(Protocol):
    """A question as it is stored, or as the API shows it."""

    @property
    def kind(self) -> str: ...

    @property
    def prompt(self) -> str: ...

    @property
    def context(self) -> Any: ...

    @property
    def options(self) -> Sequence[Any]: ...

    @property
    def default(self) -> Any: ...

    @property
    def response_schema(self) -> Mapping[str, Any] | None: ...

    @property
    def asks_secrets(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionView:
    label: str
    name: str
    """The label, with its number if another option has the same."""
    value: Json
    about: str
    """What the skill says about the option; often empty."""
    is_default: bool

    @property
    def line(self) -> str:
        """`Packed: see it all`."""
        return f"{self.label}: {self.about}" if self.about else self.label


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldView:
    name: str
    schema: Schema
    required: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionView:
    prompt: str
    context: str
    """What the question is about; often empty."""
    options: tuple[OptionView, ...]
    fields: tuple[FieldView, ...]
    """Of a question that is answered with an object: its properties."""


def view_of(asked: Asked) -> QuestionView:
    return QuestionView(
        prompt=printable(asked.prompt).strip(),
        context=context_text(asked),
        options=options_of(asked),
        fields=fields_of(asked),
    )


def context_text(asked: Asked) -> str:
    # The text of an approval has what matters of its context, with every character visible.
    shows = asked.context and asked.kind != APPROVAL
    return printable(readable(asked.context)).strip() if shows else ""


def options_of(asked: Asked) -> tuple[OptionView, ...]:
    labels = [printable(option_label(each)) for each in asked.options]
    return tuple(
        OptionView(
            label=label,
            name=label if labels.count(label) == 1 else f"{number}. {label}",
            value=option_value(option),
            about=_about(option),
            is_default=asked.default is not None and asked.default in (option_value(option), option_label(option)),
        )
        for number, (label, option) in enumerate(zip(labels, asked.options, strict=True), 1)
    )


def _about(option: Json) -> str:
    about = option.get("description") if isinstance(option, Mapping) else None
    return printable(str(about)) if about else ""


def is_form(asked: Asked) -> bool:
    """Whether the question is answered with an object, field by field."""
    return (asked.response_schema or {}).get("type") == "object" and not asked.options


def fields_of(asked: Asked) -> tuple[FieldView, ...]:
    schema = asked.response_schema if is_form(asked) else None
    if schema is None:
        return ()
    required = schema.get("required") or ()
    fields = schema.get("properties") or {}
    return tuple(FieldView(name=name, schema=field, required=name in required) for name, field in fields.items())
