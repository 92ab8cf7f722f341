"""How engines ask before they call a tool: the payload of a hook program, what each tool does, and the answers.

The programs of several engines share one form of hooks. A program that exits with 2 denies the call in all of them, so that a
hook that fails in any way must exit with 2. Pure: the program is `process.ask_tool_program`, with `--gate`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from askback.core.permissions import ToolClass

BLOCKED = 2
"""The exit code that denies a call."""
HOOK_SEC = 60
"""When the engine gives up the hook. The program ends itself before."""
_CALL = frozenset({"PreToolUse", "BeforeTool"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """What a tool does, and which fields of its input say with what."""

    kind: ToolClass
    command: str = ""
    path: str = ""
    default_path: str = ""
    """The path of a call that has none."""
    pattern: str = ""
    """A pattern of files, which may name other folders than the path."""
    url: str = ""
    content: str = ""
    """The whole new content of the file."""
    replaced: tuple[str, str] = ("", "")
    """The text that is replaced in the file, and the one in its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCall:
    """A call of a tool that the engine is about to make. `None`: the engine does not say it."""

    tool: str
    input: Mapping[str, Any]
    cwd: str
    does: Tool
    call_id: str | None = None
    mcp: str | None = None
    is_subagent: bool = False

    def text(self, name: str) -> str | None:
        value = self.input.get(name) if name else None
        return value if isinstance(value, str) else None

    @property
    def paths(self) -> tuple[str | None, ...]:
        """The files that the call names, as it names them. None: which files these are is not sure."""
        path, pattern = self.text(self.does.path) or self.does.default_path, self.text(self.does.pattern) or ""
        if not path:
            return ()
        # Engines know shorthands such as `~`.
        unsure = path.startswith("~") or pattern.startswith(("/", "~")) or ".." in pattern
        return (None if unsure else path,)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookAnswer:
    """What the hook program prints, and how it exits."""

    out: str = ""
    error: str = ""
    code: int = 0

    @property
    def message(self) -> dict[str, Any]:
        return {"out": self.out, "error": self.error, "code": self.code}


def denied(reason: str) -> HookAnswer:
    return HookAnswer(error=reason, code=BLOCKED)


SHELL = Tool(kind=ToolClass.SHELL, command="command")
_OTHER, _MCP = Tool(kind=ToolClass.OTHER), Tool(kind=ToolClass.MCP)


def read_hook(payload: object, tools: Mapping[str, Tool]) -> HookCall | None:
    """The call in the payload of a hook; None if the hook was run for something else.

    Raises `ValueError` for anything that is not such a payload.
    """
    if not isinstance(payload, Mapping) or not isinstance(event := payload.get("hook_event_name"), str):
        raise ValueError("not the payload of a hook")
    if event not in _CALL:
        return None
    tool, given, cwd = payload.get("tool_name"), payload.get("tool_input"), payload.get("cwd")
    if not isinstance(tool, str) or not isinstance(given, Mapping) or not isinstance(cwd, str):
        raise ValueError("not a call of a tool")
    call_id = payload.get("tool_use_id")
    server = _mcp(tool)
    return HookCall(
        tool=tool,
        input=given,
        cwd=cwd,
        does=tools.get(tool, _MCP if server else _OTHER),
        call_id=call_id if isinstance(call_id, str) else None,
        mcp=server,
        is_subagent=bool(payload.get("agent_id")),
    )


def _mcp(tool: str) -> str | None:
    """`server/tool` of the tool of an MCP server, by the name that most engines give it."""
    prefix, _, rest = tool.partition("__")
    server, separator, name = rest.partition("__")
    return f"{server}/{name}" if prefix == "mcp" and separator else None


def hook_command(command: Sequence[str]) -> str:
    """The hook as a command line for a shell. Whatever fails in it denies the call."""
    return f"{shlex.join(command)} || {{ code=$?; [ $code = {BLOCKED} ] || echo 'The gate does not work.' >&2; exit {BLOCKED}; }}"


def hook_settings(command: Sequence[str], events: Sequence[str], *, timeout: int = HOOK_SEC) -> dict[str, Any]:
    """The entry `hooks` of settings: the same program for each event."""
    hook = {"type": "command", "command": hook_command(command), "timeout": timeout}
    return {event: [{"matcher": "*", "hooks": [hook]} if event in _CALL else {"hooks": [hook]}] for event in events}


def permission_decision(decision: str, reason: str = "") -> HookAnswer:
    """The answer to a `PreToolUse` hook as JSON."""
    said = {"permissionDecisionReason": reason} if reason else {}
    content = {"hookEventName": "PreToolUse", "permissionDecision": decision, **said}
    return HookAnswer(out=json.dumps({"hookSpecificOutput": content}))
