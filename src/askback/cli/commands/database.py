"""`askback database`: the tables in PostgreSQL, whether they fit this version, and the move of a data folder into them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from askback.cli import options, output
from askback.cli.help import Group
from askback.text.formatting import count

if TYPE_CHECKING:
    from askback.core.instances import Instance
    from askback.settings.model import Settings
    from askback.store.postgres.schema import SchemaStatus

_SQLITE = "runs are in an SQLite file in the data folder; it is created and upgraded when it is opened"


@click.group(
    "database",
    cls=Group,
    invoke_without_command=True,
    examples=(
        "askback database status",
        "askback database upgrade",
        "askback database import ~/.local/share/askback",
    ),
)
@options.common
def command(settings: Settings, as_json: bool) -> int:
    """Without a subcommand: the same as status."""
    return _status(settings, as_json=as_json)


@command.command("status")
@options.common
def status(settings: Settings, as_json: bool) -> int:
    """Show whether the tables fit this version, and which programs use them. The exit code is 1 if they do not fit."""
    return _status(settings, as_json=as_json)


@command.command("upgrade")
@click.option(
    "--force",
    is_flag=True,
    help="Also take steps that programs of an older version cannot work with. They stop their work within seconds.",
)
@options.common
def upgrade(settings: Settings, as_json: bool, force: bool) -> int:
    """Create the tables, or upgrade those of an older version. Does nothing if they fit.

    Older programs keep working: a step that they could not work with waits until none of them is alive.
    """
    from askback.app.storage import postgres_address

    address = postgres_address(settings)
    if address is None:
        return _print_sqlite(settings, as_json=as_json)
    from askback.store import postgres

    done = postgres.upgrade(address, force=force)
    if as_json:
        blocked_by = [each.name for each in done.blocked_by]
        view = _view(done.after, postgres.living_instances(address))
        output.print_json({**view, "upgraded_from": done.before.found, "blocked_by": blocked_by})
        return 0
    output.to_stderr(_done(done.before, done.after))
    if done.blocked_by:
        names = ", ".join(f"{each.name} ({each.facts.version})" for each in done.blocked_by)
        output.to_stderr(f"{_waiting(done.after)} for programs of an older version to end: {names}")
        output.to_stderr("upgrade these, and run the command again")
    return 0


def _done(before: SchemaStatus, after: SchemaStatus) -> str:
    if before.found == after.found and before.queue == after.queue:
        return "the tables fit already; nothing was changed"
    if before.found == 0:
        return f"the tables were created: format {after.found}"
    if before.found == after.found:
        return f"the tables were upgraded for the queue: format {after.found}"
    return f"the tables were upgraded from format {before.found}: format {after.found}"


def _waiting(now: SchemaStatus) -> str:
    count = len(now.waiting)
    return "1 more step waits" if count == 1 else f"{count} more steps wait"


@command.command("import")
@click.argument("folder", type=options.PathName(path_type=Path))
@options.common
def import_(settings: Settings, as_json: bool, folder: Path) -> int:
    """Move the data folder FOLDER, which has an SQLite file, into the empty database of the settings.

    Runs, questions, tokens, sessions, skills and keys become rows; the files of runs stay in the folder. No program may
    use the folder meanwhile. Afterwards, use it with the database.
    """
    from askback.app.storage import DATABASE, postgres_address, record_kinds

    address = postgres_address(settings)
    if address is None:
        raise click.UsageError("name the PostgreSQL database with ASKBACK_DATABASE or the setting `database`")
    source = options.path_of(str(folder))
    _refuse_used(source)
    from askback.store.postgres.importing import Source, import_folder

    given = Source(
        folder=source,
        database=source / DATABASE,
        runs=settings.runs_dir or source / "runs",
        record_kinds=record_kinds(),
    )
    done = import_folder(given, address, _progress if sys.stderr.isatty() else lambda *_: None)
    if as_json:
        output.print_json({"folder": str(source), "rows": dict(done.rows), "already_imported": done.already})
        return 0
    if done.already:
        output.to_stderr("everything was imported before; the folder is marked now")
    else:
        output.to_stderr(f"✔ imported {count(done.rows['runs'], 'run')} and {count(done.rows['tokens'], 'token')}")
    output.to_stderr(f"start the server on the same folder, with the database: askback serve --data-dir {source}")
    if settings.files is not None:
        output.to_stderr("it stores the files of unfinished runs first; until then, other machines cannot be used")
    return 0


def _refuse_used(folder: Path) -> None:
    """Refuse while a program is registered in the folder, even if it does not have the database open."""
    from askback.process.locks import is_held
    from askback.store.sqlite.moving import in_use

    if any(is_held(path) for path in (folder / "programs").glob("program-*.lock")):
        raise in_use(folder)


def _progress(table: str, copied: int, total: int) -> None:
    output.to_stderr(f"\r\x1b[K{table}: {copied} of {total}", end="\n" if copied == total else "")


def _status(settings: Settings, *, as_json: bool) -> int:
    from askback.app.storage import postgres_address

    address = postgres_address(settings)
    if address is None:
        return _print_sqlite(settings, as_json=as_json)
    from askback.store import postgres
    from askback.store.postgres import schema

    now, living = postgres.status(address), postgres.living_instances(address)
    if as_json:
        output.print_json(_view(now, living))
        return 0 if now.fits else 1
    if not now.fits:
        raise schema.misfit(address, now)
    newer = f", newer than this Askback ({now.known})" if now.found > now.known else ""
    output.print_line(f"PostgreSQL {now.server}, format {now.found}{newer}: the tables fit")
    if now.oldest:
        output.print_line(f"programs must know format {now.oldest} or newer")
    if now.waiting:
        output.print_line(f"{_waiting(now)} for `askback database upgrade`, once no older program is alive")
    for each in living:
        facts = each.facts
        known = f"knows format {facts.format}" if facts.format else "does not say what it knows"
        output.print_line(f"  {each.name}  {facts.kind}  Askback {facts.version}, {known}  {facts.host}")
    return 0


def _view(found: SchemaStatus, living: Sequence[Instance]) -> dict[str, Any]:
    return {
        "database": "postgresql",
        "server": found.server,
        "format": found.found,
        "needed_format": found.needed,
        "known_format": found.known,
        "oldest_usable_format": found.oldest,
        "queue_format": found.queue[-1] if found.queue else None,
        "needed_queue_format": found.queue_known[-1],
        "waiting_steps": list(found.waiting),
        "programs": [
            {
                "name": each.name,
                "kind": each.facts.kind,
                "host": each.facts.host,
                "version": each.facts.version,
                "format": each.facts.format or None,
                "queue_format": each.facts.queue_format or None,
            }
            for each in living
        ],
        "fits": found.fits,
    }


def _print_sqlite(settings: Settings, *, as_json: bool) -> int:
    document = {"database": "sqlite", "data_dir": str(settings.data_dir), "fits": True}
    return output.print_done(document, _SQLITE, as_json=as_json)
