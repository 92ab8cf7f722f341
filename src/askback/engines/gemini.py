"""The engine `gemini`: Google's Gemini CLI, one headless start a turn.

What it prints and where it errs: one JSON event a line, ended by `result`; older versions one JSON document, on stderr
when it is an error. It exits with 0 when it was ended, calls an answer that it broke off a success, takes a text that
begins with a slash for a command, and reads files into a text wherever it finds an `@`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from askback.core.errors import ErrorCode
from askback.core.runs import ProfileKind, Usage
from askback.engines.acp import AcpConversation, Dialect
from askback.engines.base import (
    Broke,
    CallResult,
    Completed,
    Exit,
    Launch,
    Probe,
    Said,
    Seen,
    SessionNamed,
    Stream,
    ToolEnded,
    ToolStarted,
    Turn,
    TurnOver,
    UsageSeen,
    session_of,
)
from askback.engines.failures import crashed, failure_of, failure_of_status, stopped
from askback.engines.gemini_document import Document, events_of
from askback.engines.json_lines import Tail, as_detail, count_at, decode_line, object_at, text_at
from askback.engines.json_text import clean
from askback.engines.probing import printed_by, version_in, why_not

_HELP, _VERSION = ("--help",), ("--version",)
STREAM, _RESIDENT = "stream-json", "--acp"

_KEYS = ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA")
_SIGN_IN = ".gemini/oauth_creds.json"

# A command of ours is the only way in on which a text is left as it is.
_COMMAND = "/askback"
_COMMAND_FILE = ".gemini/commands/askback.toml"
_COMMAND_TEXT = f"""\
description = "Hands over a message as it is."
prompt = "What follows the line {_COMMAND} is the message, word for word."
"""

# Laid over the user's own settings, which stay as they are in the home.
_SETTINGS_FILE = ".gemini/settings.json"
_SETTINGS = {
    "general": {
        # It would delete a session that was resumed once.
        "sessionRetention": {"enabled": False},
        "enableAutoUpdate": False,
        "enableAutoUpdateNotification": False,
        # With its own ten an error is told after four minutes.
        "maxAttempts": 3,
        # A plan waits for somebody who approves of it.
        "plan": {"enabled": False},
    },
    "privacy": {"usageStatisticsEnabled": False},
    # Else it takes up the variables of every folder above the workspace.
    "advanced": {"ignoreLocalEnv": True},
}
_MANNERS = {"NO_BROWSER": "true", "GEMINI_TELEMETRY_ENABLED": "false"}

_NOT_SIGNED_IN = 41
_UNKNOWN_SESSION = re.compile(r"^Error resuming session", re.MULTILINE)
_NOISE = re.compile(r"YOLO mode is enabled|Ripgrep is not available|Warning: .*color|\[STARTUP\]")
_RETRY = re.compile(r"Attempt \d+ failed")
_CUT = "stdin input truncated"
_GIVEN_UP = re.compile(r"loop detected|maximum session turns", re.IGNORECASE)


class Gemini:
    name = "gemini"
    title = "Gemini CLI"
    default_command: tuple[str, ...] = ("gemini",)
    install = "install it with: npm install -g @google/gemini-cli"
    handle_type = "session_id"
    handle_pattern = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
    profiles = frozenset({ProfileKind.RESUMABLE, ProfileKind.STICKY_PROCESS})
    chosen_by_default = True
    env_allow: tuple[str, ...] = (
        *_KEYS,
        "GEMINI_MODEL",
        "GOOGLE_GEMINI_BASE_URL",
        "GOOGLE_VERTEX_BASE_URL",
        "GOOGLE_GENAI_API_VERSION",
        "GOOGLE_CLOUD_PROJECT",
        "GOOGLE_CLOUD_LOCATION",
        "GOOGLE_APPLICATION_CREDENTIALS",
    )
    credentials: tuple[str, ...] = (_SIGN_IN, ".gemini/google_accounts.json")
    sign_in = "sign in with: gemini, or set GEMINI_API_KEY"

    def signed_in(self, files: Collection[str], env: Collection[str]) -> bool | None:
        return _SIGN_IN in files or any(key in env for key in _KEYS)

    def probe_calls(self) -> Sequence[tuple[str, ...]]:
        return (_HELP, _VERSION)

    def read_probe(self, results: Sequence[CallResult]) -> Probe:
        usage = printed_by(results, _HELP)
        resumes = "--resume" in usage
        return Probe(
            kind=ProfileKind.RESUMABLE if resumes else ProfileKind.STICKY_PROCESS,
            reason="its --help offers --resume" if resumes else why_not(results, _HELP, "--resume"),
            version=version_in(printed_by(results, _VERSION)),
            features=(STREAM,) if STREAM in usage else (),
            resident=_RESIDENT in usage,
        )

    def launch(self, turn: Turn) -> Launch:
        # In one document a long answer is often cut; only versions that know nothing better are asked for it.
        form = STREAM if STREAM in turn.probe.features else "json"
        resume = () if turn.handle is None else ("--resume", session_of(self, turn.handle))
        return Launch(
            argv=(*_command(turn, "--output-format", form), *resume),
            env=_environment(turn),
            stdin=f"{_COMMAND}\n{turn.prompt}".encode("utf-8", "replace"),
            files={_COMMAND_FILE: _COMMAND_TEXT.encode()},
            work_files={_SETTINGS_FILE: json.dumps(_SETTINGS).encode()},
        )

    def parser(self, turn: Turn) -> GeminiParser:
        return GeminiParser(resuming=turn.handle is not None)

    def reside(self, turn: Turn) -> Launch:
        settings = {_SETTINGS_FILE: json.dumps(_SETTINGS).encode()}
        return Launch(argv=_command(turn, _RESIDENT), env=_environment(turn), work_files=settings)

    def conversation(self, turn: Turn) -> AcpConversation:
        dialect = Dialect(sign_in=_way_in(turn), retry_in=_retry_in, counts_answers=True, noise=_NOISE.match)
        return AcpConversation(cwd=turn.cwd, dialect=dialect)


def engine() -> Gemini:
    return Gemini()


def _command(turn: Turn, *form: str) -> tuple[str, ...]:
    # Without a model it chooses by itself, as its user has it configured.
    model = (f"--model={turn.model}",) if turn.model else ()
    return (*turn.command, *form, "--yolo", *model, *turn.extra_args)


def _way_in(turn: Turn) -> str:
    """The way to sign in, in the words of a program that stays."""
    if "GOOGLE_GENAI_USE_VERTEXAI" in turn.env:
        return "vertex-ai"
    return "oauth-personal" if _SIGN_IN in turn.credentials and not _has_key(turn) else "gemini-api-key"


def _has_key(turn: Turn) -> bool:
    return any(key in turn.env for key in _KEYS)


def _retry_in(words: str) -> str:
    return words if _RETRY.match(words) else ""


def _environment(turn: Turn) -> dict[str, str]:
    env = {name: value for name, value in _MANNERS.items() if name not in turn.env}
    env |= {
        "GEMINI_CLI_HOME": turn.home,
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        # The program that it would start over loses the end of what it prints.
        "GEMINI_CLI_NO_RELAUNCH": "true",
    }
    # Which way it signs in is a setting, and a run has the sign-in alone.
    if _SIGN_IN in turn.credentials and not _has_key(turn):
        env["GOOGLE_GENAI_USE_GCA"] = "true"
    return env


class GeminiParser:
    """Reads one start. Only a `result`, or a whole document, that says success and nothing of giving up is success."""

    def __init__(self, *, resuming: bool) -> None:
        self._resuming = resuming
        self._messages: list[str] = []
        self._parts: list[str] = []
        self._tools: dict[str, str] = {}
        self._documents = {stream: Document() for stream in Stream}
        self._succeeded = False
        self._failure: tuple[ErrorCode, str] | None = None
        self._troubles: list[str] = []
        self._retrying = ""
        self._usage = Usage()
        self._stderr = Tail()

    def feed(self, stream: Stream, line: bytes) -> Iterator[Seen]:
        if stream is Stream.STDERR:
            self._listen(line)
        event = decode_line(line) if stream is Stream.STDOUT else None
        if event is not None and text_at(event, "type"):
            yield from self._read(event)
            return
        document = self._documents[stream].take(line)
        if document is not None:
            for event in events_of(document, may_succeed=stream is Stream.STDOUT):
                yield from self._read(event)

    def _listen(self, line: bytes) -> None:
        words = line.decode("utf-8", "replace")
        if not _NOISE.match(words):
            self._stderr.add(line)
        if _RETRY.match(words):
            self._retrying = words
        if _CUT in words:
            self._troubles.append(words)

    def _read(self, event: Mapping[str, Any]) -> Iterator[Seen]:
        kind = text_at(event, "type")
        if kind == "message" and text_at(event, "role") == "assistant":
            self._retrying = ""
            if event.get("delta") is not True:
                yield from self._flush()
            self._parts.append(text_at(event, "content"))
            return
        yield from self._flush()
        match kind:
            case "init" if session := text_at(event, "session_id"):
                yield SessionNamed(value=session)
            case "tool_use" | "tool_result":
                self._retrying = ""
                yield self._tool(event)
            case "error":
                self._note(text_at(event, "message"), grave=text_at(event, "severity") == "error")
            case "result":
                yield from self._end(event)

    def _flush(self) -> Iterator[Seen]:
        """Messages come in pieces without a name: one is whole when something else comes."""
        text, self._parts = "".join(self._parts), []
        if text.strip():
            self._messages.append(text)
            yield Said(text=text)

    def _tool(self, event: Mapping[str, Any]) -> Seen:
        call_id = text_at(event, "tool_id")
        if text_at(event, "type") == "tool_use":
            self._tools[call_id] = text_at(event, "tool_name")
            return ToolStarted(call_id=call_id, name=self._tools[call_id], detail=_detail(event))
        return ToolEnded(
            call_id=call_id,
            name=self._tools.pop(call_id, ""),
            ok=text_at(event, "status") == "success",
            output=text_at(event, "output") or text_at(event, "error", "message"),
        )

    def _note(self, words: str, *, grave: bool = False) -> None:
        if grave or _GIVEN_UP.search(words):
            self._troubles.append(words)

    def _end(self, result: Mapping[str, Any]) -> Iterator[Seen]:
        if text_at(result, "status") == "success":
            self._succeeded = True
        else:
            words = text_at(result, "error", "message") or "\n".join(self._troubles) or "it did not say why"
            # A code is an HTTP status or one that it would exit with.
            code = count_at(result, "error", "code")
            self._failure = failure_of_status(code if code >= 400 else 0, words), words
        self._usage = _usage(object_at(result, "stats"))
        yield UsageSeen(usage=self._usage)
        yield TurnOver()

    def finish(self, ended: Exit) -> Completed | Broke:
        if self._failure is not None:
            code, words = self._failure
            return Broke(code=code, message="the engine ended its turn with an error", detail=as_detail(words))
        if self._succeeded:
            return self._answer()
        said = self._stderr.text
        if self._resuming and _UNKNOWN_SESSION.search(said):
            message = "the engine does not know the session (any more)"
            return Broke(code=ErrorCode.SESSION_RESUME_FAILED, message=message, detail=as_detail(said))
        if ended.code == _NOT_SIGNED_IN:
            return Broke(
                code=ErrorCode.ENGINE_AUTH_REQUIRED, message="the engine is not signed in", detail=as_detail(said)
            )
        return stopped(ended, self._retrying) or crashed(ended, as_detail(said))

    def _answer(self) -> Completed | Broke:
        if self._troubles:
            words = "\n".join(self._troubles)
            message = "the engine gave its turn up, though it calls that a success"
            return Broke(code=failure_of(words), message=message, detail=as_detail(words))
        if not self._messages and not self._usage.output_tokens:
            message = "the engine ended its turn without an answer of the model"
            return Broke(code=ErrorCode.ENGINE_CRASHED, message=message, detail=as_detail(self._stderr.text))
        return Completed(messages=tuple(self._messages))


def _detail(event: Mapping[str, Any]) -> str:
    """What a tool was given: its command where it has one, else all of it."""
    given = object_at(event, "parameters")
    return text_at(given, "command") or (clean(json.dumps(given, ensure_ascii=False)) if given else "")


def _usage(stats: Mapping[str, Any]) -> Usage:
    """Input includes what was cached; what was thought is only in the total."""
    given, total = count_at(stats, "input_tokens"), count_at(stats, "total_tokens")
    made = max(count_at(stats, "output_tokens"), total - given)
    return Usage(
        input_tokens=given, output_tokens=made, cached_tokens=count_at(stats, "cached"), total_tokens=given + made
    )
