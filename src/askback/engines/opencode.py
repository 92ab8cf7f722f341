"""The engine `opencode`: one `opencode run --format json` per turn, or one resident `opencode acp`.

OpenCode prints one JSON event per line, but only at the end of each step, and nothing while it retries. So its log on
stderr is read as well, for the session id and for the reasons of failed requests. A turn succeeds if the model itself
ended the last step; any other reason is a failure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from askback.core.errors import ErrorCode
from askback.core.renewals import ANY, Kind, Renewal, TokenField
from askback.core.runs import ProfileKind, Usage
from askback.engines.base import (
    VERSION,
    AssistantMessage,
    CallResult,
    Completed,
    Engine,
    EngineEvent,
    Exit,
    Launch,
    Model,
    NoModels,
    Probe,
    Send,
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
from askback.engines.failures import crashed, ended_badly, failure_of, failure_of_status, stopped
from askback.engines.launches import CALL_SEC, SERVER, printed_at_all, probed
from askback.engines.parser import MAX_MODELS, Dialog, JsonLinesParser, Messages, Recent, distinct, model, usage_of
from askback.engines.protocols.acp import AcpConversation
from askback.engines.protocols.acp_turn import Dialect
from askback.engines.protocols.json_lines import (
    amount_at,
    as_detail,
    count_at,
    count_or_none,
    object_at,
    plain,
    text_at,
)

_RUN_HELP, _ACP_HELP = ("run", "--help"), ("acp", "--help")
_ACP_USAGE = re.compile(r"^\S+ acp[ \t]*$", re.MULTILINE)
_MODEL = re.compile(r"[^\s/]+/\S+")
_LOGS = ("--print-logs", "--log-level=INFO")
_AUTOMATIC, _AUTOMATIC_ONCE = "--auto", "--dangerously-skip-permissions"
_OAUTH_ENTRY = ("type", "oauth")
_KEYS = (
    "OPENCODE_API_KEY",
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_GENERATIVE_AI_API_KEY",
    "OPENROUTER_API_KEY",
)

_FOLDERS = {
    "XDG_CONFIG_HOME": ".config",
    "XDG_DATA_HOME": ".local/share",
    "XDG_STATE_HOME": ".local/state",
    "XDG_CACHE_HOME": ".cache",
}
_DEFAULT_ENV = {
    # Otherwise OpenCode reads the settings in every folder above the workspace.
    "OPENCODE_DISABLE_PROJECT_CONFIG": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    "OPENCODE_DISABLE_SHARE": "1",
}

_ID = "ses_[0-9A-Za-z]{26}"
# Only the start of a log line is reliable: the rest may quote a model or a file.
_LOG = rb"timestamp=\S+ level=%s run=\w+ "
_AT_WORK = re.compile(_LOG % b"INFO" + b"message=loop session\\.id=(" + _ID.encode() + b") ")
_INFO = re.compile(_LOG % b"INFO")
_ITS_REQUEST = b' [^"]*\\bsession\\.id=(' + _ID.encode() + b") small=false "
_REQUEST = re.compile(_LOG % b"INFO" + b"message=stream" + _ITS_REQUEST)
_REQUEST_FAILED = re.compile(_LOG % b"ERROR" + b'message="stream error"' + _ITS_REQUEST)
_ERROR = re.compile(_LOG % b"ERROR" + rb'.*? error(?:\.error)?="((?:[^"\\]|\\.)*)"')

_MAX_TRIES = 3
"""OpenCode itself tries a request six times, for more than a minute, and this cannot be configured."""


class Opencode(Engine):
    name = "opencode"
    title = "OpenCode"
    default_command = ("opencode",)
    install_command = "npm install -g opencode-ai"
    install = f"install it with: {install_command}"
    sign_in_command = "opencode auth login"
    sign_in = f"sign in with: {sign_in_command}"
    handle_pattern = re.compile(_ID, re.ASCII)
    profiles = frozenset({ProfileKind.RESUMABLE, ProfileKind.STICKY_PROCESS})
    warm = True
    takes_ask_tool = True
    env_allow = _KEYS
    config_names = (".opencode", "opencode.json", "opencode.jsonc")
    credentials = (".local/share/opencode/auth.json",)
    caches = (
        ".local/share/opencode/bin",
        ".local/share/opencode/log",
        ".local/state/opencode/locks",
    )
    renewals = (
        Renewal(
            name=".local/share/opencode/auth.json",
            # Only OAuth entries: a `wellknown` entry loads settings, and therefore commands, from a server.
            fields=(
                TokenField(path=(ANY, "access"), where=_OAUTH_ENTRY),
                TokenField(path=(ANY, "refresh"), where=_OAUTH_ENTRY),
                TokenField(path=(ANY, "expires"), kind=Kind.INTEGER, where=_OAUTH_ENTRY),
            ),
            account=((ANY, "type"), (ANY, "accountId"), (ANY, "enterpriseUrl")),
        ),
    )

    def signed_in(self, files: Collection[str], env: Collection[str]) -> bool | None:
        """Unknown without either: the settings may name a provider with a key, or one that needs none."""
        return True if files or any(key in env for key in _KEYS) else None

    def probe_calls(self) -> Sequence[tuple[str, ...]]:
        return (_RUN_HELP, _ACP_HELP, VERSION)

    def read_probe(self, results: Sequence[CallResult]) -> Probe:
        # OpenCode prints its help to stderr.
        usage = printed_at_all(results, _RUN_HELP)
        # With --help, an unknown subcommand prints the main help, which also mentions --session.
        resumes = re.search(r"^\S+ run \[message", usage, re.MULTILINE) is not None and "--session" in usage
        old = _AUTOMATIC not in usage and _AUTOMATIC_ONCE in usage
        return probed(
            results,
            _RUN_HELP,
            "--session",
            resumes=resumes,
            features=(_AUTOMATIC_ONCE,) if old else (),
            # Its ACP server has no such option.
            effort=(ProfileKind.RESUMABLE,) if "--variant" in usage else (),
            resident=_ACP_USAGE.search(printed_at_all(results, _ACP_HELP)) is not None,
        )

    def launch(self, turn: Turn) -> Launch:
        automatic = _AUTOMATIC_ONCE if _AUTOMATIC_ONCE in turn.probe.features else _AUTOMATIC
        argv = [*turn.command, "run", "--format", "json", automatic, *_LOGS]
        # With a title, OpenCode does not ask the model for one.
        argv.append("--title=askback")
        if turn.model:
            argv.append(f"--model={turn.model}")
        if turn.effort:
            argv.append(f"--variant={turn.effort}")
        argv += turn.extra_args
        if turn.handle is not None:
            argv += ["--session", session_of(self, turn.handle)]
        return Launch(argv=tuple(argv), env=_environment(turn), stdin=turn.prompt.encode("utf-8", "replace"))

    def parser(self, turn: Turn) -> OpencodeParser:
        return OpencodeParser(resuming=turn.handle is not None)

    def launch_resident(self, turn: Turn) -> Launch:
        return Launch(argv=(*turn.command, "acp", *_LOGS, *turn.extra_args), env=_environment(turn))

    def conversation(self, turn: Turn) -> AcpConversation:
        dialect = Dialect(
            model=turn.model,
            retry_in=_retry_in,
            most_tries=_MAX_TRIES,
            noise=lambda words: _INFO.match(words.encode()) is not None,
        )
        return AcpConversation(cwd=turn.cwd, dialect=dialect, may_ask=turn.may_ask)

    def launch_models(self, turn: Turn) -> Launch:
        # Its ACP server lists models only if a provider is configured.
        return Launch(argv=(*turn.command, "models"), env=_environment(turn))

    def model_query(self, turn: Turn) -> OpencodeModels:
        return OpencodeModels()


def engine() -> Opencode:
    return Opencode()


def _environment(turn: Turn) -> dict[str, str]:
    settings = {**_DEFAULT_ENV, **_ask_tool(turn)}
    defaults = {name: value for name, value in settings.items() if name not in turn.env}
    return defaults | {name: f"{turn.home}/{folder}" for name, folder in _FOLDERS.items()}


def _ask_tool(turn: Turn) -> dict[str, str]:
    """Settings that OpenCode adds to those of the user."""
    if not turn.ask_tool:
        return {}
    server = {"type": "local", "command": list(turn.ask_tool), "enabled": True, "timeout": CALL_SEC * 1000}
    return {"OPENCODE_CONFIG_CONTENT": json.dumps({"mcp": {SERVER: server}})}


class OpencodeModels(Dialog):
    """Reads `opencode models`, which prints one `PROVIDER/MODEL` per line and exits."""

    def __init__(self) -> None:
        super().__init__()
        self._printed: list[Model | None] = []

    def begin(self) -> Iterator[Send]:
        return iter(())

    def feed(self, stream: Stream, line: bytes) -> Iterator[Send]:
        words = plain(line.decode("utf-8", "replace")).strip()
        if stream is Stream.STDERR:
            self._stderr.add(line)
        elif _MODEL.fullmatch(words) and len(self._printed) < MAX_MODELS:
            self._printed.append(model({}, words, ""))
        return iter(())

    def finish(self, exit_code: int | None) -> Sequence[Model] | NoModels:
        if exit_code == 0 and self._printed:
            return distinct(self._printed)
        return super().finish(exit_code)


class OpencodeParser(JsonLinesParser):
    """Reads the events of one `opencode run`. A turn succeeds only if the model itself ended the last step."""

    unknown_session = re.compile(r"session not found", re.IGNORECASE)

    def __init__(self, *, resuming: bool) -> None:
        super().__init__(resuming=resuming)
        self._session: str | None = None
        self._messages = Messages()
        self._said: Recent[None] = Recent()
        self._usage = Usage()
        self._completed = False
        self._failure: Mapping[str, Any] | None = None
        self._trouble = ""
        self._fault = ""
        self._requests = 0
        self._tries = 0

    def _listen(self, line: bytes) -> Iterator[EngineEvent]:
        if _INFO.match(line):
            yield from self._read_info(line)
            return
        self._stderr.add(line)
        failed, words = _REQUEST_FAILED.match(line), _words(line)
        if failed is None:
            self._fault = words or self._fault
        # Retries of subagents do not count: the model waits for them.
        elif self._session in (None, failed[1].decode()):
            self._trouble = words
            yield from self._count_failures(self._tries + 1)

    def _read_info(self, line: bytes) -> Iterator[EngineEvent]:
        if begun := _AT_WORK.match(line):
            # The first is the turn's session; subagents start other sessions later.
            if self._session is None:
                yield from self._name(begun[1].decode())
            if begun[1].decode() == self._session:
                self._requests = self._tries = 0
        elif (asked := _REQUEST.match(line)) and asked[1].decode() == self._session:
            # Not every interrupted answer is logged. But within a step, another request means that one was interrupted.
            yield from self._count_failures(self._requests)
            self._requests += 1

    def _count_failures(self, tries: int) -> Iterator[EngineEvent]:
        if tries > self._tries:
            self._tries = tries
            if tries == _MAX_TRIES:
                yield TurnOver()

    def _name(self, session: str) -> Iterator[EngineEvent]:
        if session and session != self._session:
            self._session = session
            yield SessionNamed(value=session)

    def _read(self, event: Mapping[str, Any]) -> Iterator[EngineEvent]:
        part = object_at(event, "part")
        yield from self._name(text_at(event, "sessionID"))
        match text_at(event, "type"):
            case "step_start":
                self._completed, self._failure = False, None
            case "text":
                yield from self._say(part)
            case "tool_use":
                yield from _tool(part)
            case "step_finish":
                yield from self._end_step(part)
            case "error":
                self._completed, self._failure = False, object_at(event, "error")
                yield TurnOver()

    def _say(self, part: Mapping[str, Any]) -> Iterator[EngineEvent]:
        text, key = text_at(part, "text"), text_at(part, "id") or str(self._messages.said)
        if text and key not in self._said:
            self._said.put(key, None)
            yield AssistantMessage(text=self._messages.add(text))

    def _end_step(self, part: Mapping[str, Any]) -> Iterator[EngineEvent]:
        self._tries, self._trouble = 0, ""
        self._usage += replace(_usage(object_at(part, "tokens")), cost_usd=amount_at(part, "cost"))
        yield UsageSeen(usage=self._usage)
        reason = text_at(part, "reason")
        if reason == "tool-calls":
            return
        self._completed = reason == "stop"
        if not self._completed:
            self._failure = {"name": "the model broke off", "data": {"message": reason or "it did not say why"}}
        yield TurnOver()

    def finish(self, ended: Exit) -> Completed | TurnFailed:
        if self._completed:
            return self._messages.completed()
        if self._failure is not None:
            failed = ended_badly(*_failure_in(self._failure, self._fault))
            return replace(failed, reset=_retry_after(object_at(self._failure, "data", "responseHeaders")))
        stderr = plain(self._stderr.text)
        if self._session is None and (unknown := self._unknown(stderr)) is not None:
            return unknown
        if self._tries >= _MAX_TRIES:
            message = f"the engine's request failed {self._tries} times"
            why = self._trouble or "it did not say why"
            return TurnFailed(code=failure_of(why), message=message, detail=as_detail(why))
        return stopped(ended, self._trouble, stderr) or crashed(ended, as_detail(stderr))


def _failure_in(error: Mapping[str, Any], fault: str) -> tuple[ErrorCode, str]:
    """The code and the text of an error. For an internal error of OpenCode, only the log has the cause."""
    name, message = text_at(error, "name") or "error", text_at(error, "data", "message")
    words = f"{name}: {message}" + (f"\n{fault}" if name == "UnknownError" else "")
    if name == "ProviderAuthError":
        return ErrorCode.ENGINE_AUTH_REQUIRED, words
    return failure_of_status(count_at(error, "data", "statusCode"), words), words


def _retry_after(headers: Mapping[str, Any]) -> timedelta | None:
    after = text_at(headers, "retry-after")
    return timedelta(seconds=int(after)) if re.fullmatch(r"[0-9]{1,9}", after, re.ASCII) else None


def _retry_in(words: str, session: str) -> str:
    line = words.encode()
    failed = _REQUEST_FAILED.match(line)
    # Retries of subagents do not count: the model waits for them.
    return _words(line) if failed and failed[1].decode() == session else ""


def _words(line: bytes) -> str:
    """The error in a log line, or an empty string."""
    error = _ERROR.match(line)
    return error[1].decode("utf-8", "replace").replace("\\n", "\n").replace('\\"', '"') if error else ""


def _tool(part: Mapping[str, Any]) -> Iterator[EngineEvent]:
    """Both events of a tool call: OpenCode reports a tool only after it ended."""
    call_id, name, state = text_at(part, "callID"), text_at(part, "tool"), object_at(part, "state")
    done = text_at(state, "status") == "completed" and name != "invalid"
    detail = text_at(state, "input", "command") or text_at(state, "input", "error") or text_at(state, "title")
    yield ToolStarted(call_id=call_id, name=name, detail=detail)
    yield ToolEnded(
        call_id=call_id,
        name=name,
        ok=done and object_at(state, "metadata").get("exit") in (None, 0),
        output=text_at(state, "output") or text_at(state, "error"),
    )


def _usage(tokens: Mapping[str, Any]) -> Usage:
    """OpenCode counts cached and reasoning tokens separately."""
    cached = count_at(tokens, "cache", "read")
    sent = count_at(tokens, "input") + cached + count_at(tokens, "cache", "write")
    generated = count_at(tokens, "output") + count_at(tokens, "reasoning")
    return usage_of(sent, generated, cached, count_or_none(tokens, "reasoning"))
