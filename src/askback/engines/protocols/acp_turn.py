"""One turn of a program that speaks ACP: collects messages and tool calls, and decides whether the turn succeeded.

Handles no requests or responses except the response that ends the turn. `Dialect` has the differences between programs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from askback.core.errors import ErrorCode
from askback.core.interactions import Json
from askback.core.runs import Usage
from askback.engines.base import EngineEvent, ToolEnded, ToolStarted, TurnFailed, UsageSeen
from askback.engines.failures import ended_badly, failure_of
from askback.engines.parser import MAX_ID, Messages, Pieces, Recent, tool_detail, usage_of
from askback.engines.protocols.elicitation import Asking
from askback.engines.protocols.json_lines import as_detail, count_at, count_or_none, object_at, objects_at, text_at
from askback.text.json_text import clean

_STOPPED = {
    "max_tokens": (ErrorCode.ENGINE_API_ERROR, "the model's answer was cut off: it exceeds the token limit"),
    "max_turn_requests": (ErrorCode.ENGINE_CRASHED, "the engine gave up its turn after too many requests"),
    "refusal": (ErrorCode.ENGINE_API_ERROR, "the model refused to answer"),
    "cancelled": (ErrorCode.ENGINE_CRASHED, "the engine ended its turn as canceled, but Askback did not cancel it"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How one program differs from others."""

    sign_in: str | None = None
    """The authentication method to request if the program reports that it is not signed in."""
    mode: str = "yolo"
    """The mode in which the program asks for no permissions, if it has one."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Configuration options of its sessions, by id."""
    model: str | None = None
    """The model to select with a request. None if the command line selects it, or the program chooses."""
    effort: str | None = None
    """How much the model reasons, if a request selects that."""
    resume: str = "auto"
    """How a session is continued: `resume`, `load`, `none`, or `auto`, which is the first that is offered."""
    counts: Literal["turn", "process", "session"] = "turn"
    """What its token counts at the end of a turn are of."""
    must_answer: bool = False
    """A turn without a message has failed, whatever the program says of it."""
    notices: re.Pattern[str] | None = None
    """Messages of the program itself about a request that failed. Each is sent in one piece."""
    retrying: tuple[str, ...] = ()
    """Notifications about a request that is retried: methods, some with the kind of an update, as `method:kind`."""
    retry_in: Callable[[str, str], str] = lambda words, session: ""
    """The error in a line of stderr about a request of the session that is retried; otherwise empty."""
    most_tries: int | None = None
    """How many failures of a request end the turn, for programs that retry for too long."""
    counts_answers: bool = False
    """The program counts tokens only for complete answers: a turn without tokens has no complete answer."""
    noise: Callable[[str], bool] = lambda words: False
    """Whether a line of stderr is unrelated to errors."""
    requests: Mapping[str, Callable[[Mapping[str, Any]], Mapping[str, Json] | Asking]] = field(default_factory=dict)
    """Handlers for the program's own requests, by method. Each returns the response, or the question to ask first."""

    def retried(self, method: str, params: Mapping[str, Any]) -> str:
        """The error in a notification about a request that is retried; empty if it is something else."""
        update = object_at(params, "update")
        if not {method, f"{method}:{text_at(update, 'sessionUpdate')}"} & set(self.retrying):
            return ""
        words = (text_at(part, key) for part in (params, update) for key in ("category", "detail", "reason", "message"))
        return " ".join(each for each in words if each)


class AcpTurnState:
    """The messages, tool calls and token counts of a turn so far."""

    def __init__(self, dialect: Dialect, counted: Usage | None = None) -> None:
        """`counted`: the tokens of the process up to now, if the program counts those of the process."""
        self._dialect = dialect
        self.counted = counted or Usage()
        self._parts = Pieces()
        self._message_id = ""
        self._tools = Tools()
        self._usage = Usage(cached_tokens=None)
        self._models: dict[str, Usage] = {}
        self._is_counted = False
        self.messages = Messages()
        self.trouble = ""
        """The error of the last failed request; empty if the program has made progress since."""
        self._noticed = False
        """Whether the program itself has reported this error as a message."""
        self.tries = 0

    def read(self, update: Mapping[str, Any]) -> Iterator[EngineEvent]:
        subagent = text_at(update, "_meta", "parentToolCallId")
        if subagent:
            # The pieces so far came from a subagent and are not for the user; only this last update shows it.
            self._parts.clear()
        match text_at(update, "sessionUpdate"):
            case "agent_message_chunk":
                self.count(object_at(update, "_meta", "usage"))
                if not subagent:
                    yield from self._hear(text_at(update, "content", "text"), text_at(update, "messageId"))
            case "tool_call" | "tool_call_update":
                self._forget_trouble()
                yield from self.flush()
                yield from self._tools.read(update)
            case "agent_thought_chunk":
                self._forget_trouble()

    def _hear(self, text: str, message_id: str) -> Iterator[EngineEvent]:
        if message_id != self._message_id:
            yield from self.flush()
            self._message_id = message_id
        if self._dialect.notices is not None and self._dialect.notices.match(text):
            self._noticed, self.trouble = True, text
        elif text:
            self._forget_trouble()
            self._parts.add(text)

    def _forget_trouble(self) -> None:
        self.tries, self.trouble, self._noticed = 0, "", False

    def flush(self) -> Iterator[EngineEvent]:
        """Complete the current message. It ends when a tool is called, another message starts, or the turn ends."""
        yield from self.messages.take(self._parts)

    def count(self, tokens: Mapping[str, Any]) -> None:
        self._usage += usage_in(tokens)

    def report_usage(self) -> Iterator[EngineEvent]:
        if self._usage != Usage(cached_tokens=None):
            is_whole = self._dialect.counts == "session"
            yield UsageSeen(usage=self._usage, whole_session=is_whole, models=self._models)

    def end(self, result: Mapping[str, Any]) -> Iterator[EngineEvent]:
        places = (("usage",), ("_meta", "quota", "token_count"), ("_meta", "usage"))
        counts = next((found for place in places if (found := object_at(result, *place))), {})
        self._is_counted = bool(counts)
        if counts and self._dialect.counts == "process":
            earlier, self.counted = self.counted, usage_in(counts)
            self._usage += self.counted.beyond(earlier)
        else:
            self.count(counts)
        for each in objects_at(result, "_meta", "quota", "model_usage"):
            name = text_at(each, "model")
            self._models[name] = self._models.get(name, Usage(cached_tokens=None)) + usage_in(
                object_at(each, "token_count")
            )
        yield from self.flush()
        yield from self.report_usage()

    def judge(self, reason: str, said_on_stderr: str) -> TurnFailed | None:
        """Why the turn failed, or None if it succeeded. `reason` is the stop reason."""
        if reason != "end_turn":
            unknown = (ErrorCode.ENGINE_CRASHED, f"the engine ended its turn for an unknown reason: {reason!r}")
            code, what = _STOPPED.get(reason, unknown)
            return TurnFailed(code=code, message=what, detail=as_detail(self.trouble))
        if self._noticed:
            return ended_badly(failure_of(self.trouble), self.trouble)
        if self._dialect.must_answer:
            return None if self.messages else self._unanswered(ErrorCode.ENGINE_API_ERROR, said_on_stderr)
        incomplete = self._is_counted and self._dialect.counts_answers and not self._usage.output_tokens
        if self._usage.output_tokens or ((self.messages or self._tools.used) and not incomplete):
            return None
        if self.messages:
            what = "the model's answer is incomplete, but the engine reported a normal end of the turn"
            return TurnFailed(code=ErrorCode.ENGINE_API_ERROR, message=what, detail=as_detail(self.trouble))
        return self._unanswered(ErrorCode.ENGINE_CRASHED, said_on_stderr)

    def _unanswered(self, code: ErrorCode, said_on_stderr: str) -> TurnFailed:
        """The result of a turn without an answer. `code`: if the program has not reported an error."""
        code = failure_of(self.trouble) if self.trouble else code
        what = "the engine ended its turn without an answer from the model"
        return TurnFailed(code=code, message=what, detail=as_detail(self.trouble or said_on_stderr))


_WORD = re.compile(r"\w+", re.ASCII)


@dataclass(slots=True, kw_only=True)
class _Call:
    name: str
    detail: str = ""
    """As an earlier update had it: the last one often lacks the input."""
    started: bool = False
    ended: bool = False


class Tools:
    """The tool calls of a turn. A call is reported once its input is known: the first update often lacks it."""

    def __init__(self) -> None:
        self._calls: Recent[_Call] = Recent()
        self.used = False

    def read(self, update: Mapping[str, Any]) -> Iterator[EngineEvent]:
        self.used = True
        call_id, status = text_at(update, "toolCallId"), text_at(update, "status")
        if (call := self._calls.get(call_id)) is None:
            call = _Call(name=_name(update)[:MAX_ID])
            self._calls.put(call_id, call)
        # Some programs first send an empty input, and the real one in an update.
        unknown = update.get("rawInput") == {} and status not in ("completed", "failed")
        call.detail = _detail(update, call.name) or call.detail
        if status == "pending" or call.ended or unknown:
            return
        if not call.started:
            call.started = True
            yield ToolStarted(call_id=call_id, name=call.name, detail=call.detail)
        if status in ("completed", "failed"):
            call.ended = True
            exit_code = object_at(update, "rawOutput", "metadata").get("exit")
            ok = status == "completed" and exit_code in (None, 0)
            yield ToolEnded(call_id=call_id, name=call.name, ok=ok, output=_output(update))


def _name(update: Mapping[str, Any]) -> str:
    """The protocol has only a display title and a kind. Most programs add the tool's name, in different fields."""
    title = text_at(update, "title")
    return (
        text_at(update, "_meta", "toolName")
        or text_at(update, "toolName")
        or (title if _WORD.fullmatch(title) else "")
        or text_at(update, "kind")
        or "tool"
    )


def _detail(update: Mapping[str, Any], name: str) -> str:
    """The input of a tool: its command if it has one, or else the title of the call, or else everything."""
    given = object_at(update, "rawInput") or object_at(update, "args")
    title = text_at(update, "title")
    return text_at(given, "command") or (title if title != name else "") or tool_detail(given)


def _output(update: Mapping[str, Any]) -> str:
    texts = (text_at(block, "content", "text") for block in objects_at(update, "content"))
    return (
        "\n".join(text for text in texts if text)
        or text_at(update, "rawOutput")
        or text_at(update, "rawOutput", "output")
    )


# A prompt that does not start with a letter or digit may be taken for a command, but not after another block.
PREFACE = "What follows is the message, word for word.\n"


def usage_in(tokens: Mapping[str, Any]) -> Usage:
    """Tokens in the protocol's fields or in those of a program with its own counts.

    Cached and thinking tokens may or may not be included in the other counts; only the total shows which.
    """
    sent = count_at(tokens, "inputTokens") or count_at(tokens, "input_tokens")
    generated = count_at(tokens, "outputTokens") or count_at(tokens, "output_tokens")
    cached = count_at(tokens, "cachedReadTokens")
    beside = max(0, count_at(tokens, "totalTokens") - sent - generated)
    if beside >= cached:
        sent, beside = sent + cached, beside - cached
    generated += beside
    known = count_or_none(tokens, "cachedReadTokens")
    return usage_of(sent, generated, known, count_or_none(tokens, "thoughtTokens"))


def literal_blocks(text: str) -> list[dict[str, str]]:
    """The content blocks of a prompt, such that the program does not take it for a command."""
    texts = (text,) if text[:1].isalnum() else (PREFACE, text)
    return [{"type": "text", "text": clean(each)} for each in texts]


def words_of(error: Mapping[str, Any]) -> str:
    """The full text of an error: its message alone often says only that there was an error."""
    details = text_at(error, "data", "details") or text_at(error, "data", "message") or text_at(error, "data")
    rest = "" if details or not object_at(error, "data") else json.dumps(error["data"], ensure_ascii=False)
    return "\n".join(words for words in (text_at(error, "message"), details, clean(rest)) if words)
