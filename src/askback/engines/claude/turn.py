"""Turns of Claude Code: the event stream, and the conversation with a resident process."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from askback.core.errors import ErrorCode
from askback.core.interactions import Json
from askback.core.runs import Usage
from askback.engines.base import (
    Asked,
    AssistantMessage,
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
from askback.engines.failures import crashed, ended_badly, failure_of_status, stopped, unknown_session
from askback.engines.messages import MAX_ASKED, MAX_ID, Messages, Pieces, Recent
from askback.engines.protocols.elicitation import Questionnaire, read_questionnaire
from askback.engines.protocols.json_lines import Tail, as_detail, count_at, decode_line, object_at, text_at
from askback.text.json_text import clean

_COUNTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
_MODEL_COUNTS = ("inputTokens", "cacheCreationInputTokens", "cacheReadInputTokens", "outputTokens")
_SINCE_LAST = "model_usage_since_last_result"
_DEFERRED = "tool_deferred"
_UNKNOWN_SESSION = re.compile(r"no conversation found|--resume requires a valid session", re.IGNORECASE)


def literal(text: str) -> str:
    """The text, with a space before a leading slash so that Claude does not treat it as a command."""
    return f" {text}" if text.startswith("/") else text


class ClaudeParser:
    """Reads the events of one turn. Success is a `result` without an error for which the model was asked.

    A resident process reports the tokens of all its turns. Another one may end several turns, by background tasks: its
    tokens are their sum.
    """

    def __init__(self, *, resuming: bool, resident: bool = False) -> None:
        self._resuming = resuming
        self._resident = resident
        self._conversation = Conversation()
        self._result: Mapping[str, Any] | None = None
        self._since_last = Usage()
        self._retrying = ""
        self._is_named = False
        self._stderr = Tail()

    def feed(self, stream: Stream, line: bytes) -> Iterator[EngineEvent]:
        if stream is Stream.STDERR:
            self._stderr.add(line)
            return
        event = decode_line(line)
        if event is not None:
            yield from self._read(event)

    def _read(self, event: Mapping[str, Any]) -> Iterator[EngineEvent]:
        kind, subtype = text_at(event, "type"), text_at(event, "subtype")
        self._retrying = _retry(event) if subtype == "api_retry" else ""
        match kind:
            case "system" if subtype == "init":
                self._is_named = True
                yield SessionNamed(value=text_at(event, "session_id"))
            case "assistant" | "user" if not _is_synthetic(event):
                yield from self._conversation.read(event)
            case "result" if self._resuming and not self._is_named and text_at(event, "stop_reason") == _DEFERRED:
                # The call that an earlier turn deferred stays deferred, and our prompt comes next.
                return
            case "result":
                yield from self._conversation.flush()
                self._result = event
                yield UsageSeen(usage=self._count(event), whole_session=self._resident)
                yield TurnOver()

    def _count(self, result: Mapping[str, Any]) -> Usage:
        """In newer versions, the tokens of a resumed session include those of earlier processes."""
        if self._resident or _SINCE_LAST not in result:
            return _usage(result)
        self._since_last += _by_model(result, _SINCE_LAST) or Usage()
        return self._since_last

    @property
    def messages(self) -> Messages:
        return self._conversation.messages

    def flush(self) -> Iterator[EngineEvent]:
        """Complete the current message."""
        yield from self._conversation.flush()

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
            return self._unknown(words) or ended_badly(code, words)
        if self._result.get("num_turns") == 0:
            message = "the engine ended its turn without asking the model"
            return TurnFailed(
                code=ErrorCode.ENGINE_CRASHED, message=message, detail=as_detail(text_at(self._result, "result"))
            )
        return replace(self.messages.completed(), deferred=text_at(self._result, "stop_reason") == _DEFERRED)

    def _unknown(self, words: str) -> TurnFailed | None:
        return unknown_session(words) if self._resuming and _UNKNOWN_SESSION.search(words) else None


def _retry(event: Mapping[str, Any]) -> str:
    """The error text of an `api_retry`. Without a status, no server was reached."""
    status = count_at(event, "error_status")
    return f"API error {status}: {text_at(event, 'error')}" if status else "connection failed, trying again"


def _is_synthetic(event: Mapping[str, Any]) -> bool:
    """Whether the message comes from the program itself, such as an error text, and not from the model."""
    return text_at(event, "message", "model") == "<synthetic>"


def _is_error(result: Mapping[str, Any]) -> bool:
    succeeded = text_at(result, "subtype") == "success" and result.get("is_error") is False
    return not succeeded or text_at(result, "stop_reason") == "refusal"


def _words(result: Mapping[str, Any]) -> str:
    errors = result.get("errors")
    listed = [each for each in errors if isinstance(each, str)] if isinstance(errors, list) else []
    return text_at(result, "result") or "\n".join(listed) or text_at(result, "subtype")


def _usage(result: Mapping[str, Any]) -> Usage:
    """The usage of all models, including subagents; if that is missing, the usage of the conversation.

    Claude reports cache reads and cache writes separately from the input.
    """
    by_model = _by_model(result, "modelUsage")
    return _tokens(object_at(result, "usage"), *_COUNTS) if by_model is None else by_model


def _by_model(result: Mapping[str, Any], key: str) -> Usage | None:
    models = [model for model in object_at(result, key).values() if isinstance(model, dict)]
    return sum((_tokens(model, *_MODEL_COUNTS) for model in models), Usage()) if models else None


def _tokens(counts: Mapping[str, Any], plain: str, written: str, read: str, generated: str) -> Usage:
    sent = count_at(counts, plain) + count_at(counts, written) + count_at(counts, read)
    output = count_at(counts, generated)
    return Usage(
        input_tokens=sent,
        output_tokens=output,
        cached_tokens=count_at(counts, read),
        total_tokens=sent + output,
    )


class Conversation:
    """Reassembles messages: one message may arrive in several events, one for each of its blocks."""

    def __init__(self) -> None:
        self.messages = Messages()
        self._parts = Pieces()
        self._message_id = ""
        self._tools: Recent[str] = Recent()

    def read(self, event: Mapping[str, Any]) -> Iterator[EngineEvent]:
        """Read an `assistant` or `user` event. The texts of subagents are not messages."""
        message = object_at(event, "message")
        is_subagent = bool(text_at(event, "parent_tool_use_id"))
        for block in _blocks(message):
            match text_at(block, "type"):
                case "text" if text_at(event, "type") == "assistant" and not is_subagent:
                    yield from self._add(text_at(message, "id"), text_at(block, "text"))
                case "tool_use":
                    yield from self.flush()
                    yield self._started(block)
                case "tool_result":
                    yield from self.flush()
                    yield self._ended(block)

    def flush(self) -> Iterator[EngineEvent]:
        """Complete the current message."""
        text, shortened = self._parts.text, self._parts.shortened
        self._parts.clear()
        if text.strip():
            yield AssistantMessage(text=self.messages.add(text, shortened=shortened))

    def _add(self, message_id: str, text: str) -> Iterator[EngineEvent]:
        if not message_id or message_id != self._message_id:
            yield from self.flush()
        self._message_id = message_id
        self._parts.add(text)

    def _started(self, block: Mapping[str, Any]) -> ToolStarted:
        call_id, name = text_at(block, "id"), text_at(block, "name")
        self._tools.put(call_id, name[:MAX_ID])
        return ToolStarted(call_id=call_id, name=name, detail=_as_text(object_at(block, "input")))

    def _ended(self, block: Mapping[str, Any]) -> ToolEnded:
        call_id = text_at(block, "tool_use_id")
        return ToolEnded(
            call_id=call_id,
            name=self._tools.pop(call_id) or "",
            ok=block.get("is_error") is not True,
            output=_result_text(block.get("content")),
        )


def _blocks(message: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        yield {"type": "text", "text": content}
    elif isinstance(content, list):
        yield from (block for block in content if isinstance(block, dict))


def _as_text(given: Mapping[str, Any]) -> str:
    """The input of a tool: its command if it has one, otherwise everything."""
    return text_at(given, "command") or (clean(json.dumps(given, ensure_ascii=False)) if given else "")


def _result_text(content: object) -> str:
    if isinstance(content, str):
        return clean(content)
    if isinstance(content, list):
        return "\n".join(text_at(block, "text") for block in content if isinstance(block, dict))
    return ""


_ASK_TOOL = "AskUserQuestion"
_UNANSWERED: Mapping[str, Json] = {"behavior": "deny", "message": "Nobody answers. Decide by yourself and continue."}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asking:
    """A call of Claude's ask tool. To answer it, the call is allowed with the answers added to its input."""

    request_id: str
    given: Mapping[str, Json]
    asked: Questionnaire

    def answer(self, reply: Reply | None) -> Mapping[str, Json]:
        answers = self.asked.answers(reply)
        if answers is None:
            return _UNANSWERED
        texts = (", ".join(each) if isinstance(each, list) else each for each in answers)
        by_question = {item.text: text for item, text in zip(self.asked.items, texts, strict=True)}
        return _allowed({**self.given, "answers": by_question})


class ClaudeConversation:
    def __init__(self, *, may_ask: bool = True) -> None:
        self._may_ask = may_ask
        self._turn = ClaudeParser(resuming=False, resident=True)
        self._said_before = 0
        self._number = 0
        self._is_ours = False
        self._is_open = False
        self.is_paused = False
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
            self._asked = [each for each in self._asked if each.request_id != text_at(event, "request_id")]
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
            yield _send({"type": "control_response", "response": _refusal(request_id)})
            return
        asks = text_at(request, "tool_name") == _ASK_TOOL
        asked = read_questionnaire(given.get("questions")) if asks else None
        can_ask = self._may_ask and self._is_ours and (self._is_open or self._asked) and len(self._asked) < MAX_ASKED
        if asks and (asked is None or not can_ask):
            # Questions outside of a turn, and those beyond the limit, are declined.
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

    # The outcome.

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
    return {"subtype": "error", "request_id": request_id, "error": "this request is not supported"}


def _send(message: Mapping[str, Json]) -> Send:
    return Send(data=json.dumps(message).encode() + b"\n")
