"""The engine `scripted`: a program that plays a script and needs no account, for the demo, the docs and tests.

The program is in `program/`; its scripts are described in `docs/reference/scripted-engine.md`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from askback.core.errors import ErrorCode
from askback.core.interactions import Question
from askback.core.permissions import GateKind, ToolClass
from askback.core.runs import ProfileKind, Usage
from askback.engines.base import (
    HELP,
    UUID,
    Asked,
    AssistantMessage,
    CallResult,
    Completed,
    Engine,
    EngineEvent,
    Exit,
    Launch,
    Probe,
    Reply,
    Send,
    SessionMove,
    SessionNamed,
    Stream,
    ToolEnded,
    ToolStarted,
    Turn,
    TurnFailed,
    TurnOver,
    UsageSeen,
    session_of,
)
from askback.engines.failures import crashed, ended_badly, failure_of, unknown_session
from askback.engines.gates import SHELL, HookCall, Tool, read_hook
from askback.engines.launches import printed_by, probed
from askback.engines.parser import JsonLinesParser, Messages
from askback.engines.protocols.json_lines import (
    amount_at,
    as_detail,
    count_at,
    count_or_none,
    decode_line,
    object_at,
    text_at,
)
from askback.questions import finding as questions

SCRIPT = "assets/scripted.json"
"""The path of the script in a skill package."""
GATED = "gated"
_SCRIPT_INVALID = "script_invalid"
"""How the program marks a failure that is the script's own."""
_SESSION_UNKNOWN = "session_unknown"
"""How it marks a session that it does not have."""


class Scripted(Engine):
    name = "scripted"
    title = "Scripted (plays a script, no account needed)"
    default_command = (
        sys.executable or "python3",
        "-I",
        "-S",
        __file__.removesuffix("__init__.py") + "program/__main__.py",
    )
    install = "it comes with Askback: pip install askback"
    sign_in = "it needs no account"
    handle_pattern = re.compile(f"ses-{UUID}", re.ASCII)
    profiles = frozenset({ProfileKind.RESUMABLE, ProfileKind.STICKY_PROCESS})
    chosen_by_default = False
    warm = True
    takes_ask_tool = True

    def signed_in(self, files: Collection[str], env: Collection[str]) -> bool | None:
        return True

    def read_probe(self, results: Sequence[CallResult]) -> Probe:
        usage = printed_by(results, HELP)
        effort = tuple(sorted(self.profiles)) if "--effort" in usage else ()
        resumes, resident = "--resume" in usage, "--stay" in usage
        features = (GATED,) if "--gate" in usage else ()
        return probed(results, HELP, "--resume", resumes=resumes, effort=effort, resident=resident, features=features)

    def launch(self, turn: Turn) -> Launch:
        argv = _argv(turn)
        if turn.handle is not None:
            argv.append(f"--resume={session_of(self, turn.handle)}")
        return Launch(argv=tuple(argv), env={"HOME": turn.home}, stdin=turn.prompt.encode("utf-8", "replace"))

    def parser(self, turn: Turn) -> ScriptedParser:
        return ScriptedParser()

    def gate(self, probe: Probe) -> GateKind:
        return GateKind.REPEAT if GATED in probe.features else GateKind.NONE

    def read_hook(self, payload: Any) -> HookCall | None:
        return read_hook(payload, _TOOLS)

    def move_session(self, old_cwd: str, new_cwd: str) -> SessionMove:
        return SessionMove()

    def launch_resident(self, turn: Turn) -> Launch:
        without = () if turn.may_ask else ("--no-native",)
        return Launch(argv=(*_argv(turn), "--stay", *without), env={"HOME": turn.home})

    def conversation(self, turn: Turn) -> ScriptedConversation:
        return ScriptedConversation()


_TOOLS = {
    "shell": SHELL,
    "read": Tool(kind=ToolClass.READ, path="path"),
    "write": Tool(kind=ToolClass.EDIT, path="path", content="text"),
    "fetch": Tool(kind=ToolClass.FETCH, url="url"),
}


def _argv(turn: Turn) -> list[str]:
    argv = [*turn.command, f"--mode={turn.mode}", f"--default-script={turn.skill_dir}/{SCRIPT}"]
    if turn.model:
        argv.append(f"--model={turn.model}")
    if turn.effort:
        argv.append(f"--effort={turn.effort}")
    if turn.gate:
        argv.append(f"--gate={json.dumps(turn.gate)}")
    if turn.ask_tool:
        argv.append(f"--ask-tool={json.dumps(turn.ask_tool)}")
    return [*argv, *turn.extra_args]


def engine() -> Scripted:
    return Scripted()


class ScriptedParser(JsonLinesParser):
    """Reads the program's events. A turn succeeds only with `turn.completed` and without a failure event."""

    def __init__(self) -> None:
        super().__init__()
        self.messages = Messages()
        self._completed = False
        self._failure: str | None = None
        self._failure_code = ""
        self._retrying = ""

    def _read(self, event: Mapping[str, Any]) -> Iterator[EngineEvent]:
        kind = text_at(event, "type")
        self._retrying = text_at(event, "message") if kind == "retry" else ""
        match kind:
            case "session.started":
                yield SessionNamed(value=text_at(event, "session_id"))
            case "message":
                yield AssistantMessage(text=self.messages.add(text_at(event, "text")))
            case "tool.started":
                yield ToolStarted(
                    call_id=text_at(event, "id"), name=text_at(event, "name"), detail=text_at(event, "detail")
                )
            case "tool.ended":
                yield ToolEnded(
                    call_id=text_at(event, "id"),
                    name=text_at(event, "name"),
                    ok=event.get("ok") is True,
                    output=text_at(event, "output"),
                )
            case "usage":
                tokens = object_at(event, "usage")
                yield UsageSeen(usage=_usage(tokens), model=text_at(tokens, "model") or None)
            case "turn.completed":
                self._completed = True
                yield TurnOver()
            case "turn.failed":
                self._failure = text_at(event, "error", "message") or "it did not say why"
                self._failure_code = text_at(event, "error", "code")
                yield TurnOver()
            case "error":
                self._failure = text_at(event, "message") or "it did not say why"
                self._failure_code = text_at(event, "code")

    def ending(self) -> Completed | TurnFailed | None:
        """The result, if the program ended its turn itself; otherwise None."""
        if self._failure is not None and self._failure_code == _SESSION_UNKNOWN:
            return unknown_session(self._failure)
        if self._failure is not None and self._failure_code == _SCRIPT_INVALID:
            message = f"the script {SCRIPT} cannot be played"
            return TurnFailed(code=ErrorCode.SCRIPT_INVALID, message=message, detail=as_detail(self._failure))
        if self._failure is not None:
            return ended_badly(failure_of(self._failure), self._failure)
        return self.messages.completed() if self._completed else None

    def finish(self, ended: Exit) -> Completed | TurnFailed:
        return self.ending() or self._unfinished(ended, self._retrying)


class ScriptedConversation:
    """The conversation with the resident program. Output outside a turn is ignored."""

    def __init__(self) -> None:
        self._turn = ScriptedParser()
        self._is_open = False
        self.is_paused = False
        self._asked: tuple[str, Question] | None = None

    def say(self, prompt: str, reply: Reply | None = None) -> Iterator[EngineEvent]:
        self._turn, self._is_open = ScriptedParser(), True
        if self._asked is None:
            yield _send(type="prompt", text=prompt)
            return
        (question_id, question), self._asked = self._asked, None
        response = reply.response if reply is not None and reply.answered else question.default
        yield _send(type="answer", id=question_id, response=response)

    def feed(self, stream: Stream, line: bytes) -> Iterator[EngineEvent]:
        event = decode_line(line) if stream is Stream.STDOUT else None
        if self.is_paused and event is not None and text_at(event, "type") in ("turn.completed", "turn.failed"):
            self.is_paused = False
        if stream is Stream.STDOUT and not self._is_open:
            return
        if event is not None and text_at(event, "type") == "question":
            fields = questions.QuestionBlock(start=0, end=0, fields=object_at(event, "question"))
            self._asked = text_at(event, "id"), questions.read_question(fields, "")[0]
            self._is_open = False
            yield Asked(question=self._asked[1])
            return
        for seen in self._turn.feed(stream, line):
            self._is_open = self._is_open and not isinstance(seen, TurnOver)
            yield seen

    def pause(self) -> Iterator[EngineEvent]:
        self._is_open, self.is_paused = False, True
        return iter(())

    def proceed(self) -> None:
        self._turn, self._is_open, self.is_paused = ScriptedParser(), True, False

    def outcome(self) -> Completed | TurnFailed:
        return self._turn.ending() or self._turn.messages.completed()

    def finish(self, ended: Exit) -> TurnFailed:
        broke = self._turn.finish(ended)
        return broke if isinstance(broke, TurnFailed) else crashed(ended, None)


def _send(**message: Any) -> Send:
    return Send(data=json.dumps(message).encode() + b"\n")


def _usage(tokens: Mapping[str, Any]) -> Usage:
    sent, generated = count_at(tokens, "input_tokens"), count_at(tokens, "output_tokens")
    return Usage(
        input_tokens=sent,
        output_tokens=generated,
        cached_tokens=count_at(tokens, "cached_tokens"),
        reasoning_tokens=count_or_none(tokens, "reasoning_tokens"),
        cost_usd=amount_at(tokens, "cost_usd"),
        total_tokens=count_at(tokens, "total_tokens") or sent + generated,
    )
