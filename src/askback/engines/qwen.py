"""The engine `qwen`: Qwen Code, as one headless process per turn or one resident process that speaks ACP.

Qwen prints events like Claude's, one JSON object per line, with `result` as the last. An API error is a successful
result whose text ends with the error. Token counts are those of the whole session. Qwen treats a prompt that starts
with a slash as a command, and replaces `@path` with the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from askback.core.errors import ErrorCode
from askback.core.renewals import Kind, Renewal, TokenField
from askback.core.runs import ProfileKind
from askback.engines.base import (
    HELP,
    CallResult,
    Completed,
    Engine,
    EngineEvent,
    Exit,
    Launch,
    Probe,
    SessionMove,
    SessionNamed,
    Turn,
    TurnFailed,
    TurnOver,
    UsageSeen,
    session_of,
)
from askback.engines.claude.turn import MessageAssembler
from askback.engines.failures import ended_badly, failure_of
from askback.engines.launches import CALL_SEC, mcp_servers, printed_by, probed
from askback.engines.parser import JsonLinesParser, usage_of
from askback.engines.protocols.acp import AcpConversation
from askback.engines.protocols.acp_session import AcpModels
from askback.engines.protocols.acp_turn import Dialect
from askback.engines.protocols.json_lines import as_detail, count_at, count_or_none, object_at, objects_at, text_at

_RESIDENT = "--acp"
EXCLUDE_TOOLS = "exclude-tools"
# Both tools wait for a user's answer. They are not listed by default, but a model may discover them.
_WITHOUT_PLANS = ("--exclude-tools=exit_plan_mode",)
_WITHOUT_ASKING = ("--exclude-tools=ask_user_question", *_WITHOUT_PLANS)

_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "DASHSCOPE_API_KEY")

# Only the text after a custom command is passed to the model unchanged.
_COMMAND = "/askback"
_COMMAND_FILE = ".qwen/commands/askback.md"
_COMMAND_TEXT = f"""\
---
description: Passes a message on unchanged.
disable-model-invocation: true
---
What follows the line {_COMMAND} is the message, word for word.
"""

_SETTINGS_FILE, _DEFAULTS_FILE = ".qwen/askback-settings.json", ".qwen/askback-defaults.json"
# System settings, which override the user's own.
_SETTINGS = {
    "$version": 4,
    "general": {"enableAutoUpdate": False},
    # Qwen ignores our command in a folder that is not trusted.
    "security": {"folderTrust": {"enabled": False}},
    # After each turn, Qwen would ask the model what to remember, and let it write files.
    "memory": {"enableManagedAutoMemory": False, "enableManagedAutoDream": False},
    # Qwen would end a turn that repeats itself without reporting it.
    "model": {"skipLoopDetection": True},
    # After each turn, Qwen would ask the model what the user might type next.
    "ui": {"enableFollowupSuggestions": False},
}
# System defaults, which the user's settings override. Without HTTP retries, an error takes a minute instead of many.
_DEFAULTS = {
    "$version": 4,
    "privacy": {"usageStatisticsEnabled": False},
    "model": {"generationConfig": {"maxRetries": 0}},
}

_ERROR_BEGINS = "[API Error: "
_ERROR_ENDS = re.compile(r"\](?:\n(?:Please wait and|Possible quota)[^\n]*)?\s*\Z")
_NO_SIGN_IN = re.compile(r"Qwen OAuth (?:quota exceeded|free tier has been discontinued)")


class Qwen(Engine):
    name = "qwen"
    title = "Qwen Code"
    default_command = ("qwen",)
    install_command = "npm install -g @qwen-code/qwen-code"
    install = f"install it with: {install_command}"
    sign_in_command = "qwen auth"
    sign_in = f"set OPENAI_API_KEY, OPENAI_BASE_URL and OPENAI_MODEL, or configure it with: {sign_in_command}"
    profiles = frozenset({ProfileKind.RESUMABLE, ProfileKind.STICKY_PROCESS})
    warm = True
    takes_ask_tool = True
    env_allow = (
        *_KEYS,
        "OPENAI_BASE_URL",
        "OPENAI_MODEL",
        "ANTHROPIC_BASE_URL",
        "ANTHROPIC_MODEL",
        "GEMINI_MODEL",
        "GOOGLE_MODEL",
    )
    config_names = (".qwen",)
    credentials = (".qwen/oauth_creds.json",)
    renewals = (
        Renewal(
            name=".qwen/oauth_creds.json",
            # The tokens are opaque. They are sent to `resource_url`, so it must not change.
            fields=(
                TokenField(path=("access_token",)),
                TokenField(path=("refresh_token",)),
                TokenField(path=("expiry_date",), kind=Kind.INTEGER, optional=True),
            ),
        ),
    )

    def signed_in(self, files: Collection[str], env: Collection[str]) -> bool | None:
        """Without a key variable, the settings may contain a key. Newer versions ignore OAuth credentials."""
        return True if any(key in env for key in _KEYS) else None

    def read_probe(self, results: Sequence[CallResult]) -> Probe:
        usage = printed_by(results, HELP)
        return probed(
            results,
            HELP,
            "--resume and stream-json",
            resumes="--resume" in usage and "stream-json" in usage,
            features=(EXCLUDE_TOOLS,) if "--exclude-tools" in usage else (),
            resident=_RESIDENT in usage,
        )

    def launch(self, turn: Turn) -> Launch:
        resume = () if turn.handle is None else ("--resume", session_of(self, turn.handle))
        return Launch(
            argv=(*_command(turn, _WITHOUT_ASKING, "--output-format", "stream-json"), *resume),
            env=_environment(turn),
            stdin=f"{_COMMAND}\n{turn.prompt}".encode("utf-8", "replace"),
            files={_COMMAND_FILE: _COMMAND_TEXT.encode(), **_settings(turn)},
        )

    def parser(self, turn: Turn) -> QwenParser:
        return QwenParser(resuming=turn.handle is not None)

    def move_session(self, old_cwd: str, new_cwd: str) -> SessionMove:
        """Qwen ignores a session that began in another working directory. Every line says where it was written."""
        new = _project(new_cwd)
        written = (
            f'"cwd":{json.dumps(old_cwd, ensure_ascii=False)}',
            f'"cwd":{json.dumps(new_cwd, ensure_ascii=False)}',
        )
        return SessionMove(renamed={_project(old_cwd): new}, rewritten={f"{new}/chats/*.jsonl": written})

    def launch_resident(self, turn: Turn) -> Launch:
        argv = _command(turn, _WITHOUT_PLANS if turn.may_ask else _WITHOUT_ASKING, _RESIDENT)
        return Launch(argv=argv, env=_environment(turn), files=_settings(turn))

    def conversation(self, turn: Turn) -> AcpConversation:
        return AcpConversation(cwd=turn.cwd, dialect=Dialect(), may_ask=turn.may_ask)

    def model_query(self, turn: Turn) -> AcpModels:
        return AcpModels(cwd=turn.cwd, dialect=Dialect(), option=_model_option)


def engine() -> Qwen:
    return Qwen()


def _project(cwd: str) -> str:
    """The folder with the sessions of a working directory."""
    return ".qwen/projects/" + re.sub(r"[^A-Za-z0-9]", "-", cwd)


def _model_option(model_id: str) -> str:
    """The value for `--model`: in ACP, a model also names where it was configured and how Qwen signs in to it."""
    return re.sub(r"\([^()]*\)$", "", model_id.rsplit("|", 1)[-1])


def _command(turn: Turn, excluded: tuple[str, ...], *form: str) -> tuple[str, ...]:
    without = excluded if EXCLUDE_TOOLS in turn.probe.features else ()
    model = (f"--model={turn.model}",) if turn.model else ()
    return (*turn.command, *form, "--yolo", *without, *model, *turn.extra_args)


def _settings(turn: Turn) -> dict[str, bytes]:
    # By default, Qwen shows a tool of an MCP server only to a model that searches for it.
    servers = mcp_servers(turn, trust=True, timeout=CALL_SEC * 1000, alwaysLoadTools=True)
    # Qwen selects an API key itself only if a model and a base URL are set as well.
    auth = {"security": {"auth": {"selectedType": "openai"}}} if "OPENAI_API_KEY" in turn.env else {}
    return {
        _SETTINGS_FILE: json.dumps(_SETTINGS | servers).encode(),
        _DEFAULTS_FILE: json.dumps(_DEFAULTS | auth).encode(),
    }


def _environment(turn: Turn) -> dict[str, str]:
    env = {
        "QWEN_HOME": f"{turn.home}/.qwen",
        "QWEN_CODE_SYSTEM_SETTINGS_PATH": f"{turn.home}/{_SETTINGS_FILE}",
        "QWEN_CODE_SYSTEM_DEFAULTS_PATH": f"{turn.home}/{_DEFAULTS_FILE}",
        "QWEN_CODE_NO_RELAUNCH": "true",
        "NO_BROWSER": "true",
    }
    if turn.ask_tool:
        # As a resident process, Qwen would otherwise send its first request before it knows the tool.
        env["QWEN_CODE_LEGACY_MCP_BLOCKING"] = "1"
    if turn.credentials and not any(key in turn.env for key in _KEYS):
        env["QWEN_OAUTH"] = "true"
    return env


class QwenParser(JsonLinesParser):
    """Reads the events of one process. Success is a `result` that is not an error and does not end with one."""

    unknown_session = re.compile(r"no saved session found", re.IGNORECASE)

    def __init__(self, *, resuming: bool) -> None:
        super().__init__(resuming=resuming)
        self._assembler = MessageAssembler()
        self._model = ""
        self._trouble = ""
        self._result: Mapping[str, Any] | None = None

    def _read(self, event: Mapping[str, Any]) -> Iterator[EngineEvent]:
        match text_at(event, "type"):
            case "system" if text_at(event, "subtype") == "init" and (session := text_at(event, "session_id")):
                self._model = text_at(event, "model")
                yield SessionNamed(value=session)
            case "assistant":
                self._trouble = _reported_error(event)
                if not self._trouble:
                    yield from self._assembler.read(event)
            case "user":
                yield from self._assembler.read(event)
            case "result":
                yield from self._assembler.flush()
                # A later result does not override an error.
                if self._result is None or not _is_error(self._result):
                    self._result = event
                tokens = object_at(event, "usage")
                sent, generated = count_at(tokens, "input_tokens"), count_at(tokens, "output_tokens")
                usage = usage_of(sent, generated, count_or_none(tokens, "cache_read_input_tokens"))
                yield UsageSeen(usage=usage, whole_session=True, model=self._model or None)
                yield TurnOver()

    def finish(self, ended: Exit) -> Completed | TurnFailed:
        if self._result is None:
            return self._unfinished(ended)
        words = text_at(self._result, "error", "message") or text_at(self._result, "result")
        if _is_error(self._result):
            words = words or text_at(self._result, "subtype")
            return ended_badly(failure_of(words), words)
        if self._trouble:
            return ended_badly(failure_of(self._trouble), self._trouble)
        if self._result.get("num_turns") == 0:
            message = "the engine ended its turn without an answer from the model"
            return TurnFailed(
                code=ErrorCode.ENGINE_CRASHED, message=message, detail=as_detail(words or self._stderr.text)
            )
        return self._assembler.messages.completed()


def _reported_error(event: Mapping[str, Any]) -> str:
    """The error at the end of an assistant message; empty if there is none. Errors of subagents are ignored."""
    if text_at(event, "parent_tool_use_id"):
        return ""
    text = "".join(text_at(block, "text") for block in objects_at(event, "message", "content"))
    if _NO_SIGN_IN.match(text):
        return text
    begin = text.find(_ERROR_BEGINS)
    return text[begin:] if begin >= 0 and _ERROR_ENDS.search(text, begin) else ""


def _is_error(result: Mapping[str, Any]) -> bool:
    return text_at(result, "subtype") != "success" or result.get("is_error") is not False
