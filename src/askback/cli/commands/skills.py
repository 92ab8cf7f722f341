"""`askback skills`: lists, installs and checks skills."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from askback.cli import options, output
from askback.cli.help import Group
from askback.text.formatting import count, one_line, printable

if TYPE_CHECKING:
    from askback.settings.model import Settings
    from askback.skills.diagnostics import Problem
    from askback.skills.library import SkillListing
    from askback.skills.package import SkillPackage
    from askback.skills.skill_runner import FieldUse


@click.group(
    "skills",
    cls=Group,
    invoke_without_command=True,
    examples=(
        "askback skills",
        "askback skills new my-skill",
        "askback skills check ./my-skill",
        "askback skills install ./my-skill",
    ),
)
@options.common
def command(settings: Settings, as_json: bool) -> int:
    """Without a subcommand: list the skills that can be run by id."""
    from askback.app import open_library

    library = open_library(settings)
    listings = [*library.installed(), *library.in_folders()]
    heading = f"  {'SKILL':<24} {'VERSION':<8} DESCRIPTION"
    output.print_list(listings, _line, as_json=as_json, document=_view, heading=heading, indent=36)
    if not listings and not as_json:
        output.print_line("no skill is installed; make one, install one, or run one from its folder:")
        for line in ("skills new NAME", "skills install ZIP_OR_FOLDER", "skills install trip-planner", "run FOLDER"):
            output.print_line(f"    askback {line}")
    return 0


@command.command("install", examples=("askback skills install ./my-skill", "askback skills install trip-planner"))
@click.argument("source", type=options.PathName(path_type=Path), metavar="ZIP_OR_FOLDER")
@options.common
def install(settings: Settings, as_json: bool, source: Path) -> int:
    """Install a skill from a zip file or a folder, so that it can be run by id. `trip-planner` is the skill of the demo."""
    from askback.app import open_library
    from askback.cli.data_folder import audited
    from askback.cluster.file_store import refuse_without_files
    from askback.core.access import Action

    package = audited(
        settings,
        Action.SKILL_INSTALL,
        lambda: open_library(settings).install(source),
        lambda made: made.id,
        # Other machines get the package from the file store.
        check=refuse_without_files if settings.files is None else None,
    )
    document = {"id": package.id, "version": package.version, "digest": package.digest}
    message = f"✔ {package.id} is installed; run it with: askback run {package.id}"
    return output.print_done(document, message, as_json=as_json)


@command.command("new", examples=("askback skills new my-skill", "askback skills new skills/release-notes --json"))
@click.argument("name", type=options.PathName(path_type=Path))
@options.common
def new(settings: Settings, as_json: bool, name: Path) -> int:
    """Make a skill that runs at once and asks a question, in a new folder NAME. Then change it to your needs."""
    from askback.cli.help import program
    from askback.skills.starter import INPUT, create_skill

    folder = options.path_of(str(name))
    files = create_skill(folder)
    place = shlex.quote(str(folder) if folder.is_absolute() else f"./{folder}")
    steps = [
        f"{program()} run {place} --engine scripted --input {INPUT}",
        f"{program()} skills check {place}",
        f"{program()} run {place} --input {INPUT}",
    ]
    if as_json:
        output.print_json({"id": folder.name, "folder": str(folder.absolute()), "files": files, "next": steps})
        return 0
    output.print_line(f"✔ {folder.name} is in {place}: {', '.join(files)}")
    output.print_line("  Next: try it without an account, check it after each change, then run it with a model:")
    for step in steps:
        print(f"    {step}")
    return 0


@command.command("check", examples=("askback skills check ./my-skill",))
@click.argument("folder", type=options.PathName(path_type=Path))
@options.common
def check(settings: Settings, as_json: bool, folder: Path) -> int:
    """Report the problems of the skill in FOLDER and how to fix them, and what it takes and returns.

    For a package that was written for Skill-Runner, list its fields: what each means here, or why it is ignored.

    Exit code 2 if it cannot be run.
    """
    from askback.app.known_engines import known_engines
    from askback.cli.script_check import script_problems
    from askback.skills.diagnostics import errors_of
    from askback.skills.package import check_package, read_package

    engines = known_engines(settings)
    problems = check_package(folder, engines.config_names)
    wrong = errors_of(problems)
    package = None if wrong else read_package(folder, config_names=engines.config_names)
    if package is not None:
        problems += (*_unknown_engines(package, list(engines)), *script_problems(package))
        wrong = errors_of(problems)
    if as_json:
        documents = [
            {"severity": each.severity, "where": each.where, "message": each.message, "fix": each.fix}
            for each in problems
        ]
        skill = None if package is None else {"id": package.id, **_facts(package)}
        uses = [
            {"field": use.field, "status": "honoured" if use.honoured else "ignored", "meaning": use.meaning}
            for use in ([] if package is None else _field_uses(package, list(engines)))
        ]
        output.print_json({"ok": not wrong, "skill": skill, "problems": documents, "skill_runner": uses})
        return 2 if wrong else 0
    for each in problems:
        sign = "✘" if each in wrong else "!"
        output.print_line(f"{sign} {printable(each.where)}: {printable(each.message)}")
        if each.fix:
            output.print_line(f"    → {printable(each.fix)}", indent=6)
    if package is None:
        output.print_line(f"✘ {count(len(wrong), 'error')}: the skill cannot be run")
        return 2
    for line in _summary(package, playable=not wrong):
        output.print_line(line, indent=11)
    for line in _field_lines(_field_uses(package, list(engines))):
        output.print_line(line, indent=6)
    return 2 if wrong else 0


def _unknown_engines(package: SkillPackage, known: Sequence[str]) -> tuple[Problem, ...]:
    """A warning only: another machine may have an engine that this one does not know."""
    from askback.skills.diagnostics import short, unknown_name, warning

    listed = {
        "engines": package.engines or (),
        "unsupported_engines": package.unsupported_engines,
        "entrypoint.prompts": tuple(name for name in package.prompts if name != "common"),
    }
    return tuple(
        warning(f"assets/runner.json: {key}", f"{short(name)} {unknown_name(name, known)}")
        for key, names in listed.items()
        for name in names
        if name not in known
    )


def _facts(package: SkillPackage) -> dict[str, Any]:
    return {
        "version": package.version,
        "description": package.description,
        "execution_modes": list(package.execution_modes),
        "engines": None if package.engines is None else list(package.engines),
        "options": dict(package.options),
        "schemas": {
            "input": package.input_schema,
            "parameter": package.parameter_schema,
            "output": package.output_schema,
        },
    }


def _summary(package: SkillPackage, *, playable: bool) -> Iterator[str]:
    version = f" {printable(package.version)}" if package.version else ""
    limits = "can be run" if playable else "can be run, but not by the engine 'scripted'"
    yield f"{'✔' if playable else '✘'} {printable(package.id)}{version} {limits}"
    yield from _listed("inputs", package.input_schema, "anything: it has no input schema")
    if package.parameter_schema is not None:
        yield from _listed("params", package.parameter_schema, "")
    yield f"  modes    {', '.join(package.execution_modes)}"
    yield f"  engines  {', '.join(map(printable, package.engines or ())) or 'any'}"
    if package.options:
        values = {name: each if isinstance(each, str) else json.dumps(each) for name, each in package.options.items()}
        yield f"  options  {', '.join(f'{name}={printable(value)}' for name, value in values.items())}"
    yield from _listed("output", package.output_schema, "text: it has no output schema")


def _field_uses(package: SkillPackage, engines: Sequence[str]) -> list[FieldUse]:
    """The fields of a package for Skill-Runner. A prompt for an engine that does not exist here is ignored."""
    from askback.skills.skill_runner import PROMPTS, field_name

    names = [field_name(PROMPTS, name) for name in package.prompts if name not in (*engines, "common")]
    reason = "there is no engine with this name"
    return [use._replace(honoured=False, meaning=reason) if use.field in names else use for use in package.field_uses]


def _field_lines(uses: Sequence[FieldUse]) -> Iterator[str]:
    if uses:
        yield "  Fields of Skill-Runner:"
    for use in uses:
        what = f"{printable(use.field)}:" if use.honoured else f"{printable(use.field)} is ignored:"
        yield f"    {'✔' if use.honoured else '-'} {what} {printable(use.meaning)}"


def _listed(what: str, schema: Mapping[str, Any] | None, otherwise: str) -> Iterator[str]:
    from askback.skills.field_values import describe

    fields = (schema or {}).get("properties", {})
    required = (schema or {}).get("required", ())
    if not fields:
        yield f"  {what:<8} {otherwise if schema is None else 'as in its schema'}"
    for number, (name, field) in enumerate(fields.items()):
        optional = "" if name in required else ", optional"
        yield f"  {'' if number else what:<8} {printable(name)}{optional}: {one_line(describe(field), 100)}"


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
