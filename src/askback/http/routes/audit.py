"""The audit log, for administrators."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from askback.core.access import AccessScope
from askback.core.errors import RefusalCode
from askback.http.context import Context, json_response
from askback.http.problems import RequestCode
from askback.http.routing import Router
from askback.store.audit_log import AuditFilter
from askback.wire.audit import AuditEntry, AuditEntryPage
from askback.wire.requests import AuditQuery

router = Router("audit")


@router.add(
    "GET /v1/audit",
    "Read the audit log",
    scopes=(AccessScope.ADMIN,),
    query=AuditQuery,
    returns=AuditEntryPage,
    description="A page.",
    refusals=(RequestCode.REQUEST_INVALID, RefusalCode.INPUT_INVALID),
    whole_server=True,
)
async def list_entries(request: Request, context: Context, *, query: AuditQuery) -> Response:
    """Every write by a person or a program, newest first: who, through which channel, when and what.

    What was refused, and what Askback does by itself, is not in the log. Entries outlive their run; see
    `retention.audit_days`.
    """
    where = AuditFilter(
        actor=query.actor,
        action=None if query.action is None else query.action.value,
        run_id=query.run_id,
        since=query.since,
        until=query.until,
    )
    page = await context.audit.store.audit_entries(where, query.cursor, query.limit)
    items = tuple(AuditEntry.of(each) for each in page.items)
    return json_response(AuditEntryPage(items=items, next_cursor=page.next_cursor))
