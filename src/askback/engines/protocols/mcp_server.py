"""The MCP server with the ask tool, in the forms in which engines configure one. Ours is one beside those of the user."""

from __future__ import annotations

from typing import Any

from askback.engines.base import Turn

SERVER = "askback"
START_SEC = 60
CALL_SEC = 7 * 24 * 3600
"""How long a call may take. In a process that stays, it waits for the user. Askback ends the wait long before."""


def command_and_args(turn: Turn) -> dict[str, Any]:
    """The form of most engines."""
    return {"command": turn.ask_tool[0], "args": list(turn.ask_tool[1:])}


def mcp_servers(turn: Turn, **rest: Any) -> dict[str, Any]:
    """The entry `mcpServers` of settings, empty if the engine gets no ask tool."""
    return {"mcpServers": {SERVER: {**command_and_args(turn), **rest}}} if turn.ask_tool else {}
