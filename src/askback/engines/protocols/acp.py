"""What is said to any program that speaks the Agent Client Protocol: a conversation, or a query for its models.

The protocol is JSON-RPC 2.0, one message per line. Engines describe the differences between programs in a `Dialect`. All permissions are granted. The optional client
capabilities (files, terminals) are not offered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from askback.core.errors import ErrorCode
from askback.core.interactions import Json, Question
from askback.engines.base import (
    Asked,
    Completed,
    EngineEvent,
    Exit,
    Model,
    Reply,
    Send,
    SessionNamed,
    Stream,
    TurnFailed,
    TurnOver,
)
from askback.engines.failures import crashed, failure_of, failure_of_status, stopped
from askback.engines.parser import Dialog, distinct, model
from askback.engines.protocols.acp_turn import AcpTurnState, Dialect, literal_blocks, words_of
from askback.engines.protocols.elicitation import (
    DECLINED,
    Answer,
    Asking,
    PendingQuestions,
    Questionnaire,
    ToolQuestions,
    joined,
    read_form,
    read_questionnaire,
)
from askback.engines.protocols.json_lines import (
    JSON_RPC_VERSION,
    JsonRpcChannel,
    Tail,
    as_detail,
    decode_line,
    object_at,
    objects_at,
    text_at,
)

PROTOCOL_VERSION = 1
_CAPABILITIES = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False, "elicitation": {"form": {}}}
_AUTH_REQUIRED = -32000
_AUTOMATIC = "yolo"


class _Handshake:
    """The way to a session: `initialize`, `authenticate` if the program asks for it, `session/new`."""

    def __init__(self, *, cwd: str, dialect: Dialect) -> None:
        self._cwd = cwd
        self._sign_in = dialect.sign_in
        self._tried_to_sign_in = False
        self.channel = JsonRpcChannel(JSON_RPC_VERSION)

    def begin(self) -> Send:
        return self.channel.request(
            "initialize", {"protocolVersion": PROTOCOL_VERSION, "clientCapabilities": _CAPABILITIES}
        )

    def proceed(self, step: str, result: Mapping[str, Any]) -> Send:
        """The request that follows the result of `initialize` or `authenticate`."""
        if step == "initialize" and result.get("isAuthenticated") is False and self._sign_in is not None:
            return self._authenticate(self._sign_in)
        return self.channel.request("session/new", {"cwd": self._cwd, "mcpServers": []})

    def retry(self, step: str, error: Mapping[str, Any]) -> Send | None:
        """The request that follows a refusal, if a sign-in may help."""
        may_help = error.get("code") == _AUTH_REQUIRED and step == "session/new" and not self._tried_to_sign_in
        return self._authenticate(self._sign_in) if may_help and self._sign_in is not None else None

    def _authenticate(self, way: str) -> Send:
        self._tried_to_sign_in = True
        return self.channel.request("authenticate", {"methodId": way})


class AcpConversation:
    """One process with one session. A turn is a `session/prompt` request, and ends with its response."""

    def __init__(self, *, cwd: str, dialect: Dialect, may_ask: bool = True) -> None:
        self._may_ask = may_ask
        self._dialect = dialect
        self._handshake = _Handshake(cwd=cwd, dialect=dialect)
        self._channel = self._handshake.channel
        self._ready = False
        self._session = ""
        self._prompt = ""
        self._asked = PendingQuestions()
        self.is_paused = False
        self._stderr = Tail()
        self._begin()

    def _begin(self) -> None:
        """Reset the state of the previous turn."""
        self._turn = AcpTurnState(self._dialect)
        self._broke: TurnFailed | None = None

    def say(self, prompt: str, reply: Reply | None = None) -> Iterator[EngineEvent]:
        self._begin()
        if self._asked:
            yield self._channel.answer(*self._asked.answer(reply))
            if self._asked:
                yield Asked(question=self._asked.oldest)
            return
        self._prompt = prompt
        if self._ready:
            yield self._send_prompt()
        elif not self._channel.awaits():
            yield self._handshake.begin()

    def _send_prompt(self) -> Send:
        prompt = literal_blocks(self._prompt)
        return self._channel.request("session/prompt", {"sessionId": self._session, "prompt": prompt})

    def pause(self) -> Iterator[EngineEvent]:
        yield from self._turn.flush()
        yield from self._turn.report_usage()
        self.is_paused = True

    def proceed(self) -> None:
        self.is_paused = False
        self._begin()

    def feed(self, stream: Stream, line: bytes) -> Iterator[EngineEvent]:
        was_paused = self.is_paused
        for seen in self._feed(stream, line):
            self.is_paused = self.is_paused and not isinstance(seen, TurnOver)
            if not was_paused or isinstance(seen, Send):
                yield seen

    def _feed(self, stream: Stream, line: bytes) -> Iterator[EngineEvent]:
        if stream is Stream.STDERR:
            yield from self._listen(line)
            return
        message = decode_line(line)
        if message is None:
            return
        method, params = text_at(message, "method"), object_at(message, "params")
        if not method:
            step = self._channel.answered(message)
            if step is not None:
                yield from self._read_response(step, message)
        elif "id" in message:
            yield from self._read_request(method, message["id"], params)
        elif method == "session/update" and self._is_working and text_at(params, "sessionId") == self._session:
            yield from self._turn.read(object_at(params, "update"))

    @property
    def _is_working(self) -> bool:
        """Whether a turn is open. Updates outside of a turn are ignored."""
        return self._channel.awaits("session/prompt")

    def _listen(self, line: bytes) -> Iterator[EngineEvent]:
        words = line.decode("utf-8", "replace")
        if not self._dialect.noise(words):
            self._stderr.add(line)
        if not (trouble := self._dialect.retry_in(words, self._session)):
            return
        self._turn.trouble = trouble
        self._turn.tries += 1
        if self._turn.tries == self._dialect.most_tries and self._is_working:
            yield self._channel.notify("session/cancel", {"sessionId": self._session})
            what = f"the engine's request failed {self._turn.tries} times"
            yield from self._fail(failure_of(trouble), what, trouble)

    # Responses to our requests.

    def _read_response(self, step: str, response: Mapping[str, Any]) -> Iterator[EngineEvent]:
        if "result" not in response:
            yield from self._refused(step, object_at(response, "error"))
            return
        result = object_at(response, "result")
        match step:
            case "initialize" | "authenticate":
                yield self._handshake.proceed(step, result)
            case "session/new":
                yield from self._read_session(result)
            case "session/prompt":
                yield from self._end(result)
            case _:
                yield from self._prompt_if_ready()

    def _read_session(self, result: Mapping[str, Any]) -> Iterator[EngineEvent]:
        self._session = text_at(result, "sessionId")
        if not self._session:
            yield from self._fail(ErrorCode.ENGINE_CRASHED, "the engine did not name its session", "")
            return
        yield SessionNamed(value=self._session)
        modes = object_at(result, "modes")
        known = [text_at(mode, "id") for mode in objects_at(modes, "availableModes")]
        if _AUTOMATIC in known and text_at(modes, "currentModeId") != _AUTOMATIC:
            yield self._channel.request("session/set_mode", {"sessionId": self._session, "modeId": _AUTOMATIC})
        if self._dialect.model is not None:
            chosen = {"sessionId": self._session, "configId": "model", "value": self._dialect.model}
            yield self._channel.request("session/set_config_option", chosen)
        yield from self._prompt_if_ready()

    def _prompt_if_ready(self) -> Iterator[EngineEvent]:
        """Send the waiting prompt once the preparation is complete."""
        if not self._channel.awaits():
            self._ready = True
            yield self._send_prompt()

    def _refused(self, step: str, error: Mapping[str, Any]) -> Iterator[EngineEvent]:
        if (retry := self._handshake.retry(step, error)) is not None:
            yield retry
            return
        code, words = error.get("code"), words_of(error)
        what = "the engine ended its turn with an error" if step == "session/prompt" else f"the engine refused {step}"
        yield from self._fail(_cause(code, f"{words}\n{self._turn.trouble}"), what, words)

    def _fail(self, code: ErrorCode, what: str, words: str) -> Iterator[EngineEvent]:
        """End the turn with a failure, and stop waiting for other responses."""
        self._channel.forget()
        self._asked.clear()
        self._broke = TurnFailed(code=code, message=what, detail=as_detail(words))
        yield from self._turn.flush()
        yield from self._turn.report_usage()
        yield TurnOver()

    def _end(self, result: Mapping[str, Any]) -> Iterator[EngineEvent]:
        self._asked.clear()
        yield from self._turn.end(result)
        self._broke = self._turn.judge(text_at(result, "stopReason"), self._stderr.text)
        yield TurnOver()

    # The program's requests.

    def _read_request(self, method: str, request_id: Json, params: Mapping[str, Any]) -> Iterator[EngineEvent]:
        own = self._dialect.requests.get(method)
        response = read_request(method, params) if own is None else own(params)
        if response is None:
            yield self._channel.refuse(request_id, method)
        elif isinstance(response, Mapping):
            yield self._channel.answer(request_id, response)
        elif not self._may_ask or not self._is_working or self.is_paused or self._asked.is_full:
            # Questions outside of a turn, and those beyond the limit, are declined.
            yield self._channel.answer(request_id, response.answer(None))
        else:
            self._asked.add(request_id, response)
            if len(self._asked) == 1:
                yield from self._turn.flush()
                yield from self._turn.report_usage()
                yield Asked(question=response.question)

    # The outcome.

    def outcome(self) -> Completed | TurnFailed:
        return self._broke or self._turn.messages.completed()

    def finish(self, ended: Exit) -> TurnFailed:
        words = self._stderr.text
        broke = self._broke or stopped(ended, self._turn.trouble, words)
        if broke is not None:
            return broke
        # Before the session exists, stderr may explain why it cannot be created.
        if not self._session and failure_of(words) is ErrorCode.ENGINE_AUTH_REQUIRED:
            what = "the engine ended before its turn started"
            return TurnFailed(code=ErrorCode.ENGINE_AUTH_REQUIRED, message=what, detail=as_detail(words))
        return crashed(ended, as_detail(words))


def _cause(code: Json, words: str) -> ErrorCode:
    """Some programs use an HTTP status as the code, and 500 for errors without a status."""
    if code == _AUTH_REQUIRED:
        return ErrorCode.ENGINE_AUTH_REQUIRED
    by_text = failure_of(words)
    is_status = type(code) is int and 400 <= code < 600
    return failure_of_status(code, words) if is_status and by_text is not ErrorCode.ENGINE_UNREACHABLE else by_text


def read_request(method: str, params: Mapping[str, Any]) -> Mapping[str, Json] | Asking | None:
    """The response to a request, or the question to ask the user first. None if the method is not supported."""
    match method:
        case "session/request_permission":
            return _permission(params)
        case "elicitation/create" | "session/elicitation":
            return read_form(params) or DECLINED
        case _:
            return None


def _permission(params: Mapping[str, Any]) -> Mapping[str, Json] | Asking:
    options = objects_at(params, "options")
    ids = {text_at(option, "kind"): text_at(option, "optionId") for option in reversed(options)}
    allowed = ids.get("allow_always") or ids.get("allow_once")
    asked = read_questionnaire(object_at(params, "toolCall", "rawInput").get("questions"))
    if allowed and asked is not None:
        return _by_number(asked, allowed)
    if allowed:
        return _selected(allowed)
    names = {text_at(each, "name"): text_at(each, "optionId") for each in options if text_at(each, "optionId")}
    if not names:
        return _CANCELLED
    prompt = text_at(params, "toolCall", "title") or "Which one?"
    return _Choice(question=Question(prompt=prompt, kind="choice", options=tuple(names)), options=names)


_CANCELLED: Mapping[str, Json] = {"outcome": {"outcome": "cancelled"}}


def _selected(option_id: str) -> dict[str, Json]:
    return {"outcome": {"outcome": "selected", "optionId": option_id}}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """A question in the form of a permission request: none of its options is an `allow` option."""

    question: Question
    options: Mapping[str, str]
    """Option ids by name."""

    def answer(self, reply: Reply | None) -> Mapping[str, Json]:
        if reply is None:
            return _CANCELLED
        chosen = reply.response if reply.answered else next(iter(self.options))
        option = self.options.get(chosen, chosen) if isinstance(chosen, str) else ""
        return _selected(option) if option in self.options.values() else _CANCELLED


def _by_number(asked: Questionnaire, allowed: str) -> ToolQuestions:
    """A call of an ask tool. The answers go into the permission response, keyed by question number."""

    def respond(answers: Sequence[Answer] | None) -> Mapping[str, Json]:
        if answers is None:
            return _CANCELLED
        return _selected(allowed) | {"answers": {str(at): joined(each) for at, each in enumerate(answers)}}

    return ToolQuestions(asked=asked, respond=respond)


class AcpModels(Dialog):
    """Creates a session, and reads its `models`. No prompt is sent.

    `option`: turns the id of a model in the protocol into the name that the program's command line takes.
    """

    def __init__(self, *, cwd: str, dialect: Dialect, option: Callable[[str], str] = str) -> None:
        super().__init__()
        self._dialect = dialect
        self._option = option
        self._handshake = _Handshake(cwd=cwd, dialect=dialect)

    def begin(self) -> Iterator[Send]:
        yield self._handshake.begin()

    def feed(self, stream: Stream, line: bytes) -> Iterator[Send]:
        if stream is Stream.STDERR:
            if not self._dialect.noise(line.decode("utf-8", "replace")):
                self._stderr.add(line)
            return
        message, channel = decode_line(line), self._handshake.channel
        if message is None or self.is_over:
            return
        if method := text_at(message, "method"):
            if "id" in message:
                yield channel.refuse(message["id"], method)
        elif (step := channel.answered(message)) is not None:
            yield from self._read(step, message)

    def _read(self, step: str, response: Mapping[str, Any]) -> Iterator[Send]:
        if "result" not in response:
            error = object_at(response, "error")
            if (retry := self._handshake.retry(step, error)) is not None:
                yield retry
            else:
                self._refusal = words_of(error) or f"it refused {step}"
        elif step == "session/new":
            self._found = self._listed(object_at(response, "result", "models")) or None
            self._refusal = "" if self._found else "this version does not list its models"
        else:
            yield self._handshake.proceed(step, object_at(response, "result"))

    def _listed(self, models: Mapping[str, Any]) -> tuple[Model, ...]:
        current = text_at(models, "currentModelId")
        return distinct(
            model(
                each,
                self._option(text_at(each, "modelId")),
                text_at(each, "name"),
                is_default=text_at(each, "modelId") == current,
            )
            for each in objects_at(models, "availableModels")
        )
