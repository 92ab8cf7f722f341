"""One question for the holder of a link to it, who has no token: read it, answer it, and nothing else."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from askback.core.views import inbox_view
from askback.web.desk import Desk, Page

PATH = "/answers/{link}"


async def answer(desk: Desk, request: Request) -> Response:
    link = request.scope["grant"].link
    run = await desk.service.get(link.run_id)
    asked = run.pending_interaction
    pending = asked is not None and asked.interaction_id == link.interaction_id
    first = inbox_view(run) if pending else None
    here = f"/answers/{request.path_params['link']}"
    return desk.show(request, "answer.html", first=first, here=here)


PAGES = (Page(path=PATH, show=answer, by_link=True),)
