"""What a program that speaks ACP asks of its client: a permission, which is granted, or a question for the user.

Permissions are none of the user's business here: both modes let the program do as it likes. Two programs put their ask
tool where the protocol has no place for it, one into a request for a permission and one into a method of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from askback.core.interactions import Json, Question
from askback.engines.base import Reply
from askback.engines.elicitation import DECLINED, read_form
from askback.engines.json_lines import text_at
from askback.engines.questionnaire import Questionnaire, read_questionnaire
from askback.engines.questions import cut


class Asking(Protocol):
    """A question for the user, and the response that its answer becomes."""

    @property
    def question(self) -> Question: ...

    def answer(self, reply: Reply | None) -> Mapping[str, Json]: ...


def read_request(method: str, params: Mapping[str, Any]) -> Mapping[str, Json] | Asking | None:
    """The response to a request, or the question that must be answered first. None: such a thing is not offered."""
    match method:
        case "session/request_permission":
            return _permission(params)
        case "elicitation/create" | "session/elicitation":
            return read_form(params) or DECLINED
        case "_iflow/user/questions":
            asked = read_questionnaire(params.get("questions"))
            return {"answers": {}} if asked is None else _ByHeader(asked=asked)
        case "_iflow/plan/exit":
            return {"approved": True}
        case _:
            return None


def _permission(params: Mapping[str, Any]) -> Mapping[str, Json] | Asking:
    listed = params.get("options")
    options = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    ids = {text_at(option, "kind"): text_at(option, "optionId") for option in reversed(options)}
    allowed = ids.get("allow_always") or ids.get("allow_once")
    tool = params.get("toolCall")
    given = tool.get("rawInput") if isinstance(tool, dict) else None
    asked = read_questionnaire(given.get("questions")) if isinstance(given, dict) else None
    if allowed and asked is not None:
        return _ByNumber(asked=asked, allowed=allowed)
    if allowed:
        return _selected(allowed)
    names = {text_at(each, "name"): text_at(each, "optionId") for each in options if text_at(each, "optionId")}
    if not names:
        return _CANCELLED
    prompt = text_at(params, "toolCall", "title") or "Which one?"
    return _Choice(question=Question(prompt=cut(prompt), kind="choice", options=tuple(names)), options=names)


_CANCELLED: Mapping[str, Json] = {"outcome": {"outcome": "cancelled"}}


def _selected(option_id: str) -> dict[str, Json]:
    return {"outcome": {"outcome": "selected", "optionId": option_id}}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """A choice in the form of a permission that cannot be granted: nothing in it is called allowing."""

    question: Question
    options: Mapping[str, str]
    """Ids of the options by their names."""

    def answer(self, reply: Reply | None) -> Mapping[str, Json]:
        if reply is None:
            return _CANCELLED
        chosen = reply.response if reply.decided else next(iter(self.options))
        option = self.options.get(chosen, chosen) if isinstance(chosen, str) else ""
        return _selected(option) if option in self.options.values() else _CANCELLED


@dataclass(frozen=True, slots=True, kw_only=True)
class _ByNumber:
    """An ask tool whose permission carries the answers, each under its number."""

    asked: Questionnaire
    allowed: str

    @property
    def question(self) -> Question:
        return self.asked.question

    def answer(self, reply: Reply | None) -> Mapping[str, Json]:
        answers = self.asked.answers(reply)
        if answers is None:
            return _CANCELLED
        texts = (", ".join(each) if isinstance(each, list) else each for each in answers)
        return _selected(self.allowed) | {"answers": {str(at): text for at, text in enumerate(texts)}}


@dataclass(frozen=True, slots=True, kw_only=True)
class _ByHeader:
    """An ask tool with a method of its own, which wants each answer under the header of its question."""

    asked: Questionnaire

    @property
    def question(self) -> Question:
        return self.asked.question

    def answer(self, reply: Reply | None) -> Mapping[str, Json]:
        answers = self.asked.answers(reply) or []
        headers = (item.header for item in self.asked.items)
        return {"answers": dict(zip(headers, answers, strict=False))}
