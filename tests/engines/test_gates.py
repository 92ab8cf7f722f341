"""What an engine's hook says of a call, and how the hook is configured."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from askback.core.permissions import ToolClass
from askback.core.runs import Mode
from askback.engines.base import Turn
from askback.engines.claude import DEFERS, SETTINGS, engine
from askback.engines.gates import hook_command
from askback.engines.launches import probed

CLAUDE = engine()


def hook(tool: str, given: Any, **rest: Any) -> dict[str, Any]:
    return {"hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": given, "cwd": "/w", **rest}


@pytest.mark.parametrize(
    ("tool", "given", "paths"),
    [
        ("Read", {"file_path": "/w/a"}, ("/w/a",)),
        ("Read", {"file_path": "~/.ssh/id"}, (None,)),
        ("Glob", {"pattern": "**/*.py"}, (".",)),
        ("Glob", {"pattern": "/etc/*"}, (None,)),
        ("Glob", {"pattern": "../*"}, (None,)),
        ("Glob", {"pattern": "*", "path": "/etc"}, ("/etc",)),
        ("Grep", {"pattern": "x", "glob": "~/*"}, (None,)),
        ("Write", {"content": "x"}, ()),
        ("Read", {"file_path": 7}, ()),
    ],
)
def test_the_files_of_a_call(tool: str, given: Any, paths: tuple[str | None, ...]) -> None:
    call = CLAUDE.read_hook(hook(tool, given))
    assert call is not None
    assert call.paths == paths


def test_tools_of_mcp_servers_and_unknown_ones_have_their_class() -> None:
    call = CLAUDE.read_hook(hook("mcp__library__search", {}, agent_id="a"))
    assert call is not None
    assert (call.does.kind, call.mcp, call.is_subagent) == (ToolClass.MCP, "library/search", True)
    other = CLAUDE.read_hook(hook("New", {}))
    assert other is not None
    assert other.does.kind is ToolClass.OTHER


@pytest.mark.parametrize(
    "payload",
    [None, [], {}, {"hook_event_name": "PreToolUse"}, hook("Bash", "x"), hook("Bash", None), hook("Bash", {}, cwd=1)],
)
def test_a_payload_that_is_not_understood_is_no_call(payload: Any) -> None:
    with pytest.raises(ValueError, match="not"):
        CLAUDE.read_hook(payload)


def test_another_event_of_the_engine_is_no_call() -> None:
    assert CLAUDE.read_hook({"hook_event_name": "SessionStart"}) is None


@pytest.mark.contract("G-4")
@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("true",), 0),
        (("false",), 2),
        (("sh", "-c", "exit 2"), 2),
        (("sh", "-c", "kill -9 $$"), 2),
        (("/nowhere/program",), 2),
    ],
)
def test_a_hook_that_fails_in_any_way_denies(command: tuple[str, ...], code: int) -> None:
    ran = subprocess.run(("sh", "-c", hook_command(command)), capture_output=True, check=False)
    assert ran.returncode == code


@pytest.mark.contract("G-1", "E-1")
def test_only_a_run_with_permissions_is_started_in_another_way() -> None:
    probe = probed((), ("--help",), "x", resumes=True, features=(SETTINGS, DEFERS))
    turn: dict[str, Any] = {
        "prompt": "p",
        "mode": Mode.AUTO,
        "attempt_number": 1,
        "command": ("claude",),
        "cwd": "/w",
        "home": "/h",
        "skill_dir": "s",
        "probe": probe,
        "extra_args": ("--dangerously-skip-permissions", "--permission-mode=bypassPermissions"),
    }
    plain, gated = CLAUDE.launch(Turn(**turn)).argv, CLAUDE.launch(Turn(**turn, gate=("gate", "socket"))).argv
    assert plain.count("--dangerously-skip-permissions") == 2
    assert "hooks" not in "".join(plain)
    assert "--dangerously-skip-permissions" not in gated
    assert gated[-2:] == ("--permission-mode=dontAsk", "--setting-sources=")
