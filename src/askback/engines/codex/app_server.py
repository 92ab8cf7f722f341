"""What is said to `codex app-server`: a conversation, or a query for its models. JSON-RPC with one message per line.

Its items and token counts are those of `codex exec`, with names in camel case.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from askback.core.errors import ErrorCode
from askback.core.interactions import Json
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
    UsageSeen,
)
from askback.engines.codex.turn import Items, usage_in
from askback.engines.failures import crashed, failure_of_status, stopped
from askback.engines.limits import moment_of
from askback.engines.parser import MAX_MODELS, Dialog, distinct, model
from askback.engines.protocols.elicitation import (
    DECLINED,
    Answer,
    Asking,
    PendingQuestions,
    ToolQuestions,
    read_form,
    read_questionnaire,
)
from askback.engines.protocols.json_lines import (
    JsonRpcChannel,
    Tail,
    as_detail,
    count_at,
    decode_line,
    object_at,
    objects_at,
    text_at,
)
from askback.text.json_text import clean

# Without `experimentalApi`, the ask tool is not available to the model.
_CLIENT = {
    "clientInfo": {"name": "askback", "title": "Askback", "version": "1"},
    "capabilities": {"experimentalApi": True},
}
_CAPITAL = re.compile(r"(?<=[a-z])([A-Z])")


class AppServerConversation:
    """A turn ends with `turn/completed`, whose status is the outcome, or when Codex refuses one of our requests."""

    def __init__(
        self,
        *,
        thread: Mapping[str, Json],
        output_schema: Mapping[str, Any] | None,
        api_key: str | None,
        may_ask: bool = True,
    ) -> None:
        self._may_ask = may_ask
        self._thread = thread
        self._api_key = api_key
        self._output_schema = output_schema
        self._line = JsonRpcChannel(header={})
        self._is_ready = False
        self._thread_id = ""
        self._prompt = ""
        self._asked = PendingQuestions()
        self._stderr = Tail()
        self._resets_at: datetime | None = None
        self.is_paused = False
        self._begin()
        self._is_open = False

    def _begin(self) -> None:
        self._is_open = True
        self._items = Items()
        self._broke: TurnFailed | None = None
        self._trouble = ""

    def say(self, prompt: str, reply: Reply | None = None) -> Iterator[EngineEvent]:
        self._begin()
        if self._asked:
            yield self._line.answer(*self._asked.answer(reply))
            yield from self._ask()
            return
        self._prompt = clean(prompt)
        if self._thread_id:
            yield self._start_turn()
        elif self._is_ready:
            yield _sign_in(self._line, self._api_key, "thread/start", self._thread)
        else:
            yield self._line.request("initialize", _CLIENT)

    def feed(self, stream: Stream, line: bytes) -> Iterator[EngineEvent]:
        if stream is Stream.STDERR:
            self._stderr.add(line)
            return
        message = decode_line(line)
        if message is None:
            return
        method, params = text_at(message, "method"), object_at(message, "params")
        if not method:
            yield from self._read_response(self._line.answered(message), message)
        elif "id" in message:
            yield from self._read_request(method, message["id"], params)
        elif text_at(params, "threadId") == self._thread_id and (self._is_open or self._asked):
            yield from self._read_event(method, params)
        elif method == "turn/completed" and text_at(params, "threadId") == self._thread_id:
            self.is_paused = False

    def pause(self) -> Iterator[EngineEvent]:
        self._is_open, self.is_paused = False, True
        return iter(())

    def proceed(self) -> None:
        self.is_paused = False
        self._begin()

    # Responses to our requests.

    def _read_response(self, method: str | None, response: Mapping[str, Any]) -> Iterator[EngineEvent]:
        if method is None or not self._is_open:
            return
        if "error" in response:
            yield from self._fail(f"the engine refused {method}", object_at(response, "error"))
        elif method == "initialize":
            self._is_ready = True
            yield self._line.notify("initialized")
            yield _sign_in(self._line, self._api_key, "thread/start", self._thread)
        elif method == "account/login/start":
            yield self._line.request("thread/start", self._thread)
        elif method == "thread/start":
            self._thread_id = text_at(response, "result", "thread", "id")
            yield SessionNamed(value=self._thread_id)
            yield self._start_turn()

    def _start_turn(self) -> EngineEvent:
        schema = {"outputSchema": self._output_schema} if self._output_schema is not None else {}
        content = [{"type": "text", "text": self._prompt}]
        return self._line.request("turn/start", {"threadId": self._thread_id, "input": content, **schema})

    # Notifications about the turn.

    def _read_event(self, method: str, params: Mapping[str, Any]) -> Iterator[EngineEvent]:
        if method == "error":
            # Retry notices are `error` notifications too; only the last one ends the turn.
            self._trouble = _words(object_at(params, "error"))
        elif method in ("item/started", "item/completed"):
            self._trouble = ""
            yield from self._items.read(_renamed(object_at(params, "item")), ended=method == "item/completed")
        elif method == "thread/tokenUsage/updated":
            total = _renamed(object_at(params, "tokenUsage", "total"))
            yield UsageSeen(usage=usage_in(total), whole_session=True)
        elif method == "account/rateLimits/updated":
            windows = [object_at(params, "rateLimits", name) for name in ("primary", "secondary")]
            ends = [moment_of(each.get("resetsAt")) for each in windows if count_at(each, "usedPercent") >= 100]
            self._resets_at = max((end for end in ends if end is not None), default=None)
        elif method == "serverRequest/resolved":
            # Codex also reports this after an answer.
            self._asked.withdraw(params.get("requestId"))
        elif method == "turn/completed":
            yield from self._end(object_at(params, "turn"))

    def _end(self, turn: Mapping[str, Any]) -> Iterator[EngineEvent]:
        self._asked.clear()
        if not self._is_open:
            # Codex continued without the answer. The next prompt starts a new turn.
            return
        match text_at(turn, "status"):
            case "completed":
                self._is_open = False
                yield TurnOver()
            case "interrupted":
                error = {"message": "the turn was interrupted, but not by Askback"}
                yield from self._fail("the engine interrupted its turn", error, ErrorCode.ENGINE_CRASHED)
            case _:
                yield from self._fail("the engine ended its turn with an error", object_at(turn, "error"))

    def _fail(self, message: str, error: Mapping[str, Any], code: ErrorCode | None = None) -> Iterator[EngineEvent]:
        words = _words(error) or self._trouble or "it did not say why"
        kind = _CAPITAL.sub(r" \1", text_at(error, "codexErrorInfo"))
        # The HTTP status is nested under the kind of error.
        kinds = object_at(error, "codexErrorInfo").values()
        status = next((count_at(each, "httpStatusCode") for each in kinds if isinstance(each, dict)), 0)
        code = code or failure_of_status(status, f"{words}\n{kind}")
        self._broke = TurnFailed(code=code, message=message, detail=as_detail(words), reset=self._resets_at)
        self._is_open = False
        yield TurnOver()

    # Codex's requests.

    def _read_request(self, method: str, request_id: Json, params: Mapping[str, Any]) -> Iterator[EngineEvent]:
        response = read_request(method, params)
        if response is None:
            yield self._line.refuse(request_id, method)
        elif isinstance(response, Mapping):
            yield self._line.answer(request_id, response)
        elif not self._may_ask or (not self._is_open and not self._asked) or self._asked.is_full:
            # Questions outside of a turn, and those beyond the limit, are declined.
            yield self._line.answer(request_id, response.answer(None))
        else:
            self._asked.add(request_id, response)
            if self._is_open:
                yield from self._ask()

    def _ask(self) -> Iterator[EngineEvent]:
        if self._asked:
            self._is_open = False
            yield Asked(question=self._asked.oldest)

    # The outcome.

    def outcome(self) -> Completed | TurnFailed:
        return self._broke or self._items.messages.completed()

    def finish(self, ended: Exit) -> TurnFailed:
        words = self._stderr.text
        return stopped(ended, self._trouble, words) or crashed(ended, as_detail(f"{self._trouble}\n{words}"))


def _renamed(value: Mapping[str, Any]) -> dict[str, Any]:
    """The object with the names of `codex exec`: `aggregatedOutput` becomes `aggregated_output`."""
    named = {_CAPITAL.sub(r"_\1", name).lower(): content for name, content in value.items()}
    return named | {"type": _CAPITAL.sub(r"_\1", text_at(value, "type")).lower()}


def _words(error: Mapping[str, Any]) -> str:
    words = (text_at(error, "message"), text_at(error, "additionalDetails"))
    return "\n".join(each for each in words if each)


def _sign_in(line: JsonRpcChannel, api_key: str | None, method: str, params: Mapping[str, Json]) -> Send:
    """Sign in with the key, or if there is none, make the request that comes next."""
    if not api_key:
        return line.request(method, params)
    return line.request("account/login/start", {"type": "apiKey", "apiKey": api_key})


def read_request(method: str, params: Mapping[str, Any]) -> Mapping[str, Json] | Asking | None:
    """The response to a request, or the question to ask the user first. None if the method is not supported."""
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


def _user_input(questions: Json) -> Mapping[str, Json] | Asking:
    """A call of the model's ask tool. Each answer is returned as a list under its question's id."""
    asked = read_questionnaire(questions)
    if asked is None:
        return {"answers": {}}
    ids = tuple(text_at(each, "id") for each in questions)

    def respond(answers: Sequence[Answer] | None) -> Mapping[str, Json]:
        lists = (each if isinstance(each, list) else [each] for each in answers or ())
        return {"answers": {name: {"answers": each} for name, each in zip(ids, lists, strict=False)}}

    return ToolQuestions(asked=asked, respond=respond, interaction_id=(ids[0] or None) if len(ids) == 1 else None)


class CodexModels(Dialog):
    """Asks for `model/list`. With a key it signs in first: the list depends on the account."""

    def __init__(self, *, api_key: str | None) -> None:
        super().__init__()
        self._api_key = api_key
        self._channel = JsonRpcChannel(header={})
        self._pages: list[Model | None] = []

    def begin(self) -> Iterator[Send]:
        yield self._channel.request("initialize", _CLIENT)

    def feed(self, stream: Stream, line: bytes) -> Iterator[Send]:
        if stream is Stream.STDERR:
            self._stderr.add(line)
            return
        message = decode_line(line)
        if message is None or self.is_over or text_at(message, "method"):
            return
        step = self._channel.answered(message)
        if step is None:
            return
        if "error" in message:
            self._refusal = text_at(message, "error", "message") or f"it refused {step}"
            return
        yield from self._read(step, object_at(message, "result"))

    def _read(self, step: str, result: Mapping[str, Any]) -> Iterator[Send]:
        match step:
            case "initialize":
                yield self._channel.notify("initialized")
                yield _sign_in(self._channel, self._api_key, "model/list", {})
            case "account/login/start":
                yield self._channel.request("model/list", {})
            case _:
                yield from self._collect(result)

    def _collect(self, result: Mapping[str, Any]) -> Iterator[Send]:
        before = len(self._pages)
        self._pages += [_model(each) for each in objects_at(result, "data") if each.get("hidden") is not True]
        cursor = text_at(result, "nextCursor")
        if cursor and before < len(self._pages) < MAX_MODELS:
            yield self._channel.request("model/list", {"cursor": cursor})
        else:
            self._found = distinct(self._pages)


def _model(each: Mapping[str, Any]) -> Model | None:
    efforts = [text_at(effort, "reasoningEffort") for effort in objects_at(each, "supportedReasoningEfforts")]
    is_default = each.get("isDefault") is True
    return model(each, text_at(each, "model"), text_at(each, "displayName"), efforts=efforts, is_default=is_default)
