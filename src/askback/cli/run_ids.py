"""The run that a user means: by its id, by a unique prefix of it, or from the list of runs that can be continued."""

from __future__ import annotations

from typing import TYPE_CHECKING

from askback.core.errors import Invalid, NotFound, RefusalCode
from askback.core.runs import Run, RunState
from askback.store.pages import RunFilter
from askback.text.formatting import one_line

if TYPE_CHECKING:
    from askback.app import App
    from askback.cli.local_runs import LocalRuns
    from askback.client import AsyncClient
    from askback.runs.service import Service

_ID_LENGTH = 16
_MAX_SHOWN = 10


async def full_id(runs: AsyncClient | LocalRuns, given: str) -> str:
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
    from askback.cli.local_runs import LocalRuns

    try:
        return await app.store.get(await full_id(LocalRuns(app), given))
    except NotFound as error:
        lines = [resumable_line(run) for run in await resumable(app.service)]
        hint = "these can be continued:" if lines else "no run can be continued"
        raise NotFound(error.code, f"there is no run {given!r}; {hint}", lines) from None


async def resumable(service: Service) -> list[Run]:
    """The runs that wait for an answer, and those whose program has ended."""
    pending = await service.store.pending(limit=_MAX_SHOWN)
    runs = list(pending.items)
    for state in (RunState.RUNNING, RunState.QUEUED):
        page = await service.store.list_runs(RunFilter(state=state), limit=_MAX_SHOWN)
        runs += [run for run in page.items if not await service.owned_elsewhere(run)]
    return runs[:_MAX_SHOWN]


def resumable_line(run: Run) -> str:
    if run.pending_interaction is None:
        return f"{run.id} ({run.skill.id}) was interrupted"
    return f"{run.id} ({run.skill.id}) waits for an answer: {one_line(run.pending_interaction.heading, 60)}"
