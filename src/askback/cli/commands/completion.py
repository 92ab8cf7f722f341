"""`askback completion`: the script that makes a shell complete commands, options, skills, engines and runs.

What the shell completes is read from the data folder directly, without a server and without the rest of the program: it is
called at every Tab. Completion never prints an error; where something cannot be read, there is nothing to complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from askback.cli import output
from askback.cli.help import Command

if TYPE_CHECKING:
    from askback.settings.model import Settings
    from askback.store.postgres.connection import PostgresConnection
    from askback.store.sqlite.connection import SqliteConnection

_SHELLS = {
    "bash": """echo 'eval "$(askback completion bash)"' >> ~/.bashrc""",
    "zsh": """echo 'eval "$(askback completion zsh)"' >> ~/.zshrc""",
    "fish": "askback completion fish > ~/.config/fish/completions/askback.fish",
}
_VARIABLE = "_ASKBACK_COMPLETE"
_MAX_RUNS = 50
_Items = list[CompletionItem]
_Complete = Callable[[click.Context, click.Parameter, str], _Items]


@click.command(
    "completion",
    cls=Command,
    examples=tuple(_SHELLS.values()),
)
@click.argument("shell", required=False, type=click.Choice(list(_SHELLS)))
def command(shell: str | None) -> int:
    """Print the completion script for SHELL: bash (4.4 or newer), zsh or fish.

    The Tab key then completes commands, options, skills, engines and the ids of runs: for `reply` those that wait, for
    `cancel` those that are not over. Without SHELL: how to set it up.
    """
    if shell is None:
        output.print_line("Run the line for your shell, then open a new terminal:")
        for line in _SHELLS.values():
            output.print_line(f"  {line}")
        return 0
    complete = get_completion_class(shell)
    assert complete is not None, shell
    print(complete(click.get_current_context().find_root().command, {}, "askback", _VARIABLE).source())
    return 0


def _quiet(find: Callable[[dict[str, Any], str], Iterable[CompletionItem]]) -> _Complete:
    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> _Items:
        with suppress(Exception):
            found = find(ctx.params, incomplete)
            return [item for item in found if item.type == "dir" or str(item.value).startswith(incomplete)]
        return []

    return complete


def _settings(given: dict[str, Any]) -> Settings:
    from askback.settings.files import load

    return load(given.get("config"), data_dir=given.get("data_dir"))


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


def _runs(*states: str) -> _Complete:
    """Completes the newest runs in these states, or in any state."""

    def find(given: dict[str, Any], incomplete: str) -> Iterable[CompletionItem]:
        from askback.cli import connection
        from askback.settings.environment import client_environment

        settings = _settings(given)
        if given.get("url") or client_environment()[0]:
            server = connection.find(settings, given.get("url"), given.get("token"))
            return [] if server is None else _of_server(server.url, server.token, states)
        return _of_database(settings, states)

    return _quiet(find)


def _of_database(settings: Settings, states: tuple[str, ...]) -> Iterable[CompletionItem]:
    from askback.core.runs import RunState
    from askback.store.pages import RunFilter
    from askback.store.sql.reads import list_runs
    from askback.text.formatting import one_line

    with closing(_open_database(settings)) as connection:
        for where in [RunFilter(state=RunState(state)) for state in states] or [RunFilter()]:
            for run in list_runs(connection, where, None, _MAX_RUNS).items:
                about = f" {run.summary}" if run.summary else ""
                yield CompletionItem(run.id, help=one_line(f"{run.state} {run.skill.id}{about}", 60))


def _open_database(settings: Settings) -> SqliteConnection | PostgresConnection:
    from askback.app.storage import DATABASE, postgres_address

    if (address := postgres_address(settings)) is not None:
        from askback.store.postgres.connection import PostgresConnection

        return PostgresConnection.open(address, connect_timeout="1")
    from askback.store.sqlite.connection import open_reader

    return open_reader(settings.data_dir / DATABASE)


def _of_server(url: str, token: str | None, states: tuple[str, ...]) -> Iterable[CompletionItem]:
    from askback.client import Client

    with Client(url, token, timeout_sec=1.0) as client:
        for state in states or (None,):
            for run in islice(client.list_runs(state=state), _MAX_RUNS):
                yield CompletionItem(run.id, help=f"{run.state} {run.skill}")


complete_skill = _quiet(_skills)
complete_engine = _quiet(_engines)
complete_run = _runs()
complete_waiting_run = _runs("waiting_user")
complete_open_run = _runs("waiting_user", "running", "queued")
