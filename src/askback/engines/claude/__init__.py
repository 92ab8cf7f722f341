"""The engine `claude`: Anthropic's Claude Code, as one `claude -p` per turn or one resident process per run.

Claude prints one JSON event per line, with `result` as the last. Its `subtype` is `success` even for some failures.
Claude treats a prompt that starts with a slash as a command, which "succeeds" without asking the model.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from askback.core.permissions import GateKind, ToolClass
from askback.core.renewals import Kind, Renewal, TokenField
from askback.core.runs import Mode, ProfileKind
from askback.engines.base import (
    HELP,
    VERSION,
    CallResult,
    Engine,
    Launch,
    Model,
    Probe,
    Send,
    SessionMove,
    Stream,
    Turn,
    session_of,
)
from askback.engines.claude.turn import ClaudeConversation, ClaudeParser, literal
from askback.engines.gates import SHELL, HookAnswer, HookCall, Tool, hook_settings, permission_decision, read_hook
from askback.engines.launches import CALL_SEC, SERVER, START_SEC, mcp_servers, printed_by, probed, version_in
from askback.engines.parser import Dialog, distinct, model
from askback.engines.protocols.json_lines import decode_line, object_at, objects_at, text_at

_FORM = ("-p", "--output-format=stream-json", "--verbose")
_SKIPPING = "--dangerously-skip-permissions"
# In this mode a call is denied unless a hook allows it: a hook that fails denies it, too. Settings of the user or of the
# folder could allow calls or switch off hooks, so they are not read.
_GATED = ("--permission-mode=dontAsk", "--setting-sources=")
_WITHOUT_PLANS = "--disallowedTools=EnterPlanMode,ExitPlanMode"
_WITHOUT_ASKING = "--disallowedTools=AskUserQuestion,EnterPlanMode,ExitPlanMode"
# Claude also starts turns by itself, so replayed messages mark the start of our turns. Permissions go through stdio.
_RESIDENT = ("--input-format=stream-json", "--replay-user-messages", "--permission-prompt-tool=stdio")
# By default Claude deletes sessions after a month, but a run may wait longer.
_KEEPING_SESSIONS = {"cleanupPeriodDays": 36500}
SETTINGS = "settings"
DEFERS = "defers"
"""A hook can have a call made later: the program ends, and makes the call when its session is resumed."""
_DEFERS_SINCE = (2, 1, 325)
_MCP_FILE = ".claude/askback-mcp.json"
_UNGATED = (_SKIPPING, "--allow-dangerously-skip-permissions")
"""Options of the settings that would let a call run of which the gate says nothing."""
_GATE_HOOKS = ("SessionStart", "UserPromptSubmit", "PreToolUse")
_TOOLS = {
    "Bash": SHELL,
    "Monitor": SHELL,
    "Read": Tool(kind=ToolClass.READ, path="file_path"),
    "NotebookRead": Tool(kind=ToolClass.READ, path="notebook_path"),
    "Write": Tool(kind=ToolClass.EDIT, path="file_path", content="content"),
    "Edit": Tool(kind=ToolClass.EDIT, path="file_path", replaced=("old_string", "new_string")),
    "MultiEdit": Tool(kind=ToolClass.EDIT, path="file_path"),
    "NotebookEdit": Tool(kind=ToolClass.EDIT, path="notebook_path"),
    # Without a path they search the working directory.
    "Glob": Tool(kind=ToolClass.READ, path="path", default_path=".", pattern="pattern"),
    "Grep": Tool(kind=ToolClass.READ, path="path", default_path=".", pattern="glob"),
    "LS": Tool(kind=ToolClass.READ, path="path", default_path="."),
    "WebFetch": Tool(kind=ToolClass.FETCH, url="url"),
    "WebSearch": Tool(kind=ToolClass.FETCH),
}

_DEFAULT_ENV = {
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    # With the default of ten, Claude takes three minutes to report a refused key.
    "CLAUDE_CODE_MAX_RETRIES": "2",
}
# Claude would replace `@path` in a prompt, and so in a user's reply, with the content of that file.
_WITHOUT_MENTIONS = {"CLAUDE_CODE_DISABLE_FILE_MENTIONS": "1"}
# Claude writes its session a little later than it reports the end of a turn, and would lose that part if it is killed.
_WHOLE_SESSION = {"CLAUDE_CODE_EAGER_FLUSH": "1"}
_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
_CLOUDS = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")


class Claude(Engine):
    name = "claude"
    title = "Claude Code"
    default_command = ("claude",)
    install_command = "npm install -g @anthropic-ai/claude-code"
    install = f"install it with: {install_command}"
    sign_in_command = "claude auth login"
    sign_in = f"sign in with: {sign_in_command}"
    profiles = frozenset({ProfileKind.RESUMABLE, ProfileKind.STICKY_PROCESS})
    warm = True
    takes_ask_tool = True
    env_allow = (
        *_KEYS,
        *_CLOUDS,
        "ANTHROPIC_BASE_URL",
        "ANTHROPIC_CUSTOM_HEADERS",
        "ANTHROPIC_MODEL",
        "ANTHROPIC_DEFAULT_OPUS_MODEL",
        "ANTHROPIC_DEFAULT_SONNET_MODEL",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL",
    )
    config_names = (".claude",)
    credentials = (".claude/.credentials.json",)
    renewals = (
        Renewal(
            name=".claude/.credentials.json",
            # The tokens are opaque, and the file identifies only the organization.
            fields=(
                TokenField(path=("claudeAiOauth", "accessToken")),
                TokenField(path=("claudeAiOauth", "refreshToken")),
                TokenField(path=("claudeAiOauth", "expiresAt"), kind=Kind.INTEGER),
                TokenField(path=("claudeAiOauth", "scopes"), kind=Kind.TEXTS),
                TokenField(path=("claudeAiOauth", "subscriptionType"), optional=True),
                TokenField(path=("claudeAiOauth", "rateLimitTier"), optional=True),
            ),
            account=(("organizationUuid",),),
        ),
    )

    def signed_in(self, files: Collection[str], env: Collection[str]) -> bool | None:
        if files or any(key in env for key in _KEYS):
            return True
        return None if any(cloud in env for cloud in _CLOUDS) else False

    def read_probe(self, results: Sequence[CallResult]) -> Probe:
        usage, version = printed_by(results, HELP), version_in(printed_by(results, VERSION))
        return probed(
            results,
            HELP,
            "--resume with stream-json",
            resumes="--resume" in usage and "stream-json" in usage,
            offers="--resume",
            features=_features(usage, version),
            effort=tuple(sorted(self.profiles)) if "--effort" in usage else (),
            resident="--input-format" in usage and "--replay-user-messages" in usage,
        )

    def launch(self, turn: Turn) -> Launch:
        argv = _argv(turn, _WITHOUT_ASKING, settings=_KEEPING_SESSIONS | _hooks(turn))
        if turn.handle is not None:
            argv.append(f"--resume={session_of(self, turn.handle)}")
        without_prompt = turn.deferred and DEFERS in turn.probe.features
        stdin = b"" if without_prompt else literal(turn.prompt).encode("utf-8", "replace")
        return Launch(argv=tuple(argv), env=_environment(turn), stdin=stdin, files=_mcp_file(turn))

    def parser(self, turn: Turn) -> ClaudeParser:
        return ClaudeParser(resuming=turn.handle is not None)

    def move_session(self, old_cwd: str, new_cwd: str) -> SessionMove:
        return SessionMove(renamed={_project(old_cwd): _project(new_cwd)})

    def launch_resident(self, turn: Turn) -> Launch:
        asks = turn.mode is Mode.INTERACTIVE and turn.may_ask
        argv = _argv(turn, *_RESIDENT, _WITHOUT_PLANS if asks else _WITHOUT_ASKING)
        return Launch(argv=tuple(argv), env={**_environment(turn), **_WHOLE_SESSION}, files=_mcp_file(turn))

    def gate(self, probe: Probe) -> GateKind:
        return GateKind.PARK if DEFERS in probe.features else GateKind.NONE

    def read_hook(self, payload: Any) -> HookCall | None:
        return read_hook(payload, _TOOLS)

    def allow_call(self) -> HookAnswer:
        return permission_decision("allow")

    def park_call(self, reason: str) -> HookAnswer:
        return permission_decision("defer")

    def model_query(self, turn: Turn) -> ClaudeModels:
        return ClaudeModels()

    def conversation(self, turn: Turn) -> ClaudeConversation:
        return ClaudeConversation(may_ask=turn.may_ask)


def engine() -> Claude:
    return Claude()


def _project(cwd: str) -> str:
    """The folder with the sessions of a working directory."""
    return ".claude/projects/" + re.sub(r"[^A-Za-z0-9]", "-", cwd)


def _features(usage: str, version: str | None) -> tuple[str, ...]:
    if "--settings" not in usage:
        return ()
    numbers = tuple(int(number) for number in re.findall(r"\d+", version or "")[:3])
    return (SETTINGS, DEFERS) if numbers >= _DEFERS_SINCE else (SETTINGS,)


def _hooks(turn: Turn) -> dict[str, Any]:
    """The gate, or the hook that has a question deferred until it is answered."""
    if turn.gate:
        return {"hooks": hook_settings(turn.gate, _GATE_HOOKS)}
    if not turn.ask_tool or DEFERS not in turn.probe.features:
        return {}
    command = shlex.join((*turn.ask_tool[:-1], "--hook", turn.ask_tool[-1]))
    hook = {"type": "command", "command": command, "timeout": START_SEC}
    return {"hooks": {"PreToolUse": [{"matcher": f"mcp__{SERVER}__put_question", "hooks": [hook]}]}}


def _argv(turn: Turn, *options: str, settings: Mapping[str, Any] = _KEEPING_SESSIONS) -> list[str]:
    argv = [*turn.command, *_FORM, *(() if turn.gate else (_SKIPPING,)), *options]
    if SETTINGS in turn.probe.features:
        argv.append(f"--settings={json.dumps(settings, separators=(',', ':'))}")
    if turn.ask_tool:
        argv.append(f"--mcp-config={turn.home}/{_MCP_FILE}")
    if turn.model:
        argv.append(f"--model={turn.model}")
    if turn.effort:
        argv.append(f"--effort={turn.effort}")
    if turn.gate:
        # Of two options with the same name, the last one counts.
        return [*argv, *(each for each in turn.extra_args if each not in _UNGATED), *_GATED]
    return [*argv, *turn.extra_args]


def _mcp_file(turn: Turn) -> dict[str, bytes]:
    # By default, Claude shows a tool of an MCP server only to a model that searches for it.
    servers = mcp_servers(turn, type="stdio", timeout=CALL_SEC * 1000, alwaysLoad=True)
    return {_MCP_FILE: json.dumps(servers).encode()} if servers else {}


def _environment(turn: Turn) -> dict[str, str]:
    defaults = {name: value for name, value in _DEFAULT_ENV.items() if name not in turn.env}
    # As root, Claude refuses to skip permissions unless IS_SANDBOX is set.
    return {**defaults, **_WITHOUT_MENTIONS, "CLAUDE_CONFIG_DIR": f"{turn.home}/.claude", "IS_SANDBOX": "1"}


_QUERY_ID = "models"
_DEFAULT_MODEL = "default"


class ClaudeModels(Dialog):
    """Reads the response to `initialize`, the first control request. Claude answers without a sign-in, too."""

    def begin(self) -> Iterator[Send]:
        request = {"type": "control_request", "request_id": _QUERY_ID, "request": {"subtype": "initialize"}}
        yield Send(data=json.dumps(request).encode() + b"\n")

    def feed(self, stream: Stream, line: bytes) -> Iterator[Send]:
        if stream is Stream.STDERR:
            self._stderr.add(line)
        elif (event := decode_line(line)) is not None:
            self._read(object_at(event, "response"))
        return iter(())

    def _read(self, response: Mapping[str, Any]) -> None:
        if text_at(response, "request_id") != _QUERY_ID:
            return
        listed = object_at(response, "response").get("models")
        if text_at(response, "subtype") == "success" and isinstance(listed, list):
            self._found = distinct(_model(each) for each in objects_at(response, "response", "models"))
        else:
            self._refusal = text_at(response, "error") or "this version does not list its models"


def _model(each: Mapping[str, Any]) -> Model | None:
    id_, levels = text_at(each, "value"), each.get("supportedEffortLevels")
    efforts = [level for level in levels if isinstance(level, str)] if isinstance(levels, list) else []
    return model(each, id_, text_at(each, "displayName"), efforts=efforts, is_default=id_ == _DEFAULT_MODEL)
