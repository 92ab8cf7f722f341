"""Who uses the server: people and tokens, browser sessions, and the audit log."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from askback.core.access import Action
from askback.store.pages import AuditFilter
from askback.web.answers import who_text
from askback.web.page_context import PageContext, address
from askback.wire.access import AuditEntry

PAGE_SIZE = 50
_MOST_CHARACTERS = 200


async def people(context: PageContext, request: Request) -> Response:
    return context.show(request, "people.html", device=context.device)


async def sessions(context: PageContext, request: Request) -> Response:
    return context.show(request, "sessions.html")


async def audit(context: PageContext, request: Request) -> Response:
    given = request.query_params
    texts = context.translations_for(request)
    filters = {name: given.get(name, "").strip()[:_MOST_CHARACTERS] for name in ("actor", "action", "run_id")}
    actor, action, run_id = (filters[name] or None for name in ("actor", "action", "run_id"))
    where = AuditFilter(actor=actor, action=action, run_id=run_id)
    cursor = given.get("cursor") or None
    page = await context.audit.audit_entries(where, cursor, PAGE_SIZE)
    entries = [AuditEntry.of(each) for each in page.items]
    return context.show(
        request,
        "audit.html",
        entries=[(each, who_text(each.actor, texts)) for each in entries],
        filters=filters,
        actions=list(Action),
        first=cursor is None,
        newest=address("/audit", filters),
        further=address("/audit", filters | {"cursor": page.next_cursor}) if page.next_cursor else None,
    )
