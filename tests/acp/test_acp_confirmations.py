"""What a form of an editor means as the answer to a confirmation. What cannot be read is no answer."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from askback.acp.questions import check_reply, elicitation_of
from askback.core.errors import Invalid
from askback.core.interactions import Interaction
from askback.questions.forms import form_of


def confirm(default: Any = None) -> Interaction:
    asked_at = datetime(2026, 1, 1, tzinfo=UTC)
    return Interaction(
        interaction_id="go", kind="confirm", prompt="Delete it?", attempt_number=1, asked_at=asked_at, default=default
    )


def read(asked: Interaction, content: dict[str, Any]) -> Any:
    form = form_of(asked, rich=True)
    assert form is not None
    assert elicitation_of(form) is not None
    response = form.answer(content)
    check_reply(asked, response)
    return response


@pytest.mark.parametrize("given", [False, "no", "No", " n ", "false", "FALSE"])
def test_a_no_is_never_a_yes(given: Any) -> None:
    assert read(confirm(), {"answer": given}) == "no"


@pytest.mark.parametrize("given", [True, "yes", "Y", "true"])
def test_a_yes_is_a_yes(given: Any) -> None:
    assert read(confirm(), {"answer": given}) == "yes"


@pytest.mark.parametrize("content", [{}, {"answer": None}, {"answer": ""}, {"answer": "perhaps"}, {"answer": 1}])
@pytest.mark.parametrize("default", [None, True, False])
def test_a_form_without_a_readable_answer_is_asked_again(content: dict[str, Any], default: Any) -> None:
    with pytest.raises(Invalid):
        read(confirm(default), content)
