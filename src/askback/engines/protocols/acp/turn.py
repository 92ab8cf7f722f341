"""One turn of a program that speaks ACP: its messages and tools, collected from updates, and whether it succeeded.

Knows no requests or responses except the one that ends the turn. Differences between programs are in `Dialect`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from askback.core.errors import ErrorCode
from askback.core.interactions import Json, Question
from askback.core.runs import Usage
from askback.engines.answers.messages import MOST_ID, Messages, Pieces, Recent
from askback.engines.base import AssistantMessage, EngineEvent, Reply, ToolEnded, ToolStarted, TurnFailed, UsageSeen
from askback.engines.failures import failure_of
from askback.engines.protocols.json_lines import as_detail, count_at, object_at, text_at
from askback.text.json_text import clean

_STOPPED = {
    "max_tokens": (ErrorCode.ENGINE_API_ERROR, "the model's answer was cut off: it is longer than it may be"),
    "max_turn_requests": (ErrorCode.ENGINE_CRASHED, "the engine gave its turn up after too many requests"),
    "refusal": (ErrorCode.ENGINE_API_ERROR, "the model refused to answer"),
    "cancelled": (ErrorCode.ENGINE_CRASHED, "the engine ended its turn as canceled, though nobody asked it to"),
}


def _no_retry(words: str, session: str) -> str:
    return ""


def _no_noise(words: str) -> bool:
    return False


class Asking(Protocol):
    """A question for the user, and the response that its answer becomes."""

    @property
    def question(self) -> Question: ...

    def answer(self, reply: Reply | None) -> Mapping[str, Json]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What is special about one program."""

    sign_in: str | None = None
    """The way to sign in that is asked for when the program says that it is not signed in."""
    model: str | None = None
    """A model that is chosen by a message; None where it stands on the command line, or the program chooses."""
    retry_in: Callable[[str, str], str] = _no_retry
    """What a line of stderr says of a request of the session that failed and is tried again, or nothing."""
    most_tries: int | None = None
    """A request that failed so often ends the turn, for a program that tries for longer than anybody waits."""
    counts_answers: bool = False
    """It counts the tokens of every answer that is whole, and so a turn without any has none."""
    noise: Callable[[str], bool] = _no_noise
    """Whether a line of stderr says nothing of an error."""
    requests: Mapping[str, Callable[[Mapping[str, Any]], Mapping[str, Json] | Asking]] = field(default_factory=dict)
    """The program's own requests, by method: each gives the response, or the question that must be answered first."""


class AcpTurnState:
    """What a turn brought so far."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._parts = Pieces()
        self._message_id = ""
        self._tools = Tools()
        self._usage = Usage()
        self._is_counted = False
        self.messages = Messages()
        self.trouble = ""
        """What the program said of a request that failed, if nothing good was heard since."""
        self.tries = 0

    def read(self, update: Mapping[str, Any]) -> Iterator[EngineEvent]:
        helper = text_at(update, "_meta", "parentToolCallId")
        if helper:
            # What was said last was said by a helper, to the model and not to us; only its end tells.
            self._parts.clear()
        match text_at(update, "sessionUpdate"):
            case "agent_message_chunk":
                self.count(object_at(update, "_meta", "usage"))
                if not helper:
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
        if text:
            self._forget_trouble()
            self._parts.add(text)

    def _forget_trouble(self) -> None:
        self.tries, self.trouble = 0, ""

    def flush(self) -> Iterator[EngineEvent]:
        """Messages come in pieces: one is whole when a tool is called, another begins, or the turn is over."""
        text, shortened = self._parts.text, self._parts.shortened
        self._parts.clear()
        if text.strip():
            yield AssistantMessage(text=self.messages.add(text, shortened=shortened))

    def count(self, tokens: Mapping[str, Any]) -> None:
        self._usage += usage_in(tokens)

    def tell_usage(self) -> Iterator[EngineEvent]:
        if self._usage != Usage():
            yield UsageSeen(usage=self._usage)

    def end(self, result: Mapping[str, Any]) -> Iterator[EngineEvent]:
        counts = object_at(result, "usage") or object_at(result, "_meta", "quota", "token_count")
        self._is_counted = bool(counts)
        self.count(counts)
        yield from self.flush()
        yield from self.tell_usage()

    def judge(self, reason: str, said_on_stderr: str) -> TurnFailed | None:
        """Why the turn that ended for this reason is no success; None when it is one."""
        if reason != "end_turn":
            unknown = (ErrorCode.ENGINE_CRASHED, f"the engine ended its turn for an unknown reason: {reason!r}")
            return _broke(*_STOPPED.get(reason, unknown), self.trouble)
        broken_off = self._is_counted and self._dialect.counts_answers and not self._usage.output_tokens
        if self._usage.output_tokens or ((self.messages or self._tools.used) and not broken_off):
            return None
        if self.messages:
            what = "the engine broke the model's answer off, though it calls that the end of the turn"
            return _broke(ErrorCode.ENGINE_API_ERROR, what, self.trouble)
        code = failure_of(self.trouble) if self.trouble else ErrorCode.ENGINE_CRASHED
        what = "the engine ended its turn without an answer of the model"
        return _broke(code, what, self.trouble or said_on_stderr)


def _broke(code: ErrorCode, what: str, words: str) -> TurnFailed:
    return TurnFailed(code=code, message=what, detail=as_detail(words))


_WORD = re.compile(r"\w+", re.ASCII)


@dataclass(slots=True, kw_only=True)
class _Call:
    name: str
    started: bool = False
    ended: bool = False


class Tools:
    """The tool calls of a turn. A call is reported once its input is known; at first often only its name is."""

    def __init__(self) -> None:
        self._calls: Recent[_Call] = Recent()
        self.used = False

    def read(self, update: Mapping[str, Any]) -> Iterator[EngineEvent]:
        self.used = True
        call_id, status = text_at(update, "toolCallId"), text_at(update, "status")
        if (call := self._calls.get(call_id)) is None:
            call = _Call(name=_name(update)[:MOST_ID])
            self._calls.put(call_id, call)
        if status == "pending" or call.ended:
            return
        if not call.started:
            call.started = True
            yield ToolStarted(call_id=call_id, name=call.name, detail=_detail(update, call.name))
        if status in ("completed", "failed"):
            call.ended = True
            yield ToolEnded(call_id=call_id, name=call.name, ok=_went_well(update), output=_output(update))


def _name(update: Mapping[str, Any]) -> str:
    """The protocol has a title for people and a kind; most programs add the tool's name, each in its own place."""
    title = text_at(update, "title")
    return (
        text_at(update, "_meta", "toolName")
        or text_at(update, "toolName")
        or (title if _WORD.fullmatch(title) else "")
        or text_at(update, "kind")
        or "tool"
    )


def _detail(update: Mapping[str, Any], name: str) -> str:
    """What a tool was given: its command where it has one, else what the program calls it, else all of it."""
    given = object_at(update, "rawInput") or object_at(update, "args")
    title = text_at(update, "title")
    whole = clean(json.dumps(given, ensure_ascii=False)) if given else ""
    return text_at(given, "command") or (title if title != name else "") or whole


def _went_well(update: Mapping[str, Any]) -> bool:
    exit_code = object_at(update, "rawOutput", "metadata").get("exit")
    return text_at(update, "status") == "completed" and exit_code in (None, 0)


def _output(update: Mapping[str, Any]) -> str:
    content = update.get("content")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    texts = (text_at(block, "content", "text") for block in blocks)
    return (
        "\n".join(text for text in texts if text)
        or text_at(update, "rawOutput")
        or text_at(update, "rawOutput", "output")
    )


# A text that does not start with a letter or digit may be a command; after another block it is not.
_PREFACE = "What follows is the message, word for word.\n"


def usage_in(tokens: Mapping[str, Any]) -> Usage:
    """Tokens as the protocol counts them, or in the words of a program that counts on its own.

    What was cached or thought stands within the rest or beside it; which it is, only the total tells.
    """
    given = count_at(tokens, "inputTokens") or count_at(tokens, "input_tokens")
    made = count_at(tokens, "outputTokens") or count_at(tokens, "output_tokens")
    cached = count_at(tokens, "cachedReadTokens")
    beside = max(0, count_at(tokens, "totalTokens") - given - made)
    if beside >= cached:
        given, beside = given + cached, beside - cached
    made += beside
    return Usage(input_tokens=given, output_tokens=made, cached_tokens=cached, total_tokens=given + made)


def as_it_is(text: str) -> list[dict[str, str]]:
    texts = (text,) if text[:1].isalnum() else (_PREFACE, text)
    return [{"type": "text", "text": clean(each)} for each in texts]


def words_of(error: Mapping[str, Any]) -> str:
    """All that an error says: its message is often no more than that there is one."""
    details = text_at(error, "data", "details") or text_at(error, "data", "message") or text_at(error, "data")
    rest = "" if details or not object_at(error, "data") else json.dumps(error["data"], ensure_ascii=False)
    return "\n".join(words for words in (text_at(error, "message"), details, clean(rest)) if words)
