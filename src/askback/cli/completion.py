"""What the shell completes: skills, engines and the ids of runs.

Reads the data folder directly, without a server and without the rest of the program: it is called at every Tab.
Completion never prints an error; where something cannot be read, there is nothing to complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from askback.core.runs import Run
    from askback.settings.model import Settings
    from askback.store.sql.connection import Connection

_MAX_RUNS = 50
_Items = list[CompletionItem]
_Complete = Callable[[click.Context, click.Parameter, str], _Items]


def _quiet(find: Callable[[dict[str, Any], str], Iterable[CompletionItem]]) -> _Complete:
    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> _Items:
        with suppress(Exception):
            return [item for item in find(ctx.params, incomplete) if item.type == "dir" or _fits(item, incomplete)]
        return []

    return complete


def _fits(item: CompletionItem, incomplete: str) -> bool:
    return str(item.value).startswith(incomplete)


def _settings(given: dict[str, Any]) -> Settings:
    from askback.settings.files import load

    return load(given.get("config"), data_dir=given.get("data_dir"))


# Skills and engines.


def _skills(given: dict[str, Any], incomplete: str) -> Iterable[CompletionItem]:
    if "/" in incomplete or incomplete.startswith((".", "~")):
        return [CompletionItem(incomplete, type="dir")]
    from askback.app.storage import shelf_of
    from askback.skills.front_matter import FILE
    from askback.skills.library import DEMO, Library

    settings = _settings(given)
    library = Library(settings.data_dir, settings.skills_dir, shelf=shelf_of(settings))
    names = {*library.names(), DEMO.name}
    folders = sorted(path.parent.name for path in Path().glob(f"*/{FILE}"))
    known = [CompletionItem(name, help="skill") for name in sorted(names)]
    here = [CompletionItem(name, help="skill in this folder") for name in folders if name not in names]
    return [*known, *here]


def _engines(given: dict[str, Any], incomplete: str) -> Iterable[CompletionItem]:
    from askback.engines import registry

    return [CompletionItem(name, help=engine.title) for name, engine in registry.engines().items()]


# Runs.


def _runs(given: dict[str, Any], incomplete: str) -> Iterable[CompletionItem]:
    return _found(given)


def _waiting(given: dict[str, Any], incomplete: str) -> Iterable[CompletionItem]:
    return _found(given, "waiting_user")


def _open(given: dict[str, Any], incomplete: str) -> Iterable[CompletionItem]:
    return _found(given, "waiting_user", "running", "queued")


def _found(given: dict[str, Any], *states: str) -> Iterable[CompletionItem]:
    """The newest runs in these states, or in any state."""
    from askback.cli.connection import find
    from askback.settings.environment import client_environment

    settings = _settings(given)
    if given.get("url") or client_environment()[0]:
        server = find(settings, given.get("url"), given.get("token"))
        return [] if server is None else _of_server(server.url, server.token, states)
    from askback.app.storage import DATABASE, postgres_address

    address = postgres_address(settings)
    return _of_folder(settings.data_dir / DATABASE, states) if address is None else _of_postgres(address, states)


def _of_postgres(address: str, states: tuple[str, ...]) -> list[CompletionItem]:
    from askback.store.postgres.connection import PostgresConnection

    with closing(PostgresConnection.open(address, connect_timeout="1")) as connection:
        return _of_connection(connection, states)


def _of_folder(path: Path, states: tuple[str, ...]) -> list[CompletionItem]:
    from askback.store.sqlite.connection import open_reader

    if not path.is_file():
        return []
    with closing(open_reader(path)) as connection:
        return _of_connection(connection, states)


def _of_connection(connection: Connection, states: tuple[str, ...]) -> list[CompletionItem]:
    from askback.core.runs import RunState
    from askback.store.pages import RunFilter
    from askback.store.sql.reads import list_runs

    filters = [RunFilter(state=RunState(state)) for state in states] or [RunFilter()]
    return [_item(run) for each in filters for run in list_runs(connection, each, None, _MAX_RUNS).items]


def _item(run: Run) -> CompletionItem:
    from askback.text.formatting import one_line

    about = f" {run.summary}" if run.summary else ""
    return CompletionItem(run.id, help=one_line(f"{run.state} {run.skill.id}{about}", 60))


def _of_server(url: str, token: str | None, states: tuple[str, ...]) -> list[CompletionItem]:
    from itertools import islice

    from askback.client import Client

    with Client(url, token, timeout_sec=1.0) as client:
        found = [run for state in states or (None,) for run in islice(client.list_runs(state=state), _MAX_RUNS)]
    return [CompletionItem(run.id, help=f"{run.state} {run.skill}") for run in found]


complete_skill = _quiet(_skills)
complete_engine = _quiet(_engines)
complete_run = _quiet(_runs)
complete_waiting_run = _quiet(_waiting)
complete_open_run = _quiet(_open)
