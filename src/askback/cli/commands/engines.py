"""`askback engines`: the engines of this machine, how to install what is missing, their models, and a check of sessions."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from askback.cli import options, output
from askback.cli.commands.completion import complete_engine
from askback.cli.exit_codes import FAILED
from askback.cli.help import Group
from askback.core.permissions import GateKind
from askback.core.runs import ProfileKind
from askback.text.formatting import one_line, printable

if TYPE_CHECKING:
    from askback.catalog.engines import EngineReport
    from askback.settings.model import Settings
    from askback.wire.server import EngineModel


@click.group(
    "engines",
    cls=Group,
    invoke_without_command=True,
    examples=(
        "askback engines",
        "askback engines --refresh            # after an update, or a slow first look",
        "askback engines models codex",
        "askback engines check my-agent       # does it remember after a kill?",
    ),
)
@click.option("--refresh", is_flag=True, help="Ask every program again, not only those that have changed.")
@options.common
async def command(settings: Settings, as_json: bool, refresh: bool) -> int:
    """Without a subcommand: list every engine: installed or not, its version, how its runs wait, signed in or not,
    and what to do.

    Each program is asked once for its version and abilities, and again when it has changed.
    """
    from askback.app import opened
    from askback.catalog.agents import unconfigured
    from askback.cli.terminal.live import probing_shown

    async with opened(settings, read_only=True) as app:
        engines = app.service.engines
        if as_json:
            return output.print_list(await engines.views(refresh=refresh), str, as_json=True)
        with probing_shown(engines):
            reports = await engines.reports(refresh=refresh)
    heading = f"  {'ENGINE':<10} VERSION, HOW ITS RUNS WAIT, SIGN-IN"
    output.print_list(reports, _lines, as_json=False, heading=heading, indent=6)
    for name, reason in engines.broken.items():
        output.print_line(f"✘ {name}: {printable(reason)}")
    found = unconfigured([report.setup.command for report in reports], engines.names)
    if found:
        output.print_line("")
        output.print_line(
            "These programs may speak ACP too. To use one, put its lines into your askback.toml, then run"
        )
        output.print_line("askback engines check NAME")
    for name, words in found.items():
        output.print_line("")
        output.print_line(f'[engines.{name}]\nprotocol = "acp"\ncommand = {json.dumps(words)}')
    return 0


@command.command("models", examples=("askback engines models codex", "askback engines models claude --json"))
@click.argument("name", metavar="ENGINE", shell_complete=complete_engine)
@options.common
async def models(settings: Settings, as_json: bool, name: str) -> int:
    """List the models that a run on ENGINE can name, as its program lists them."""
    from askback.app import opened
    from askback.cli.terminal.live import probing_shown
    from askback.wire.base import plain

    async with opened(settings, read_only=True) as app:
        with nullcontext() if as_json else probing_shown(app.service.engines):
            found = await app.service.engines.models(name)
    if as_json:
        output.print_json(plain(found))
        return 0
    if found.models is None:
        output.to_stderr(f"askback: no list of models: {one_line(found.reason or '', 500)}")
        return FAILED
    return output.print_list(found.models, _model_line, as_json=False, indent=6)


@command.command("check", examples=("askback engines check my-agent", "askback engines check copilot --yes"))
@click.argument("name", metavar="ENGINE", shell_complete=complete_engine)
@click.option("--yes", is_flag=True, help="Do not ask before.")
@options.common
async def check(settings: Settings, as_json: bool, name: str, yes: bool) -> int:
    """Try whether the sessions of ENGINE survive its process: only then do its runs wait without one.

    Two short turns with your account, which cost a few thousand tokens: the program gets a word to remember and is killed, and a new
    process is asked for it. The finding is stored, and counts for this version of the program.
    """
    from askback.app import opened

    async with opened(settings, read_only=True) as app:
        if not yes:
            output.to_stderr(f"askback: this runs two short turns of {printable(name)} with your account.")
            output.to_stderr("Each sends its whole system prompt, so it costs some thousand tokens.")
        if not yes and not as_json:
            click.confirm("Continue?", abort=True, err=True)
        found = await app.service.engines.check(name)
    if as_json:
        output.print_json(asdict(found) | {"at": found.at.isoformat()})
    else:
        kind = ProfileKind.RESUMABLE if found.resumes else ProfileKind.STICKY_PROCESS
        output.print_line(
            f"{'✔' if found.resumes else '✘'} {printable(name)} is {kind}: {one_line(found.reason, 1000)}"
        )
    return 0 if found.resumes else FAILED


def _model_line(model: EngineModel) -> str:
    about = [each for each in (model.title, model.description) if each and each != model.id]
    if model.is_default:
        about.append("the default")
    if model.efforts:
        about.append(f"effort: {', '.join(model.efforts)}")
    return f"{printable(model.id):<28} {one_line(' · '.join(about), 300)}".rstrip()


def _lines(report: EngineReport) -> list[str]:
    from askback.catalog.engines import can_be_warm, engine_advice

    engine, found = report.engine, report.installed
    if found is None:
        return [f"✘ {engine.name:<10} not installed ({report.setup.command[0]})", f"    {engine.install}"]
    probe = found.probe
    signed = {True: ", signed in", False: ", not signed in", None: ""}[found.signed_in]
    sign = "✔" if probe.kind is ProfileKind.RESUMABLE and found.signed_in is not False else "!"
    kind = f"{probe.kind}, can be warm" if can_be_warm(engine, probe) else str(probe.kind)
    if (gate := engine.gate(probe)) is not GateKind.NONE:
        kind += f", gate: {gate}"
    lines = [f"{sign} {engine.name:<10} {printable(probe.version or 'unknown version')}, {kind}{signed}"]
    if probe.kind is not ProfileKind.RESUMABLE:
        lines.append(f"    {one_line(probe.reason, 200)}")
    advice = engine_advice(report)
    return [*lines, f"    → {advice}"] if advice else lines
