"""What engine modules share for probes and launches: reading probe calls, and the MCP server of the ask tool."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from askback.core.runs import ProfileKind
from askback.engines.base import VERSION, CallResult, Probe, Turn
from askback.engines.protocols.json_lines import plain

_NUMBER = re.compile(r"(?<!\d)\d++(?:\.\d++)++\S*")

SERVER = "askback"
"""The name of our MCP server, which is one beside those of the user."""
START_SEC = 60
CALL_SEC = 7 * 24 * 3600
"""How long a call may take. In a process that stays, it waits for the user. Askback ends the wait long before."""


def printed_by(results: Sequence[CallResult], args: tuple[str, ...]) -> str:
    """What a call printed on stdout; empty if it failed or did not end in time."""
    return next((result.stdout for result in results if result.args == args and result.exit_code == 0), "")


def printed_at_all(results: Sequence[CallResult], args: tuple[str, ...]) -> str:
    """What a call printed on either stream, without colours, for programs that print their help on stderr."""
    ended = (result for result in results if result.args == args and result.exit_code == 0)
    return plain("".join(result.stdout + result.stderr for result in ended))


def version_in(text: str) -> str | None:
    number = _NUMBER.search(text)
    return number[0] if number else None


def probed(
    results: Sequence[CallResult],
    args: tuple[str, ...],
    wanted: str,
    *,
    resumes: bool,
    offers: str = "",
    features: tuple[str, ...] = (),
    effort: tuple[ProfileKind, ...] = (),
    resident: bool = False,
) -> Probe:
    """The probe of a program that resumes sessions if the call with `args` shows what is wanted.

    `offers` is what it shows then, in fewer words.
    """
    call = " ".join(args)
    called = next((result for result in results if result.args == args), None)
    if resumes:
        reason = f"its {call} offers {offers or wanted}"
    elif called is None or called.exit_code is None:
        reason = f"its {call} did not end in time"
    elif called.exit_code:
        reason = f"its {call} ended with {called.exit_code}"
    else:
        reason = f"its {call} does not offer {wanted}"
    return Probe(
        kind=ProfileKind.RESUMABLE if resumes else ProfileKind.STICKY_PROCESS,
        reason=reason,
        offers=(offers or wanted) if resumes else None,
        version=version_in(printed_by(results, VERSION)),
        features=features,
        effort=effort,
        resident=resident,
    )


def command_and_args(turn: Turn) -> dict[str, Any]:
    """The command of the ask tool, in the form of most engines."""
    return {"command": turn.ask_tool[0], "args": list(turn.ask_tool[1:])}


def mcp_servers(turn: Turn, **rest: Any) -> dict[str, Any]:
    """The entry `mcpServers` of settings, empty if the engine gets no ask tool."""
    return {"mcpServers": {SERVER: {**command_and_args(turn), **rest}}} if turn.ask_tool else {}
