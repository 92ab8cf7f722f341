"""Finding a run by its id, with suggestions if it does not exist."""

from __future__ import annotations

from askback.core.errors import NotFound
from askback.core.runs import Run, RunState
from askback.service import Service
from askback.store.base import RunFilter
from askback.text.formatting import one_line

_MAX_SHOWN = 10


async def find_run(service: Service, run_id: str) -> Run:
    """Raises `NotFound` with the runs that could be continued instead."""
    try:
        return await service.store.get(run_id)
    except NotFound as error:
        resumable = await _resumable(service)
        hint = "these can be continued:" if resumable else "no run can be continued"
        raise NotFound(error.code, f"there is no run {run_id!r}; {hint}", resumable) from None


async def _resumable(service: Service) -> list[str]:
    pending = await service.store.pending(limit=_MAX_SHOWN)
    lines = [f"{run.id} ({run.skill.id}) waits for an answer: {_question(run)}" for run in pending.items]
    for state in (RunState.RUNNING, RunState.QUEUED):
        page = await service.store.list_runs(RunFilter(state=state), limit=_MAX_SHOWN)
        interrupted = [run for run in page.items if not service.owned_elsewhere(run)]
        lines += [f"{run.id} ({run.skill.id}) was interrupted" for run in interrupted]
    return lines[:_MAX_SHOWN]


def _question(run: Run) -> str:
    return one_line(run.pending_interaction.prompt, 60) if run.pending_interaction else ""
