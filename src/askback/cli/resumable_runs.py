"""Runs that somebody left: finding one by its id, and saying which there are when there is no such run."""

from __future__ import annotations

from askback.core.errors import NotFound
from askback.core.runs import Run, RunState
from askback.service import Service
from askback.store.base import RunFilter
from askback.text.terminal import one_line

_MOST_SHOWN = 10


async def find_run(service: Service, run_id: str) -> Run:
    """The run; one that does not exist is refused with those that could be meant."""
    try:
        return await service.store.get(run_id)
    except NotFound as error:
        left = await _left(service)
        hint = "these can be gone on with:" if left else "none was left that could be gone on with"
        raise NotFound(error.code, f"there is no run {run_id!r}; {hint}", left) from None


async def _left(service: Service) -> list[str]:
    pending = await service.store.pending(limit=_MOST_SHOWN)
    lines = [f"{run.id} ({run.skill.id}) waits for an answer: {_question(run)}" for run in pending.items]
    for state in (RunState.RUNNING, RunState.QUEUED):
        page = await service.store.list_runs(RunFilter(state=state), limit=_MOST_SHOWN)
        cut_off = [run for run in page.items if not service.owned_elsewhere(run)]
        lines += [f"{run.id} ({run.skill.id}) was cut off" for run in cut_off]
    return lines[:_MOST_SHOWN]


def _question(run: Run) -> str:
    return one_line(run.pending_interaction.prompt, 60) if run.pending_interaction else ""
