"""The Agent Client Protocol: one conversation for every program that speaks it, JSON-RPC 2.0 with a message a line.

What differs between the programs is in `Dialect`, given by their engines. Where a program may do as it likes, it does:
permissions are granted, and of the client's own abilities (files, terminals) none is offered.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from askback.core.errors import ErrorCode
from askback.core.interactions import Json
from askback.core.runs import Usage
from askback.engines.acp_requests import Asking, read_request
from askback.engines.acp_tools import Tools
from askback.engines.base import (
    Asked,
    Broke,
    Completed,
    Exit,
    Reply,
    Said,
    Seen,
    Send,
    SessionNamed,
    Stream,
    TurnOver,
    UsageSeen,
)
from askback.engines.failures import crashed, failure_of, failure_of_status, stopped
from askback.engines.json_lines import Tail, as_detail, count_at, decode_line, object_at, text_at
from askback.engines.json_text import clean

PROTOCOL_VERSION = 1
_CAPABILITIES = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False, "elicitation": {"form": {}}}
_AUTH_REQUIRED, _METHOD_NOT_FOUND = -32000, -32601
_AUTOMATIC = "yolo"
# A text that begins otherwise may be a command to the program; after a block of ours it is none.
_PREFACE = "What follows is the message, word for word.\n"

_STOPPED = {
    "max_tokens": (ErrorCode.ENGINE_API_ERROR, "the model's answer was cut off: it is longer than it may be"),
    "max_turn_requests": (ErrorCode.ENGINE_CRASHED, "the engine gave its turn up after too many requests"),
    "refusal": (ErrorCode.ENGINE_API_ERROR, "the model refused to answer"),
    "cancelled": (ErrorCode.ENGINE_CRASHED, "the engine ended its turn as canceled, though nobody asked it to"),
}


def _nothing(words: str) -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What a program has of its own."""

    sign_in: str | None = None
    """The way to sign in that is asked for when the program says that it is not signed in."""
    model: str | None = None
    """A model that is chosen by a message; None where it stands on the command line, or the program chooses."""
    retry_in: Callable[[str], str] = _nothing
    """What a line of stderr says of a request that failed and is tried again; nothing when it says nothing of one."""
    most_tries: int | None = None
    """A request that failed so often ends the turn, for a program that tries for longer than anybody waits."""
    error_in: Callable[[str], str] = _nothing
    """The error that the program put into the assistant's mouth, in a message."""
    counts_answers: bool = False
    """It counts the tokens of every answer that is whole, and so a turn without any has none."""
    noise: Callable[[str], object] = _nothing
    """Whether a line of stderr says nothing of an error."""


class AcpConversation:
    """One process, one session. A turn is a `session/prompt`, and over with the response to it."""

    def __init__(self, *, cwd: str, dialect: Dialect) -> None:
        self._cwd = cwd
        self._dialect = dialect
        self._last_id = 0
        self._waiting: dict[int, str] = {}
        self._ready = False
        self._signed_in = False
        self._session = ""
        self._prompt = ""
        self._asked: deque[tuple[Json, Asking]] = deque()
        self._stderr = Tail()
        self._begin()

    def _begin(self) -> None:
        """Forget the turn before."""
        self._parts: list[str] = []
        self._message_id = ""
        self._messages: list[str] = []
        self._tools = Tools()
        self._counted = Usage()
        self._trouble = ""
        self._tries = 0
        self._broke: Broke | None = None

    def say(self, prompt: str, reply: Reply | None = None) -> Iterator[Seen]:
        self._begin()
        if self._asked:
            request_id, asked = self._asked.popleft()
            yield _answer(request_id, asked.answer(reply))
            yield from (Asked(question=asked.question) for _, asked in list(self._asked)[:1])
            return
        self._prompt = prompt
        if self._ready:
            yield self._send_prompt()
        elif "initialize" not in self._waiting.values():
            yield self._request(
                "initialize", {"protocolVersion": PROTOCOL_VERSION, "clientCapabilities": _CAPABILITIES}
            )

    def _request(self, method: str, params: Mapping[str, Json]) -> Send:
        self._last_id += 1
        self._waiting[self._last_id] = method
        return _message({"id": self._last_id, "method": method, "params": params})

    def _send_prompt(self) -> Send:
        return self._request("session/prompt", {"sessionId": self._session, "prompt": _blocks(self._prompt)})

    def feed(self, stream: Stream, line: bytes) -> Iterator[Seen]:
        if stream is Stream.STDERR:
            yield from self._listen(line)
            return
        message = decode_line(line)
        if message is None:
            return
        method, number = text_at(message, "method"), message.get("id")
        if not method:
            # Of what is true it would say that it is the first.
            step = self._waiting.pop(number, None) if type(number) is int else None
            if step is not None:
                yield from self._read_response(step, message)
        elif "id" in message:
            yield from self._read_request(method, number, object_at(message, "params"))
        elif method == "session/update" and self._is_working(object_at(message, "params")):
            yield from self._read_update(object_at(message, "params", "update"))

    def _listen(self, line: bytes) -> Iterator[Seen]:
        words = line.decode("utf-8", "replace")
        if not self._dialect.noise(words):
            self._stderr.add(line)
        if not (trouble := self._dialect.retry_in(words)):
            return
        self._trouble = trouble
        self._tries += 1
        if self._tries == self._dialect.most_tries and "session/prompt" in self._waiting.values():
            yield _message({"method": "session/cancel", "params": {"sessionId": self._session}})
            yield from self._fail(failure_of(trouble), f"the engine's request failed {self._tries} times", trouble)

    def _is_working(self, params: Mapping[str, Any]) -> bool:
        """What comes outside of a turn, or of a helper's session, is no answer."""
        return "session/prompt" in self._waiting.values() and text_at(params, "sessionId") == self._session

    # What was asked of the program.

    def _read_response(self, step: str, message: Mapping[str, Any]) -> Iterator[Seen]:
        if "result" not in message:
            yield from self._refused(step, object_at(message, "error"))
            return
        result = object_at(message, "result")
        match step:
            case "initialize":
                yield self._sign_in_or_open(signed_in=result.get("isAuthenticated") is not False)
            case "authenticate":
                yield self._open()
            case "session/new":
                yield from self._read_session(result)
            case "session/prompt":
                yield from self._end(result)
            case _:
                yield from self._go_on()

    def _sign_in_or_open(self, *, signed_in: bool) -> Send:
        if signed_in or self._dialect.sign_in is None:
            return self._open()
        self._signed_in = True
        return self._request("authenticate", {"methodId": self._dialect.sign_in})

    def _open(self) -> Send:
        return self._request("session/new", {"cwd": self._cwd, "mcpServers": []})

    def _read_session(self, result: Mapping[str, Any]) -> Iterator[Seen]:
        self._session = text_at(result, "sessionId")
        if not self._session:
            yield from self._fail(ErrorCode.ENGINE_CRASHED, "the engine gave its session no name", None)
            return
        yield SessionNamed(value=self._session)
        modes = object_at(result, "modes")
        offered = modes.get("availableModes")
        known = [text_at(mode, "id") for mode in offered if isinstance(mode, dict)] if isinstance(offered, list) else []
        if _AUTOMATIC in known and text_at(modes, "currentModeId") != _AUTOMATIC:
            yield self._request("session/set_mode", {"sessionId": self._session, "modeId": _AUTOMATIC})
        if self._dialect.model is not None:
            chosen = {"sessionId": self._session, "configId": "model", "value": self._dialect.model}
            yield self._request("session/set_config_option", chosen)
        yield from self._go_on()

    def _go_on(self) -> Iterator[Seen]:
        """Nothing is left to prepare: the turn that waited for it begins."""
        if not self._waiting and self._broke is None:
            self._ready = True
            yield self._send_prompt()

    def _refused(self, step: str, error: Mapping[str, Any]) -> Iterator[Seen]:
        code = error.get("code")
        status = code if type(code) is int and 400 <= code < 600 else 0
        words = _words(error)
        unknown = code == _AUTH_REQUIRED
        if unknown and step == "session/new" and self._dialect.sign_in is not None and not self._signed_in:
            yield self._sign_in_or_open(signed_in=False)
            return
        cause = ErrorCode.ENGINE_AUTH_REQUIRED if unknown else failure_of_status(status, f"{words}\n{self._trouble}")
        what = "ended its turn with an error" if step == "session/prompt" else f"refused {step}"
        yield from self._fail(cause, f"the engine {what}", words)

    def _fail(self, code: ErrorCode, message: str, words: str | None) -> Iterator[Seen]:
        """The turn is over, badly. Whatever else was asked of the program is no longer waited for."""
        self._waiting.clear()
        self._asked.clear()
        self._broke = Broke(code=code, message=message, detail=as_detail(words or ""))
        yield from self._flush()
        yield TurnOver()

    def _end(self, result: Mapping[str, Any]) -> Iterator[Seen]:
        yield from self._flush()
        self._asked.clear()
        self._count(object_at(result, "usage") or object_at(result, "_meta", "quota", "token_count"))
        if self._counted != Usage():
            yield UsageSeen(usage=self._counted)
        self._broke = self._judge(text_at(result, "stopReason"))
        yield TurnOver()

    def _judge(self, reason: str) -> Broke | None:
        if reason != "end_turn":
            unknown = (ErrorCode.ENGINE_CRASHED, f"the engine ended its turn for a reason of its own: {reason!r}")
            code, message = _STOPPED.get(reason, unknown)
            return Broke(code=code, message=message, detail=as_detail(self._trouble))
        if told := self._dialect.error_in(self._messages[-1] if self._messages else ""):
            message = "the engine ended its turn with an error"
            return Broke(code=failure_of(told), message=message, detail=as_detail(told))
        if self._messages and not self._counted.output_tokens and self._dialect.counts_answers:
            message = "the engine broke the model's answer off, though it calls that the end of the turn"
            return Broke(code=ErrorCode.ENGINE_API_ERROR, message=message, detail=as_detail(self._trouble))
        if self._messages or self._counted.output_tokens:
            return None
        message, words = "the engine ended its turn without an answer of the model", self._trouble or self._stderr.text
        code = failure_of(words) if self._trouble else ErrorCode.ENGINE_CRASHED
        return Broke(code=code, message=message, detail=as_detail(words))

    # What the program tells.

    def _read_update(self, update: Mapping[str, Any]) -> Iterator[Seen]:
        match text_at(update, "sessionUpdate"):
            case "agent_message_chunk":
                self._count(object_at(update, "_meta", "usage"))
                # What a helper says is for the program, not for us.
                if not text_at(update, "_meta", "parentToolCallId"):
                    yield from self._hear(text_at(update, "content", "text"), text_at(update, "messageId"))
            case "tool_call" | "tool_call_update":
                yield from self._flush()
                yield from self._tools.read(update)
            case "agent_thought_chunk":
                self._tries = 0

    def _hear(self, text: str, message_id: str) -> Iterator[Seen]:
        if message_id != self._message_id:
            yield from self._flush()
            self._message_id = message_id
        if text:
            self._tries, self._trouble = 0, ""
            self._parts.append(text)

    def _flush(self) -> Iterator[Seen]:
        """Messages come in pieces: one is whole when a tool is called, another begins, or the turn is over."""
        text, self._parts = "".join(self._parts), []
        if text.strip():
            self._messages.append(text)
            if not self._dialect.error_in(text):
                yield Said(text=text)

    def _count(self, tokens: Mapping[str, Any]) -> None:
        self._counted += _usage(tokens)

    # What the program asks.

    def _read_request(self, method: str, request_id: Json, params: Mapping[str, Any]) -> Iterator[Seen]:
        response = read_request(method, params)
        if response is None:
            error = {"code": _METHOD_NOT_FOUND, "message": f"{method} is not offered here"}
            yield _message({"id": request_id, "error": error})
        elif isinstance(response, Mapping):
            yield _answer(request_id, response)
        else:
            self._asked.append((request_id, response))
            # One question at a time: others wait for their turn.
            if len(self._asked) == 1:
                yield from self._flush()
                yield Asked(question=response.question)

    # How it went.

    def outcome(self) -> Completed | Broke:
        return self._broke or Completed(messages=tuple(self._messages))

    def finish(self, ended: Exit) -> Broke:
        if self._broke is not None:
            return self._broke
        words = self._trouble or self._stderr.text
        broke = stopped(ended, self._trouble)
        if broke is not None:
            return broke
        code = failure_of(words)
        # Before there is a session it says on stderr what it lacks.
        if not self._session and code is ErrorCode.ENGINE_AUTH_REQUIRED:
            return Broke(code=code, message="the engine ended before its turn began", detail=as_detail(words))
        return crashed(ended, as_detail(self._stderr.text))


def _usage(tokens: Mapping[str, Any]) -> Usage:
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


def _blocks(text: str) -> list[dict[str, str]]:
    texts = (text,) if text[:1].isalnum() else (_PREFACE, text)
    return [{"type": "text", "text": clean(each)} for each in texts]


def _words(error: Mapping[str, Any]) -> str:
    """All that an error says: its message is often no more than that there is one."""
    details = text_at(error, "data", "details") or text_at(error, "data", "message") or text_at(error, "data")
    rest = "" if details or not object_at(error, "data") else json.dumps(error["data"], ensure_ascii=False)
    return "\n".join(words for words in (text_at(error, "message"), details, clean(rest)) if words)


def _answer(request_id: Json, result: Mapping[str, Json]) -> Send:
    return _message({"id": request_id, "result": result})


def _message(content: Mapping[str, Json]) -> Send:
    # Only ASCII: some programs split lines at every sign that is one in Unicode.
    return Send(data=json.dumps({"jsonrpc": "2.0", **content}).encode() + b"\n")
