"""The browsers that are signed in. The list itself comes from the API."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from askback.web.desk import ANSWER, READ, SUBMIT, Desk, Page


async def sessions(desk: Desk, request: Request) -> Response:
    return desk.show(request, "sessions.html")


PAGES = (Page(path="/sessions", show=sessions, scopes=(READ, ANSWER, SUBMIT)),)
