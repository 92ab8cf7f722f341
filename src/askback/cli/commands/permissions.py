"""`askback permissions`: what a policy says of a tool call, before a run meets it."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from askback.cli import options, output
from askback.cli.help import Group
from askback.core.errors import Invalid, RefusalCode
from askback.core.permissions import (
    PathUse,
    Policy,
    PolicySource,
    SourcedPolicy,
    ToolCall,
    ToolClass,
    evaluate,
    host_of,
    policy_json,
    read_policy,
)
from askback.text.formatting import printable

if TYPE_CHECKING:
    from askback.settings.model import Settings


@click.group("permissions", cls=Group, examples=("askback permissions explain careful -- git push --force",))
def command() -> None:
    """Policies that say which tool calls of an engine run, which need an approval, and which are refused."""


@command.command(
    "explain",
    examples=(
        "askback permissions explain careful -- git push --force",
        "askback permissions explain policy.json -- 'make test && git push'",
        "askback permissions explain workspace --tool edit -- ../notes.txt",
        "askback permissions explain careful --tool fetch -- https://example.com/",
    ),
)
@click.argument("policy", metavar="POLICY")
@click.argument("call", metavar="CALL", nargs=-1)
@click.option(
    "--tool",
    default="shell",
    show_default=True,
    help="shell, edit, read, fetch, mcp, or the engine's own name of a tool.",
)
@options.common
def explain(settings: Settings, as_json: bool, policy: str, call: tuple[str, ...], tool: str) -> int:
    """Say what POLICY (a ready one by its name, or a JSON file) decides of a call, and by which rule.

    CALL is a command, a path, a URL or an MCP tool (`server/tool`). It is not executed.
    """
    found = evaluate((SourcedPolicy(source=PolicySource.RUN, policy=_policy(policy)),), _call(tool, call))
    rule = None if found.rule is None else policy_json(Policy(rules=(found.rule,)))["rules"][0]
    if as_json:
        output.print_json({"decision": found.decision, "rule": rule, "about": found.about})
        return 0
    by = "the default" if found.rule is None else f"the rule {json.dumps(rule, ensure_ascii=False)}"
    output.print_line(f"{found.decision}: by {printable(by)}")
    if found.about is not None:
        output.print_line(f"  because of: {printable(found.about)}")
    return 0


def policy_value(name: str) -> object:
    """A policy on the command line: its name, or the content of a JSON file."""
    if not name.endswith(".json"):
        return name
    try:
        return json.loads(Path(name).read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise Invalid(RefusalCode.INPUT_INVALID, f"the policy {name} cannot be read: {error}") from None


def _policy(name: str) -> Policy:
    policy, problems = read_policy(policy_value(name), "permissions")
    if policy is None or problems:
        raise Invalid(RefusalCode.INPUT_INVALID, f"{name} is not a policy", problems)
    return policy


def _call(tool: str, words: tuple[str, ...]) -> ToolCall:
    text = words[0] if len(words) == 1 else shlex.join(words)
    root = str(Path.cwd().resolve())
    kind = ToolClass(tool) if tool in set(ToolClass) else ToolClass.OTHER
    uses = kind in (ToolClass.EDIT, ToolClass.READ) and bool(words)
    path = PathUse(path=os.path.realpath(text), writes=kind is ToolClass.EDIT)
    return ToolCall(
        tool=tool,
        kind=kind,
        input=text,
        cwd=root,
        root=root,
        command=text if kind is ToolClass.SHELL else None,
        paths=(path,) if uses else (),
        host=host_of(text) if kind is ToolClass.FETCH else None,
        mcp=text if kind is ToolClass.MCP else None,
    )
