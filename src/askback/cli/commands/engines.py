"""`askback engines`: the engines of this machine, how to install what is missing, and their models."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import click

from askback.cli import options, output
from askback.cli.commands.completion import complete_engine
from askback.cli.exit_codes import FAILED
from askback.cli.help import Group
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
    lines = [f"{sign} {engine.name:<10} {printable(probe.version or 'unknown version')}, {kind}{signed}"]
    if probe.kind is not ProfileKind.RESUMABLE:
        lines.append(f"    {one_line(probe.reason, 200)}")
    advice = engine_advice(report)
    return [*lines, f"    → {advice}"] if advice else lines
