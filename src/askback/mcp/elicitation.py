"""What an MCP client shows of a question, and what its answer means. The form itself is made in `questions.forms`. Pure."""

from __future__ import annotations

import json
from typing import Any

from askback.client import Refused
from askback.core.errors import RefusalCode
from askback.core.interactions import option_value
from askback.questions.forms import Form, listed
from askback.questions.typed_answers import confirmation, is_confirmation
from askback.questions.view import view_of
from askback.text.formatting import cut, one_line, printable
from askback.wire.questions import Interaction
from askback.wire.runs import Run

_MAX_TITLE = 120
_MAX_CONTEXT = 2000
_STATUS = 422
"""That of the API for an answer that does not fit."""


def message_of(run: Run, asked: Interaction) -> str:
    """What the user reads above the form, or before the page is opened: who asks, the question, and what it is about."""
    about = one_line(f"{run.skill} ({run.summary})" if run.summary else run.skill, _MAX_TITLE)
    view = view_of(asked)
    options = listed([each.line for each in view.options if each.about])
    parts = (f"{printable(about)} asks:\n{view.prompt}", cut(view.context, _MAX_CONTEXT), options)
    return "\n\n".join(part for part in parts if part)


def by_form(asked: Interaction, form: Form, content: dict[str, Any] | None) -> Any:
    """The answer in an accepted form; None if there is none. Raises `Refused` if it does not fit."""
    given = form.answer(content) if content else None
    if given is not None and asked.response_schema is None and _is_empty(asked, given):
        raise _invalid("the answer is empty")
    return None if given is None else _fitting(asked, given)


def by_tool(asked: Interaction, given: Any) -> Any:
    """The answer in the arguments of a tool: nothing stands for the default. Raises `Refused` if there is none."""
    if _is_empty(asked, given):
        given = asked.default if asked.default is not None else (asked.response_schema or {}).get("default")
        if given is None:
            raise _invalid("the answer is empty, and the question has no default")
    elif isinstance(given, str):
        given = _as_asked(given, asked.response_schema)
    return _fitting(asked, given)


def _is_empty(asked: Interaction, given: Any) -> bool:
    """Whether the answer is empty, and not an option that is empty."""
    is_blank = given is None or (isinstance(given, str) and not given.strip())
    return is_blank and given not in [option_value(each) for each in asked.options]


def _as_asked(answer: str, schema: dict[str, Any] | None) -> Any:
    """Some clients send every value as a text. It is read as JSON where the question asks for something else."""
    if schema is None or schema.get("type") in (None, "string"):
        return answer
    try:
        return json.loads(answer)
    except ValueError:
        return answer


def _fitting(asked: Interaction, given: Any) -> Any:
    """A confirmation as `yes` or `no`, any other answer as it is. Raises `Refused` for a confirmation with other words."""
    if not is_confirmation(asked):
        return given
    answer = confirmation(given)
    if answer is None:
        raise _invalid("the question is answered with yes or no")
    return answer


def _invalid(message: str) -> Refused:
    return Refused(_STATUS, RefusalCode.REPLY_INVALID, message)
