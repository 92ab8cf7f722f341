"""`askback files`: shows the file store of this database, and changes which one it uses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from askback.cli import options, output
from askback.cli.help import Group
from askback.text.formatting import count

if TYPE_CHECKING:
    from askback.app import App
    from askback.cluster.file_store import ContentReport, FilesReport
    from askback.settings.model import Settings
    from askback.store.pages import StoredRunCount

_YES = click.option("--yes", is_flag=True, help="Apply the change (default: dry run).")

_MOST_SHOWN = 20


@click.group(
    "files",
    cls=Group,
    invoke_without_command=True,
    examples=("askback files status", "askback files status --json", "askback files adopt --yes"),
)
@options.common
async def command(settings: Settings, as_json: bool) -> int:
    """Without a subcommand: the same as status."""
    return await _status(settings, as_json=as_json)


@command.command("status")
@options.common
async def status(settings: Settings, as_json: bool) -> int:
    """Show where the files of runs are stored, and how many runs have theirs there. Nothing is changed.

    It looks whether the files are there. The exit code is 1 if some are missing, or if the store cannot be used or is not the
    one of this database.
    """
    return await _status(settings, as_json=as_json)


@command.command("adopt")
@_YES
@options.common
async def adopt(settings: Settings, as_json: bool, yes: bool) -> int:
    """Use the store at the address of `files` with this database, whatever was used before.

    Needed if the database was restored, or if the id of the store is lost. Never use one store with two databases: each
    removes the files that only the other knows. No server or worker may be running.
    """
    from askback.app.files import files_at, given_address
    from askback.cluster.file_store import adopt

    async def change(app: App) -> dict[str, Any]:
        files, recorded = files_at(given_address(app.settings)), await app.store.file_store()
        place = files.place
        runs = count((await app.store.count_stored_runs()).stored, "waiting or queued run")
        if not yes:
            output.to_stderr(
                f"{place} would be used for the files of {runs}; those that are not there are lost. Repeat it with --yes"
            )
            return {"changed": False, "id": None if recorded is None else recorded.id}
        adopted = await adopt(app.store, files)
        output.to_stderr(f"✔ {place} ({adopted}) belongs to this database now")
        return {"changed": True, "id": adopted}

    return await _change(settings, change, as_json=as_json)


@command.command("forget")
@_YES
@options.common
async def forget(settings: Settings, as_json: bool, yes: bool) -> int:
    """Stop using the file store with this database. The files in the store are not removed.

    Runs whose last turn was on another machine cannot be continued afterwards. No server or worker may be running.
    """

    async def change(app: App) -> dict[str, Any]:
        recorded, runs = await app.store.file_store(), await app.store.count_stored_runs()
        if recorded is None:
            output.to_stderr("this database uses no file store")
            return {"changed": False, "runs": runs.stored}
        affected = f"files of {count(runs.stored, 'waiting or queued run')} are in the store {recorded.id}"
        if not yes:
            output.to_stderr(f"{affected}; only what this machine has of them can be used. Repeat it with --yes")
            return {"changed": False, "runs": runs.stored}
        await app.store.replace_file_store(None)
        output.to_stderr(f"✔ the store is not used any more; {affected}. Remove the setting `files` now")
        return {"changed": True, "runs": runs.stored}

    return await _change(settings, change, as_json=as_json)


async def _change(settings: Settings, change: Callable[[App], Awaitable[dict[str, Any]]], *, as_json: bool) -> int:
    from askback.app import opened

    async with opened(settings, read_only=True) as app:
        await _refuse_used(app)
        result = await change(app)
    if as_json:
        output.print_json(result)
    return 0 if result["changed"] else 1


async def _refuse_used(app: App) -> None:
    """Refuse while a server or worker runs: it uses the store that it was started with."""
    from askback.core.errors import RefusalCode, Unavailable
    from askback.process.locks import is_held

    here = [path for path in (app.settings.data_dir / "programs").glob("program-*.lock") if is_held(path)]
    others = {each.name for each in await app.instances.living()} - {app.instances.name}
    if len(here) > 1 or others:
        message = "programs are using this database; stop every server and worker, and try again"
        raise Unavailable(RefusalCode.STORE_UNUSABLE, message)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Status:
    report: FilesReport
    runs: StoredRunCount
    contents: ContentReport | None
    """None if the store cannot be looked at."""
    others_wait: bool | None
    """Whether programs with another data folder refuse to start until files are stored. None with SQLite."""

    @property
    def good(self) -> bool:
        return self.report.problem is None and not (self.contents and self.contents.missing)


async def _status(settings: Settings, *, as_json: bool) -> int:
    from askback.app import opened

    async with opened(settings, read_only=True) as app:
        status = await _examined(app)
    if as_json:
        output.print_json(_view(status))
    else:
        _print(status)
    return 0 if status.good else 1


async def _examined(app: App) -> _Status:
    from askback.app.files import examine, files_at, given_address
    from askback.app.storage import postgres_address
    from askback.cluster.file_store import report_contents
    from askback.core.errors import Unavailable

    settings, store, contents, others_wait = app.settings, app.store, None, None
    report, runs = await examine(settings, store), await store.count_stored_runs()
    if report.problem is None and report.place is not None:
        try:
            contents = await report_contents(store, files_at(given_address(settings)))
        except Unavailable as error:
            report = replace(report, problem=error.message)
        if postgres_address(settings) is not None:
            others_wait = runs.unfinished > 0 and await store.has_unshared_files()
    return _Status(report=report, runs=runs, contents=contents, others_wait=others_wait)


def _view(status: _Status) -> dict[str, Any]:
    report, runs, contents = status.report, status.runs, status.contents
    return {
        "files": report.place,
        "id": report.expected,
        "found_id": report.found,
        "reachable": report.reachable,
        "matches": report.matches,
        "problem": report.problem,
        "runs": {
            "stored": None if contents is None else runs.stored - len(contents.missing) - contents.not_kept,
            "not_kept": None if contents is None else contents.not_kept,
            "not_stored": runs.not_stored,
            "not_started": runs.not_started,
            "running": runs.running,
        },
        "looked_for": None if contents is None else contents.looked_for,
        "missing": None if contents is None else list(contents.missing),
        "other_machines_wait": status.others_wait,
    }


def _print(status: _Status) -> None:
    report, contents = status.report, status.contents
    if report.problem is not None:
        output.print_line(f"✘ {report.problem}", indent=2)
    elif report.place is None:
        output.print_line("files are in the data folder; `files` is not set")
        return
    elif report.matches:
        output.print_line(f"✔ {report.place} is the store of this database ({report.expected})")
    else:
        output.print_line(f"{report.place} is not used yet; the first server or worker marks it")
    _print_runs(status.runs, contents)
    if contents is not None and contents.missing:
        shown, more = contents.missing[:_MOST_SHOWN], len(contents.missing) - _MOST_SHOWN
        names = ", ".join(shown) + (f" and {more} more" if more > 0 else "")
        output.print_line(f"✘ the store does not have the files of {names}: their sessions are lost", indent=2)
    if status.others_wait:
        output.print_line(
            "a server or worker on this data folder stores what is not in the store yet; until it has done so, programs on"
            " other machines refuse to start"
        )


def _print_runs(runs: StoredRunCount, contents: ContentReport | None) -> None:
    rest = f"{runs.not_stored} not yet, {runs.not_started} have not started"
    if contents is None:
        output.print_line(f"runs that wait or are queued: files were stored for {runs.stored}, {rest}")
    elif contents.looked_for < runs.stored:
        missing = f"{len(contents.missing)} of {contents.looked_for} that were looked for are missing"
        output.print_line(f"runs that wait or are queued: files were stored for {runs.stored}, {missing}; {rest}")
    else:
        stored = runs.stored - len(contents.missing) - contents.not_kept
        output.print_line(f"runs that wait or are queued: {stored} have their files in the store, {rest}")
    if contents is not None and contents.not_kept:
        output.print_line(f"{count(contents.not_kept, 'run')} could not be stored (FILES_NOT_KEPT)")
    if runs.running:
        output.print_line(f"{count(runs.running, 'run')} being executed: stored at the end of the turn")
