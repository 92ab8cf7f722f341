"""The conversation with a program that speaks the Agent Client Protocol.

The protocol is JSON-RPC 2.0, one message per line. Engines describe the differences between programs in a `Dialect`.
`read_permission` is the one place where a tool call is permitted. The optional client capabilities (files, terminals)
are not offered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from askback.core.errors import ErrorCode
from askback.core.interactions import Json, Question
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
    TurnFailed,
    TurnOver,
)
from askback.engines.failures import crashed, failure_of, failure_of_status, known_failure, stopped, unknown_session
from askback.engines.protocols.acp_session import AUTH_REQUIRED, LOAD, RESUME, Handshake, option_of
from askback.engines.protocols.acp_turn import PREFACE, AcpTurnState, Dialect, literal_blocks, words_of
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
from askback.engines.protocols.json_lines import Tail, as_detail, decode_line, object_at, objects_at, text_at


class AcpConversation:
    """One process with one session. A turn is a `session/prompt` request, and ends with its response.

    `session` is the one to continue, in which there have been `turns`; empty for a new one.
    """

    def __init__(
        self,
        *,
        cwd: str,
        dialect: Dialect,
        may_ask: bool = True,
        session: str = "",
        turns: int = 0,
        servers: Sequence[Mapping[str, Json]] = (),
    ) -> None:
        self._may_ask = may_ask
        self._dialect = dialect
        self._handshake = Handshake(cwd=cwd, dialect=dialect, session=session, servers=servers)
        self._channel = self._handshake.channel
        self._ready = False
        self._session = session
        self._turns = turns
        self._replayed = 0
        """The prompts in the history that the program sent with the session."""
        self._counted = Usage()
        self._prompt = ""
        self._asked = PendingQuestions()
        self.is_paused = False
        self.is_closed = False
        self._stderr = Tail()
        self._begin()

    def _begin(self) -> None:
        """Reset the state of the previous turn."""
        self._turn = AcpTurnState(self._dialect, self._counted)
        self._broke: TurnFailed | None = None
        self._other_session = ""
        """Another session in which the program has answered."""

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
        elif method == "session/update":
            yield from self._read_update(text_at(params, "sessionId"), object_at(params, "update"))
        elif trouble := self._dialect.retried(method, params):
            self._turn.trouble = trouble

    def _read_update(self, session: str, update: Mapping[str, Any]) -> Iterator[EngineEvent]:
        """Updates outside of a turn are ignored. The history of a session that is loaded is only counted."""
        kind = text_at(update, "sessionUpdate")
        if self._is_working and session == self._session:
            yield from self._turn.read(update)
        elif self._is_working and kind == "agent_message_chunk":
            self._other_session = session
        elif self._channel.awaits(LOAD) and kind == "user_message_chunk":
            # A prompt of two blocks is replayed as two.
            self._replayed += text_at(update, "content", "text") != PREFACE

    @property
    def _is_working(self) -> bool:
        """Whether a turn is open."""
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
                yield from self._open(step, result)
            case "session/new":
                yield from self._read_session(result)
            case "session/resume" | "session/load":
                yield from self._continue(step, result)
            case "session/close":
                self.is_closed = True
            case "session/prompt":
                yield from self._end(result)
            case _:
                yield from self._prompt_if_ready()

    def _open(self, step: str, result: Mapping[str, Any]) -> Iterator[EngineEvent]:
        if (request := self._handshake.proceed(step, result)) is not None:
            yield request
        else:
            what = "the installed version cannot continue its sessions"
            yield from self._fail(ErrorCode.SESSION_RESUME_FAILED, what, "")

    def _read_session(self, result: Mapping[str, Any]) -> Iterator[EngineEvent]:
        self._session = text_at(result, "sessionId")
        if not self._session:
            yield from self._fail(ErrorCode.ENGINE_CRASHED, "the engine did not name its session", "")
            return
        yield SessionNamed(value=self._session)
        yield from self._configure(result)

    def _continue(self, step: str, result: Mapping[str, Any]) -> Iterator[EngineEvent]:
        if step == LOAD and self._replayed < self._turns:
            what = f"the engine has {self._replayed} of the {self._turns} prompts of its session"
            yield from self._fail(ErrorCode.SESSION_RESUME_FAILED, what, "")
            return
        # A program that names none continues the one that it was asked for.
        yield SessionNamed(value=text_at(result, "sessionId") or self._session)
        yield from self._configure(result)

    def _configure(self, session: Mapping[str, Any]) -> Iterator[EngineEvent]:
        """Choose the mode, the model and the effort, then send the prompt that waits."""
        dialect, modes = self._dialect, object_at(session, "modes")
        known = [text_at(mode, "id") for mode in objects_at(modes, "availableModes")]
        if dialect.mode in known and text_at(modes, "currentModeId") != dialect.mode:
            yield self._channel.request("session/set_mode", {"sessionId": self._session, "modeId": dialect.mode})
        wanted = dict(dialect.options)
        if dialect.model is not None:
            wanted[text_at(option_of(session, "model"), "id") or "model"] = dialect.model
        if dialect.effort is not None:
            wanted[text_at(option_of(session, "thought_level", "thinking"), "id") or "thought_level"] = dialect.effort
        for option, value in wanted.items():
            chosen = {"sessionId": self._session, "configId": option, "value": value}
            yield self._channel.request("session/set_config_option", chosen)
        yield from self._prompt_if_ready()

    def close(self) -> Iterator[Send]:
        """Ask the program to store the session and to close it. Without an answer, `is_closed` stays false."""
        self.is_closed = not (self._handshake.closes_sessions and self._session)
        if not self.is_closed:
            yield self._channel.request("session/close", {"sessionId": self._session})

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
        if step == "session/close":
            self.is_closed = True
            return
        if step in (RESUME, LOAD) and code != AUTH_REQUIRED and known_failure(words) is None:
            self._broke = unknown_session(words)
            yield TurnOver()
            return
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
        self._counted = self._turn.counted
        if self._other_session and not self._turn.messages:
            # It has changed the session, which fails a run that continues one.
            yield SessionNamed(value=self._other_session)
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
    if code == AUTH_REQUIRED:
        return ErrorCode.ENGINE_AUTH_REQUIRED
    by_text = failure_of(words)
    is_status = type(code) is int and 400 <= code < 600
    return failure_of_status(code, words) if is_status and by_text is not ErrorCode.ENGINE_UNREACHABLE else by_text


def read_request(method: str, params: Mapping[str, Any]) -> Mapping[str, Json] | Asking | None:
    """The response to a request, or the question to ask the user first. None if the method is not supported."""
    match method:
        case "session/request_permission":
            return read_permission(params)
        case "elicitation/create" | "session/elicitation":
            return read_form(params) or DECLINED
        case _:
            return None


def read_permission(params: Mapping[str, Any]) -> Mapping[str, Json] | Asking:
    """The response to a request for a permission: granted. The kind of an option says what it means, never its id."""
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
    rejected = ids.get("reject_once") or ids.get("reject_always")
    declined = _selected(rejected) if rejected else _CANCELLED
    question = Question(prompt=prompt, kind="choice", options=tuple(names))
    return _Choice(question=question, options=names, declined=declined)


_CANCELLED: Mapping[str, Json] = {"outcome": {"outcome": "cancelled"}}


def _selected(option_id: str) -> dict[str, Json]:
    return {"outcome": {"outcome": "selected", "optionId": option_id}}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """A question in the form of a permission request: none of its options is an `allow` option."""

    question: Question
    options: Mapping[str, str]
    """Option ids by name."""
    declined: Mapping[str, Json]
    """The response if nobody may answer."""

    def answer(self, reply: Reply | None) -> Mapping[str, Json]:
        if reply is None:
            return self.declined
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
