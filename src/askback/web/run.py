"""One run: its conversation as it happens, its result and its files. What happens comes by the stream."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from askback.core.runs import Run
from askback.core.views import run_view
from askback.web import files
from askback.web.desk import Desk, Page


async def run(desk: Desk, request: Request) -> Response:
    found = await desk.service.get(request.path_params["run_id"])
    skills = await desk.service.pools.skills.run(desk.service.skills.names)
    return desk.show(
        request,
        "run.html",
        run=found,
        first=_first(desk, found),
        files=await files.listed(desk, found.id),
        runs_again=found.skill.id in skills,
    )


def _first(desk: Desk, run: Run) -> dict[str, Any]:
    view = run_view(run)
    if (reason := desk.service.queue_reason(run)) is not None:
        view["queue_reason"] = reason
    return view


PAGES = (Page(path="/runs/{run_id}", show=run),)
