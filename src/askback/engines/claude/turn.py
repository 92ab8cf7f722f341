"""Turns of Claude Code: the event stream, and the conversation with a resident process."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from askback.core.errors import ErrorCode
from askback.core.interactions import Json
from askback.core.runs import Usage
from askback.engines.base import (
    Asked,
    Completed,
    EngineEvent,
    Exit,
    Reply,
    Send,
    SessionNamed,
    Stream,
    ToolEnded,
    ToolStarted,
    TurnFailed,
    TurnOver,
    UsageSeen,
)
from askback.engines.failures import crashed, ended_badly, failure_of_status, stopped
from askback.engines.limits import moment_of
from askback.engines.parser import MAX_ID, JsonLinesParser, Messages, Pieces, Recent, tool_detail, usage_of
from askback.engines.protocols.elicitation import (
    Answer,
    PendingQuestions,
    Questionnaire,
    ToolQuestions,
    joined,
    read_questionnaire,
)
from askback.engines.protocols.json_lines import (
    amount_at,
    as_detail,
    count_at,
    count_or_none,
    decode_line,
    object_at,
    objects_at,
    text_at,
)
from askback.text.json_text import clean

_COUNTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens", "")
_MODEL_COUNTS = ("inputTokens", "cacheCreationInputTokens", "cacheReadInputTokens", "outputTokens", "thinkingTokens")
_SINCE_LAST = "model_usage_since_last_result"
_DEFERRED = "tool_deferred"


def literal(text: str) -> str:
    """The text, with a space before a leading slash so that Claude does not treat it as a command."""
    return f" {text}" if text.startswith("/") else text


class ClaudeParser(JsonLinesParser):
    """Reads the events of one turn. Success is a `result` without an error for which the model was asked.

    A resident process reports the tokens of all its turns. Another one may end several turns, by background tasks: its
    tokens are their sum.
    """

    unknown_session = re.compile(r"no conversation found|--resume requires a valid session", re.IGNORECASE)

    def __init__(self, *, resuming: bool, resident: bool = False) -> None:
        super().__init__(resuming=resuming)
        self._resident = resident
        self._assembler = MessageAssembler()
        self._result: Mapping[str, Any] | None = None
        self._models: dict[str, Usage] = {}
        """Of the turn alone."""
        self._retrying = ""
        self._is_named = False
        self._resets_at: datetime | None = None

    def _read(self, event: Mapping[str, Any]) -> Iterator[EngineEvent]:
        kind, subtype = text_at(event, "type"), text_at(event, "subtype")
        self._retrying = _retry(event) if subtype == "api_retry" else ""
        match kind:
            case "system" if subtype == "init":
                self._is_named = True
                yield SessionNamed(value=text_at(event, "session_id"))
            # A synthetic message comes from the program itself, such as an error text, and not from the model.
            case "assistant" | "user" if text_at(event, "message", "model") != "<synthetic>":
                yield from self._assembler.read(event)
            case "rate_limit_event" if text_at(event, "rate_limit_info", "status") == "rejected":
                self._resets_at = moment_of(object_at(event, "rate_limit_info").get("resetsAt"))
            case "result" if self._resuming and not self._is_named and text_at(event, "stop_reason") == _DEFERRED:
                # The call that an earlier turn deferred stays deferred, and our prompt comes next.
                return
            case "result":
                yield from self._assembler.flush()
                self._result = event
                yield UsageSeen(usage=self._count(event), whole_session=self._resident, models=self._models)
                yield TurnOver()

    def _count(self, result: Mapping[str, Any]) -> Usage:
        """In newer versions, the tokens of a resumed session include those of earlier processes."""
        for name, usage in _by_model(result, _SINCE_LAST).items():
            self._models[name] = self._models[name] + usage if name in self._models else usage
        if self._resident or _SINCE_LAST not in result:
            # The usage of all models includes subagents. Claude reports cache reads and writes separately from the input.
            whole = _by_model(result, "modelUsage")
            if not self._resident:
                self._models = dict(whole)
            return _total(whole) if whole else _tokens(object_at(result, "usage"), *_COUNTS)
        return _total(self._models)

    @property
    def messages(self) -> Messages:
        return self._assembler.messages

    def flush(self) -> Iterator[EngineEvent]:
        """Complete the current message."""
        yield from self._assembler.flush()

    def finish(self, ended: Exit) -> Completed | TurnFailed:
        stderr = self._stderr.text
        crash = crashed(ended, as_detail(stderr))
        return self.ending() or stopped(ended, self._retrying, stderr) or self._unknown(stderr) or crash

    def ending(self) -> Completed | TurnFailed | None:
        """The result, if the program ended the turn itself; otherwise None."""
        if self._result is None:
            return None
        words = _words(self._result)
        if _is_error(self._result):
            code = failure_of_status(count_at(self._result, "api_error_status"), words)
            return self._unknown(words) or replace(ended_badly(code, words), reset=self._resets_at)
        if self._result.get("num_turns") == 0:
            message = "the engine ended its turn without asking the model"
            return TurnFailed(
                code=ErrorCode.ENGINE_CRASHED, message=message, detail=as_detail(text_at(self._result, "result"))
            )
        return replace(self.messages.completed(), deferred=text_at(self._result, "stop_reason") == _DEFERRED)


def _retry(event: Mapping[str, Any]) -> str:
    """The error text of an `api_retry`. Without a status, no server was reached."""
    status = count_at(event, "error_status")
    return f"API error {status}: {text_at(event, 'error')}" if status else "connection failed, trying again"


def _is_error(result: Mapping[str, Any]) -> bool:
    succeeded = text_at(result, "subtype") == "success" and result.get("is_error") is False
    return not succeeded or text_at(result, "stop_reason") == "refusal"


def _words(result: Mapping[str, Any]) -> str:
    errors = result.get("errors")
    listed = [each for each in errors if isinstance(each, str)] if isinstance(errors, list) else []
    return text_at(result, "result") or "\n".join(listed) or text_at(result, "subtype")


def _by_model(result: Mapping[str, Any], key: str) -> dict[str, Usage]:
    return {
        name: replace(_tokens(model, *_MODEL_COUNTS), cost_usd=amount_at(model, "costUSD"))
        for name, model in object_at(result, key).items()
        if isinstance(model, dict)
    }


def _total(models: Mapping[str, Usage]) -> Usage:
    return sum(models.values(), Usage())


def _tokens(counts: Mapping[str, Any], plain: str, written: str, read: str, generated: str, thought: str) -> Usage:
    cached = count_at(counts, read)
    sent = count_at(counts, plain) + count_at(counts, written) + cached
    return usage_of(sent, count_at(counts, generated), cached, count_or_none(counts, thought))


class MessageAssembler:
    """Joins the blocks of messages: one message may arrive in several events, one for each of its blocks."""

    def __init__(self) -> None:
        self.messages = Messages()
        self._parts = Pieces()
        self._message_id = ""
        self._tools: Recent[str] = Recent()

    def read(self, event: Mapping[str, Any]) -> Iterator[EngineEvent]:
        """Read an `assistant` or `user` event. The texts of subagents are not messages."""
        message = object_at(event, "message")
        is_subagent = bool(text_at(event, "parent_tool_use_id"))
        whole = text_at(message, "content")
        for block in [{"type": "text", "text": whole}] if whole else objects_at(message, "content"):
            match text_at(block, "type"):
                case "text" if text_at(event, "type") == "assistant" and not is_subagent:
                    yield from self._add(text_at(message, "id"), text_at(block, "text"))
                case "tool_use":
                    yield from self.flush()
                    call_id, name = text_at(block, "id"), text_at(block, "name")
                    self._tools.put(call_id, name[:MAX_ID])
                    yield ToolStarted(call_id=call_id, name=name, detail=tool_detail(object_at(block, "input")))
                case "tool_result":
                    yield from self.flush()
                    yield self._ended(block)

    def flush(self) -> Iterator[EngineEvent]:
        """Complete the current message."""
        yield from self.messages.take(self._parts)

    def _add(self, message_id: str, text: str) -> Iterator[EngineEvent]:
        if not message_id or message_id != self._message_id:
            yield from self.flush()
        self._message_id = message_id
        self._parts.add(text)

    def _ended(self, block: Mapping[str, Any]) -> ToolEnded:
        call_id = text_at(block, "tool_use_id")
        return ToolEnded(
            call_id=call_id,
            name=self._tools.pop(call_id) or "",
            ok=block.get("is_error") is not True,
            output=text_at(block, "content")
            or "\n".join(text_at(each, "text") for each in objects_at(block, "content")),
        )


_ASK_TOOL = "AskUserQuestion"
_UNANSWERED: Mapping[str, Json] = {"behavior": "deny", "message": "Nobody answers. Decide by yourself and continue."}


class ClaudeConversation:
    def __init__(self, *, may_ask: bool = True) -> None:
        self._may_ask = may_ask
        self._turn = ClaudeParser(resuming=False, resident=True)
        self._said_before = 0
        self._number = 0
        self._is_ours = False
        self._is_open = False
        self.is_paused = False
        self._asked = PendingQuestions()

    def say(self, prompt: str, reply: Reply | None = None) -> Iterator[EngineEvent]:
        self._is_open = True
        if self._asked:
            self._said_before = self._turn.messages.said
            yield _response(*self._asked.answer(reply))
            yield from self._ask()
            return
        self._turn, self._said_before = ClaudeParser(resuming=False, resident=True), 0
        self._is_ours = False
        self._number += 1
        message = {"role": "user", "content": clean(literal(prompt))}
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
            self._asked.withdraw(text_at(event, "request_id"))
        elif event.get("isReplay") is True:
            self._is_ours = self._is_ours or text_at(event, "uuid") == self._id
        elif stream is Stream.STDERR or self._belongs(event):
            yield from self._take(stream, line)

    def _belongs(self, event: Mapping[str, Any]) -> bool:
        """Whether an event belongs to our turn. Failures always do: Claude may fail before it replays our message."""
        if not self._is_open and not self._asked and not self.is_paused:
            return False
        failed = text_at(event, "type") == "result" and (event.get("is_error") is True or event.get("num_turns") == 0)
        return self._is_ours or failed or text_at(event, "type") == "system"

    def _take(self, stream: Stream, line: bytes) -> Iterator[EngineEvent]:
        for seen in self._turn.feed(stream, line):
            if isinstance(seen, TurnOver):
                self._asked.clear()
                was_open, self._is_open, self.is_paused = self._is_open, False, False
                if not was_open:
                    # Claude continued without the answer. The next prompt starts a new turn.
                    continue
            if not self.is_paused:
                yield seen

    def pause(self) -> Iterator[EngineEvent]:
        yield from self._turn.flush()
        self._is_open, self.is_paused = False, True

    def proceed(self) -> None:
        self._said_before = self._turn.messages.said
        self._is_open, self.is_paused = True, False

    # Claude's requests.

    def _read_request(self, request_id: str, request: Mapping[str, Any]) -> Iterator[EngineEvent]:
        given = object_at(request, "input")
        if text_at(request, "subtype") != "can_use_tool":
            error = {"subtype": "error", "request_id": request_id, "error": "this request is not supported"}
            yield _send({"type": "control_response", "response": error})
            return
        asks = text_at(request, "tool_name") == _ASK_TOOL
        asked = read_questionnaire(given.get("questions")) if asks else None
        can_ask = self._may_ask and self._is_ours and (self._is_open or self._asked) and not self._asked.is_full
        if asks and (asked is None or not can_ask):
            # Questions outside of a turn, and those beyond the limit, are declined.
            yield _response(request_id, _UNANSWERED)
        elif asked is None:
            yield _response(request_id, _allowed(given))
        else:
            self._asked.add(request_id, _asking(given, asked))
            if self._is_open:
                yield from self._ask()

    def _ask(self) -> Iterator[EngineEvent]:
        if self._asked:
            self._is_open = False
            yield Asked(question=self._asked.oldest)

    # The outcome.

    def outcome(self) -> Completed | TurnFailed:
        ending = self._turn.ending()
        if isinstance(ending, TurnFailed):
            return ending
        return self._turn.messages.completed(after=self._said_before)

    def finish(self, ended: Exit) -> TurnFailed:
        broke = self._turn.finish(ended)
        return broke if isinstance(broke, TurnFailed) else crashed(ended, None)


def _asking(given: Mapping[str, Json], asked: Questionnaire) -> ToolQuestions:
    """A call of Claude's ask tool. To answer it, the call is allowed with the answers added to its input."""

    def respond(answers: Sequence[Answer] | None) -> Mapping[str, Json]:
        if answers is None:
            return _UNANSWERED
        by_question = {item.text: joined(each) for item, each in zip(asked.items, answers, strict=True)}
        return _allowed({**given, "answers": by_question})

    return ToolQuestions(asked=asked, respond=respond)


def _allowed(given: Mapping[str, Json]) -> Mapping[str, Json]:
    return {"behavior": "allow", "updatedInput": given}


def _response(request_id: Json, response: Mapping[str, Json]) -> Send:
    content = {"subtype": "success", "request_id": request_id, "response": response}
    return _send({"type": "control_response", "response": content})


def _send(message: Mapping[str, Json]) -> Send:
    return Send(data=json.dumps(message).encode() + b"\n")
