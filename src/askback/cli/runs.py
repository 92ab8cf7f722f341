"""The runs that a command works on, of a server or of the data folder, and the run that a user means.

Imported for the help of these commands, so it must import quickly.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from askback.cli import connection, options
from askback.core.errors import Invalid, NotFound, RefusalCode
from askback.core.runs import Run, RunState
from askback.text.formatting import one_line

if TYPE_CHECKING:
    from askback.app import App
    from askback.cli.data_folder import LocalRuns
    from askback.client import AsyncClient
    from askback.settings.model import Settings

    Runs: TypeAlias = AsyncClient | LocalRuns
    """The runs of a server, or of the data folder."""

_ID_LENGTH = 16
_MAX_SHOWN = 10


def on_runs(function: Callable[..., Any]) -> Callable[..., Any]:
    """For a command on runs: adds the common options, `--url` and `--token`, and passes `runs`.

    They are those of the server in the options or on the data folder, else of the data folder itself.
    """

    @functools.wraps(function)
    async def with_runs(*args: Any, settings: Settings, url: str | None, token: str | None, **rest: Any) -> Any:
        if connection.find(settings, url, token) is not None:
            async with connection.client_of(settings, url, token) as client:
                return await function(*args, runs=client, **rest)
        from askback.cli.data_folder import local_runs

        async with local_runs(settings) as runs:
            return await function(*args, runs=runs, **rest)

    return options.common(connection.server_options(with_runs))


async def full_id(runs: Runs, given: str) -> str:
    """The id of the only run that starts with `given`. If there is none, `given` itself, which is then not found."""
    if not given:
        raise NotFound(RefusalCode.RUN_NOT_FOUND, "there is no run ''")
    if len(given) >= _ID_LENGTH:
        return given
    found: list[str] = []
    async for run in runs.list_runs(page_size=200):
        if run.id.startswith(given):
            found.append(run.id)
        elif run.id < given:
            # Ids sort by time, and the newest run comes first.
            break
    if len(found) > 1:
        more = [f"and {len(found) - _MAX_SHOWN} more"] if len(found) > _MAX_SHOWN else []
        message = f"{len(found)} runs start with {given!r}; give more of the id"
        raise Invalid(RefusalCode.INPUT_INVALID, message, [*found[:_MAX_SHOWN], *more])
    return found[0] if found else given


async def find_run(app: App, given: str) -> Run:
    """A run of the data folder. Raises `NotFound` with the runs that could be continued instead."""
    from askback.cli.data_folder import LocalRuns

    try:
        return await app.store.get(await full_id(LocalRuns(app), given))
    except NotFound as error:
        lines = [resumable_line(run) for run in await resumable(app)]
        hint = "these can be continued:" if lines else "no run can be continued"
        raise NotFound(error.code, f"there is no run {given!r}; {hint}", lines) from None


async def resumable(app: App) -> list[Run]:
    """The runs that wait for an answer, and those whose program has ended."""
    from askback.store.pages import RunFilter

    pending = await app.store.pending(limit=_MAX_SHOWN)
    runs = list(pending.items)
    for state in (RunState.RUNNING, RunState.QUEUED):
        page = await app.store.list_runs(RunFilter(state=state), limit=_MAX_SHOWN)
        runs += [run for run in page.items if not await app.service.owned_elsewhere(run)]
    return runs[:_MAX_SHOWN]


def resumable_line(run: Run) -> str:
    if run.pending_interaction is None:
        return f"{run.id} ({run.skill.id}) was interrupted"
    return f"{run.id} ({run.skill.id}) waits for an answer: {one_line(run.pending_interaction.heading, 60)}"
