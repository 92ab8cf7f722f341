"""One turn of a program that speaks ACP: what it said and did, gathered from its updates, and whether that is an answer.

Knows nothing of requests and responses but the one that ends the turn. What differs between programs is in `Dialect`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from askback.core.errors import ErrorCode
from askback.core.runs import Usage
from askback.engines.acp_messages import usage_in
from askback.engines.acp_tools import Tools
from askback.engines.base import Broke, Said, Seen, UsageSeen
from askback.engines.failures import failure_of
from askback.engines.json_lines import as_detail, object_at, text_at
from askback.engines.messages import Messages, Pieces

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What a program has of its own."""

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


class Telling:
    """What a turn brought so far."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._parts = Pieces()
        self._message_id = ""
        self._tools = Tools()
        self._usage = Usage()
        self.messages = Messages()
        self.trouble = ""
        """What the program said of a request that failed, if nothing good was heard since."""
        self.tries = 0

    def read(self, update: Mapping[str, Any]) -> Iterator[Seen]:
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

    def _hear(self, text: str, message_id: str) -> Iterator[Seen]:
        if message_id != self._message_id:
            yield from self.flush()
            self._message_id = message_id
        if text:
            self._forget_trouble()
            self._parts.add(text)

    def _forget_trouble(self) -> None:
        self.tries, self.trouble = 0, ""

    def flush(self) -> Iterator[Seen]:
        """Messages come in pieces: one is whole when a tool is called, another begins, or the turn is over."""
        text, shortened = self._parts.text, self._parts.shortened
        self._parts.clear()
        if text.strip():
            yield Said(text=self.messages.add(text, shortened=shortened))

    def count(self, tokens: Mapping[str, Any]) -> None:
        self._usage += usage_in(tokens)

    def tell_usage(self) -> Iterator[Seen]:
        if self._usage != Usage():
            yield UsageSeen(usage=self._usage)

    def end(self, result: Mapping[str, Any]) -> Iterator[Seen]:
        self.count(object_at(result, "usage") or object_at(result, "_meta", "quota", "token_count"))
        yield from self.flush()
        yield from self.tell_usage()

    def judge(self, reason: str, said_on_stderr: str) -> Broke | None:
        """Why the turn that ended for this reason is no success; None when it is one."""
        if reason != "end_turn":
            unknown = (ErrorCode.ENGINE_CRASHED, f"the engine ended its turn for a reason of its own: {reason!r}")
            return _broke(*_STOPPED.get(reason, unknown), self.trouble)
        if self._usage.output_tokens or (self.messages and not self._dialect.counts_answers):
            return None
        if self.messages:
            what = "the engine broke the model's answer off, though it calls that the end of the turn"
            return _broke(ErrorCode.ENGINE_API_ERROR, what, self.trouble)
        code = failure_of(self.trouble) if self.trouble else ErrorCode.ENGINE_CRASHED
        what = "the engine ended its turn without an answer of the model"
        return _broke(code, what, self.trouble or said_on_stderr)


def _broke(code: ErrorCode, what: str, words: str) -> Broke:
    return Broke(code=code, message=what, detail=as_detail(words))
