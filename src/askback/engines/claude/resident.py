"""The conversation with a resident `claude`: a message for each turn, a `result` at its end, control requests between.

It also starts turns by itself, when a background task ends. So a turn is ours from where the program replays our message,
which has an id; events before that are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from askback.core.interactions import Json
from askback.engines.answers.messages import MOST_ASKED
from askback.engines.base import Asked, Completed, EngineEvent, Exit, Reply, Send, Stream, TurnFailed, TurnOver
from askback.engines.claude.turn import ClaudeParser, as_it_is
from askback.engines.failures import crashed
from askback.engines.protocols.json_lines import decode_line, object_at, text_at
from askback.engines.protocols.questionnaire import Questionnaire, read_questionnaire
from askback.text.json_text import clean

_ASK_TOOL = "AskUserQuestion"
_UNANSWERED: Mapping[str, Json] = {"behavior": "deny", "message": "Nobody answers. Decide by yourself and continue."}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asking:
    """A call of its ask tool, which is answered by allowing it with the answers in what it is given."""

    request_id: str
    given: Mapping[str, Json]
    asked: Questionnaire

    def answer(self, reply: Reply | None) -> Mapping[str, Json]:
        answers = self.asked.answers(reply)
        if answers is None:
            return _UNANSWERED
        texts = (", ".join(each) if isinstance(each, list) else each for each in answers)
        told = {item.text: text for item, text in zip(self.asked.items, texts, strict=True)}
        return _allowed({**self.given, "answers": told})


class ClaudeConversation:
    def __init__(self) -> None:
        self._turn = ClaudeParser(resuming=False, resident=True)
        self._said_before = 0
        self._number = 0
        self._is_ours = False
        self._is_open = False
        self._asked: list[_Asking] = []

    def say(self, prompt: str, reply: Reply | None = None) -> Iterator[EngineEvent]:
        self._is_open = True
        if self._asked:
            self._said_before = self._turn.messages.said
            asking = self._asked.pop(0)
            yield _response(asking.request_id, asking.answer(reply))
            yield from self._ask()
            return
        self._turn, self._said_before = ClaudeParser(resuming=False, resident=True), 0
        self._is_ours = False
        self._number += 1
        message = {"role": "user", "content": clean(as_it_is(prompt))}
        yield _send({"type": "user", "message": message, "uuid": self._id})

    @property
    def _id(self) -> str:
        return f"00000000-0000-4000-8000-{self._number:012d}"

    def feed(self, stream: Stream, line: bytes) -> Iterator[EngineEvent]:
        event = decode_line(line) if stream is Stream.STDOUT else {}
        if event is None:
            return
        kind = text_at(event, "type")
        if kind == "control_request":
            yield from self._read_request(text_at(event, "request_id"), object_at(event, "request"))
        elif kind == "control_cancel_request":
            self._asked = [each for each in self._asked if each.request_id != text_at(event, "request_id")]
        elif event.get("isReplay") is True:
            self._is_ours = self._is_ours or text_at(event, "uuid") == self._id
        elif stream is Stream.STDERR or self._belongs(event):
            yield from self._take(stream, line)

    def _belongs(self, event: Mapping[str, Any]) -> bool:
        """Whether an event is of the turn that we began. A failure is: our message may not have come so far."""
        if not self._is_open and not self._asked:
            return False
        failed = text_at(event, "type") == "result" and (event.get("is_error") is True or event.get("num_turns") == 0)
        return self._is_ours or failed or text_at(event, "type") == "system"

    def _take(self, stream: Stream, line: bytes) -> Iterator[EngineEvent]:
        for seen in self._turn.feed(stream, line):
            if isinstance(seen, TurnOver):
                self._asked.clear()
                was_open, self._is_open = self._is_open, False
                if not was_open:
                    # It continued without the answer. The next prompt starts a new turn.
                    continue
            yield seen

    # What it asks.

    def _read_request(self, request_id: str, request: Mapping[str, Any]) -> Iterator[EngineEvent]:
        given = object_at(request, "input")
        if text_at(request, "subtype") != "can_use_tool":
            yield _send({"type": "control_response", "response": _refusal(request_id)})
            return
        asks = text_at(request, "tool_name") == _ASK_TOOL
        asked = read_questionnaire(given.get("questions")) if asks else None
        listened_to = self._is_ours and (self._is_open or self._asked) and len(self._asked) < MOST_ASKED
        if asks and (asked is None or not listened_to):
            # Nobody listens for a question outside of a turn, nor for one of hundreds.
            yield _response(request_id, _UNANSWERED)
        elif asked is None:
            yield _response(request_id, _allowed(given))
        else:
            self._asked.append(_Asking(request_id=request_id, given=given, asked=asked))
            if self._is_open:
                yield from self._ask()

    def _ask(self) -> Iterator[EngineEvent]:
        for asking in self._asked[:1]:
            self._is_open = False
            yield Asked(question=asking.asked.question)

    # How it went.

    def outcome(self) -> Completed | TurnFailed:
        ending = self._turn.ending()
        if isinstance(ending, TurnFailed):
            return ending
        return self._turn.messages.completed(after=self._said_before)

    def finish(self, ended: Exit) -> TurnFailed:
        broke = self._turn.finish(ended)
        return broke if isinstance(broke, TurnFailed) else crashed(ended, None)


def _allowed(given: Mapping[str, Json]) -> Mapping[str, Json]:
    return {"behavior": "allow", "updatedInput": given}


def _response(request_id: str, response: Mapping[str, Json]) -> Send:
    content = {"subtype": "success", "request_id": request_id, "response": response}
    return _send({"type": "control_response", "response": content})


def _refusal(request_id: str) -> Mapping[str, Json]:
    return {"subtype": "error", "request_id": request_id, "error": "this is not offered here"}


def _send(message: Mapping[str, Json]) -> Send:
    return Send(data=json.dumps(message).encode() + b"\n")
