"""The inbox: every pending question with its answer form. The first list comes with the page, the rest by the stream."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from askback.core.views import inbox_page_view
from askback.web.desk import ANSWER, READ, Desk, Page


async def inbox(desk: Desk, request: Request) -> Response:
    page = await desk.service.inbox(limit=200)
    first = inbox_page_view(page.items, page.next_cursor, page.crowd.total)
    return desk.show(request, "inbox.html", first=first)


PAGES = (Page(path="/", show=inbox, scopes=(READ, ANSWER)),)
