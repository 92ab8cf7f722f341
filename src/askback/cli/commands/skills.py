"""`askback skills`: lists, installs and checks skills."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from askback.cli import options, output
from askback.text.formatting import count, one_line, printable

if TYPE_CHECKING:
    from askback.settings import Settings
    from askback.skills.library import SkillListing


@click.group("skills", invoke_without_command=True, short_help="List, install and check skills.")
@options.common
@click.pass_context
def command(ctx: click.Context, settings: Settings, as_json: bool) -> int:
    """Without a subcommand: list the skills that can be run by id."""
    if ctx.invoked_subcommand is not None:
        return 0
    from askback.bootstrap import open_library

    library = open_library(settings)
    listings = [*library.installed(), *library.in_folders()]
    if as_json:
        output.print_json([_view(listing) for listing in listings])
        return 0
    for listing in listings:
        print(_line(listing))
    if not listings:
        print("no skill is installed; install one with: askback skills install ZIP_OR_FOLDER,")
        print("or run one from its folder: askback run FOLDER")
    return 0


@command.command("install")
@click.argument("source", type=click.Path(path_type=Path), metavar="ZIP_OR_FOLDER")
@options.common
def install(settings: Settings, as_json: bool, source: Path) -> int:
    """Install a skill from a zip file or a folder, so that it can be run by id."""
    from askback.bootstrap import open_library

    package = open_library(settings).install(source)
    if as_json:
        output.print_json({"id": package.id, "version": package.version, "digest": package.digest})
    else:
        print(f"✔ {package.id} is installed; run it with: askback run {package.id}")
    return 0


@command.command("check")
@click.argument("folder", type=click.Path(path_type=Path))
@options.common
def check(settings: Settings, as_json: bool, folder: Path) -> int:
    """Report the problems of the skill in FOLDER, and how to fix them. Exit code 2 if it cannot be run."""
    from askback.engines import registry
    from askback.skills.diagnostics import errors_of
    from askback.skills.package import check_package

    problems = check_package(folder, registry.engines().config_names)
    wrong = errors_of(problems)
    if as_json:
        documents = [
            {"severity": each.severity, "where": each.where, "message": each.message, "mend": each.fix}
            for each in problems
        ]
        output.print_json({"ok": not wrong, "problems": documents})
        return 2 if wrong else 0
    for each in problems:
        sign = "✘" if each in wrong else "!"
        print(f"{sign} {printable(each.where)}: {printable(each.message)}")
        if each.fix:
            print(f"    → {printable(each.fix)}")
    verdict = (
        f"✘ {count(len(wrong), 'error')}: the skill cannot be run"
        if wrong
        else f"✔ {printable(str(folder))} can be run"
    )
    print(verdict)
    return 2 if wrong else 0


def _view(listing: SkillListing) -> dict[str, Any]:
    package = listing.package
    return {
        "id": listing.id,
        "source": listing.source,
        "version": package.version if package else None,
        "description": package.description if package else None,
        "execution_modes": list(package.execution_modes) if package else [],
        "problem": listing.problem,
    }


def _line(listing: SkillListing) -> str:
    if listing.package is None:
        return f"✘ {printable(listing.id):<24} {printable(listing.problem or 'cannot be read')}"
    package = listing.package
    return f"✔ {listing.id:<24} {package.version or '-':<8} {one_line(package.description, 80)}"
