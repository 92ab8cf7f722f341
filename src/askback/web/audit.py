"""The page for administrators that shows the audit log."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from askback.core.access import AccessScope, Action
from askback.store.audit_log import AuditFilter
from askback.web.page_context import Page, PageContext
from askback.web.who import who_text
from askback.wire.audit import AuditEntry

PAGE_SIZE = 50
_MOST_CHARACTERS = 200


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
        newest=_address(filters),
        further=_address(filters | {"cursor": page.next_cursor}) if page.next_cursor else None,
    )


def _address(given: dict[str, str]) -> str:
    query = urlencode({name: value for name, value in given.items() if value})
    return f"/audit?{query}" if query else "/audit"


PAGES = (Page(path="/audit", show=audit, scopes=(AccessScope.ADMIN,), whole_server=True),)
