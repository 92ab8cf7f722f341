"""What `codex app-server` asks of its client: approvals, which are given, and questions for the user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from askback.core.interactions import Json, Question
from askback.engines.base import Reply
from askback.engines.elicitation import DECLINED, Form, read_form
from askback.engines.json_lines import object_at, text_at
from askback.engines.questionnaire import Questionnaire, read_questionnaire

_NO_ANSWERS: Mapping[str, Json] = {"answers": {}}


@dataclass(frozen=True, slots=True, kw_only=True)
class UserInput:
    """A call of the model's ask tool. The answers go back as lists, each under its question's id."""

    asked: Questionnaire
    ids: tuple[str, ...]
    is_secret: bool

    @property
    def question(self) -> Question:
        question = self.asked.question
        if len(self.ids) > 1:
            return question
        return replace(question, interaction_id=self.ids[0] or None, kind="secret" if self.is_secret else question.kind)

    def answer(self, reply: Reply | None) -> Mapping[str, Json]:
        answers = self.asked.answers(reply)
        if answers is None:
            return _NO_ANSWERS
        lists = (each if isinstance(each, list) else [each] for each in answers)
        return {"answers": {name: {"answers": each} for name, each in zip(self.ids, lists, strict=True)}}


def read_request(method: str, params: Mapping[str, Any]) -> Mapping[str, Json] | UserInput | Form | None:
    """The response to a request, or the question that must be answered first. None: such a thing is not offered."""
    match method:
        case "item/commandExecution/requestApproval" | "item/fileChange/requestApproval":
            return {"decision": "accept"}
        case "execCommandApproval" | "applyPatchApproval":
            return {"decision": "approved"}
        case "item/permissions/requestApproval":
            wanted = object_at(params, "permissions")
            return {"permissions": {name: wanted[name] for name in ("fileSystem", "network") if name in wanted}}
        case "item/tool/requestUserInput":
            return _user_input(params.get("questions"))
        case "mcpServer/elicitation/request":
            return read_form(params) or DECLINED
        case _:
            return None


def _user_input(questions: Json) -> Mapping[str, Json] | UserInput:
    asked = read_questionnaire(questions)
    if asked is None:
        return _NO_ANSWERS
    ids = tuple(text_at(each, "id") for each in questions)
    return UserInput(asked=asked, ids=ids, is_secret=any(each.get("isSecret") is True for each in questions))
