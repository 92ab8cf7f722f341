"""The MCP clients that Askback can be added to: where their configuration files are, and what the entry is."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAME = "askback"
_TOOL_TIMEOUT_SEC = 60
"""Every call returns within 45 s."""
_START_TIMEOUT_SEC = 60
"""A start takes a second or two, and longer on a busy machine."""
_TOKEN = "ASKBACK_TOKEN"
_VARIABLES = (_TOKEN, "ASKBACK_URL", "ASKBACK_DATA_DIR", "XDG_DATA_HOME")
"""What we read of the environment, for a client that passes on only what is named. The values stay in the environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpClient:
    """A client with a configuration file. `section` is the key of its MCP servers."""

    path: Callable[[], Path]
    section: str
    entry: Callable[[Sequence[str]], dict[str, Any]]
    toml: bool = False
    in_project: bool = False
    """Its file is in the current folder, which somebody else may have written."""


def _plain(command: Sequence[str], **more: Any) -> dict[str, Any]:
    return {"command": command[0], "args": list(command[1:]), **more}


def _in(variable: str, fallback: str, name: str) -> Callable[[], Path]:
    """A file in the folder that the variable of a client names, or in its usual one."""

    def find() -> Path:
        # Loads a lot, and the names of the clients are part of every help.
        from askback.settings.environment import named_folder

        return named_folder(variable, fallback) / name

    return find


def _claude_desktop() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library/Application Support/Claude/claude_desktop_config.json"
    return _in("XDG_CONFIG_HOME", ".config", "Claude/claude_desktop_config.json")()


CLIENTS: Mapping[str, McpClient] = {
    "claude": McpClient(
        path=_in("CLAUDE_CONFIG_DIR", "", ".claude.json"),
        section="mcpServers",
        # Otherwise the tools are behind a search.
        entry=lambda command: {"type": "stdio", **_plain(command, alwaysLoad=True)},
    ),
    "claude-desktop": McpClient(path=_claude_desktop, section="mcpServers", entry=_plain),
    "codex": McpClient(
        path=_in("CODEX_HOME", ".codex", "config.toml"),
        section="mcp_servers",
        entry=lambda command: _plain(
            command,
            env_vars=list(_VARIABLES),
            startup_timeout_sec=_START_TIMEOUT_SEC,
            tool_timeout_sec=_TOOL_TIMEOUT_SEC,
        ),
        toml=True,
    ),
    "copilot": McpClient(
        path=lambda: Path.home() / ".copilot/mcp-config.json",
        section="mcpServers",
        entry=lambda command: {"type": "local", **_plain(command, tools=["*"])},
    ),
    "cursor": McpClient(path=lambda: Path.home() / ".cursor/mcp.json", section="mcpServers", entry=_plain),
    "gemini": McpClient(
        path=_in("GEMINI_CLI_HOME", "", ".gemini/settings.json"),
        section="mcpServers",
        # It does not pass tokens on, unless they are named. One that is not set becomes empty.
        entry=lambda command: _plain(command, env={_TOKEN: f"${_TOKEN}"}),
    ),
    "kimi": McpClient(
        path=_in("KIMI_CODE_HOME", ".kimi-code", "mcp.json"),
        section="mcpServers",
        entry=lambda command: _plain(
            command, startupTimeoutMs=_START_TIMEOUT_SEC * 1000, toolTimeoutMs=_TOOL_TIMEOUT_SEC * 1000
        ),
    ),
    "opencode": McpClient(
        path=_in("XDG_CONFIG_HOME", ".config", "opencode/opencode.json"),
        section="mcp",
        entry=lambda command: {
            "type": "local",
            "command": list(command),
            "enabled": True,
            "timeout": _TOOL_TIMEOUT_SEC * 1000,
        },
    ),
    "qwen": McpClient(
        path=lambda: Path.home() / ".qwen/settings.json",
        section="mcpServers",
        entry=lambda command: _plain(command, alwaysLoadTools=True),
    ),
    "vscode": McpClient(
        path=lambda: Path.cwd() / ".vscode/mcp.json",
        section="servers",
        entry=lambda command: {"type": "stdio", **_plain(command)},
        in_project=True,
    ),
}


def command_line(further: Sequence[str] = ()) -> list[str]:
    """How a client starts us. With a whole path, because a client may have another `PATH`."""
    program = Path(sys.argv[0]).absolute()
    if program.name == NAME and os.access(program, os.X_OK):
        return [str(program), "mcp", *further]
    return [sys.executable, "-m", NAME, "mcp", *further]
