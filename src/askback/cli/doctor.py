"""`askback doctor`: is this machine fit, and what to do where it is not."""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from askback.cli import options, output
from askback.cli.text import count, printable, size

if TYPE_CHECKING:
    from askback.bootstrap import App
    from askback.process.confinement import Confinement
    from askback.settings import Settings

_LOW_DISK = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`ok` is None where something is worth knowing but not wrong."""

    what: str
    ok: bool | None
    message: str
    advice: str = ""


@click.command("doctor", short_help="Say whether this machine is fit, and what to do if it is not.")
@options.common
def command(settings: Settings, as_json: bool) -> int:
    """Look at the database, the disk, the engines and how processes can be watched. Exit 1 if something is wrong."""
    from askback.bootstrap import opened
    from askback.cli.program import in_program
    from askback.core.errors import Unavailable

    async def main() -> int:
        findings = [_python(), _disk(settings.data_dir), *_access(settings.data_dir)]
        try:
            async with opened(settings) as app:
                findings += [finding async for finding in _examine(app)]
        except Unavailable as error:
            findings.append(Finding(what="database", ok=False, message=error.message))
        _print(findings, as_json=as_json)
        return 1 if any(finding.ok is False for finding in findings) else 0

    return in_program(main)


async def _examine(app: App) -> AsyncIterator[Finding]:
    from askback.core.errors import Unavailable

    try:
        yield Finding(what="database", ok=True, message=await app.store.check())
    except Unavailable as error:
        yield Finding(what="database", ok=False, message=error.message)
    yield Finding(what="slots", ok=True, message=f"{count(app.settings.slots, 'engine')} at a time")
    for folder in app.settings.skills_dir:
        if not options.exists(folder):
            advice = "make it, or take it out of skills_dir in the settings"
            yield Finding(what="skills", ok=False, message=f"there is no folder {folder}", advice=advice)
    yield _sandbox(await app.spawner.confinement())
    reports = await app.service.engines.reports()
    for report in reports:
        yield _engine(report.engine.name, report.installed is not None, report.engine.install)
    for name, reason in app.service.engines.broken.items():
        advice = "mend the package that offers it, or uninstall it"
        yield Finding(what=f"engine {name}", ok=False, message=reason, advice=advice)
    if not any(report.installed and report.engine.chosen_by_default for report in reports):
        yield Finding(
            what="engines",
            ok=None,
            message="no engine is installed that works with a model; 'scripted' plays scripts only",
        )


def _engine(name: str, found: bool, install: str) -> Finding:
    if found:
        return Finding(what=f"engine {name}", ok=True, message="found; more with: askback engines")
    return Finding(what=f"engine {name}", ok=None, message="not found", advice=install)


def _python() -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    return Finding(what="python", ok=sys.version_info >= (3, 11), message=version)


def _disk(data_dir: Path) -> Finding:
    folder = next(parent for parent in (data_dir, *data_dir.parents) if options.exists(parent))
    free = shutil.disk_usage(folder).free
    advice = "" if free >= _LOW_DISK else "make room, or name another folder with --data-dir"
    return Finding(what="disk", ok=free >= _LOW_DISK, message=f"{size(free)} free for {data_dir}", advice=advice)


def _access(data_dir: Path) -> Iterator[Finding]:
    """Looked at before the folder is opened, which withdraws what it can."""
    from askback.process.privacy import Access, access_of_others

    if not options.exists(data_dir):
        return
    access = access_of_others(data_dir)
    if access is Access.NONE:
        yield Finding(what="data folder", ok=True, message="closed to other users")
    else:
        message = f"other users can {access} in {data_dir}"
        wrong = False if access is Access.WRITE else None
        yield Finding(what="data folder", ok=wrong, message=message, advice=f"chmod 700 {data_dir}")


def _sandbox(confinement: Confinement) -> Finding:
    words = {
        "bubblewrap": "bubblewrap: engines see their own run and the system's programs, and nothing outlives its run",
        "guardian": "guardian: nothing of an engine outlives its run, but it may do what you may do",
        "none": "none: an engine may do what you may do, and only its process group is ended",
    }
    message = words[confinement.in_force] + (f"; {confinement.why_not_more}" if confinement.why_not_more else "")
    return Finding(what="sandbox", ok=None if confinement.advice else True, message=message, advice=confinement.advice)


def _print(findings: list[Finding], *, as_json: bool) -> None:
    if as_json:
        healthy = all(finding.ok is not False for finding in findings)
        output.print_json({"ok": healthy, "findings": [asdict(each) for each in findings]})
        return
    for finding in findings:
        sign = {True: "✔", False: "✘", None: "·"}[finding.ok]
        print(f"{sign} {finding.what:<18} {printable(finding.message)}")
        if finding.advice:
            print(f"  {'':<18} → {printable(finding.advice)}")
