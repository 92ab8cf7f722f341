"""`askback engines`: what is installed, what it can do, and what to do about what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from askback.cli import options, output
from askback.cli.text import printable
from askback.core.runs import ProfileKind

if TYPE_CHECKING:
    from askback.engines_here import EngineReport
    from askback.settings import Settings


@click.command("engines", short_help="Show each engine: found or not, version, what it can do.")
@options.common
def command(settings: Settings, as_json: bool) -> int:
    """Show each engine: found or not, its version, how its runs wait, signed in or not, and what to do about it."""
    from askback.bootstrap import opened
    from askback.cli.program import in_program

    async def main() -> int:
        async with opened(settings) as app:
            reports = await app.service.engines.reports()
            broken = app.service.engines.broken
        if as_json:
            documents = [view(report) for report in reports]
            documents += [{"name": name, "found": False, "advice": reason} for name, reason in broken.items()]
            output.print_json(documents)
            return 0
        for report in reports:
            print("\n".join(lines(report)))
        for name, reason in broken.items():
            print(f"✘ {name}: {printable(reason)}")
        return 0

    return in_program(main)


def view(report: EngineReport) -> dict[str, Any]:
    """An engine as scripts see it."""
    found = report.installed
    return {
        "name": report.engine.name,
        "title": report.engine.title,
        "found": found is not None,
        "path": found.path if found else None,
        "version": found.probe.version if found else None,
        "interactive_profile": {"kind": found.probe.kind, "reason": found.probe.reason} if found else None,
        "signed_in": found.signed_in if found else None,
        "advice": advice(report),
    }


def advice(report: EngineReport) -> str | None:
    """The one thing that would mend what is missing."""
    if report.installed is None:
        return report.engine.install
    return report.engine.sign_in if report.installed.signed_in is False else None


def lines(report: EngineReport) -> list[str]:
    """An engine as people see it."""
    engine, found = report.engine, report.installed
    if found is None:
        return [f"✘ {engine.name:<10} not found ({report.setup.command[0]})", f"    {engine.install}"]
    probe = found.probe
    signed = {True: ", signed in", False: ", not signed in", None: ""}[found.signed_in]
    sign = "✔" if probe.kind is ProfileKind.RESUMABLE else "!"
    told = [
        f"{sign} {engine.name:<10} {printable(probe.version or 'unknown version')}, {probe.kind}{signed}",
        f"    {printable(probe.reason)}",
    ]
    mend = advice(report)
    return [*told, f"    → {mend}"] if mend else told
