"""The page for administrators: people, their tokens, and invitations for their devices."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from askback.core.access import AccessScope
from askback.web.page_context import Page, PageContext


async def people(context: PageContext, request: Request) -> Response:
    return context.show(request, "people.html", device=context.device)


PAGES = (Page(path="/people", show=people, scopes=(AccessScope.ADMIN,)),)
