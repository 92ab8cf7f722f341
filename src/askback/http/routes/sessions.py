"""Browser sessions: those of the caller's token, and all of them for an administrator."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response

from askback.access.grants import Grant
from askback.access.sessions import Session
from askback.core.access import AccessScope, Action
from askback.core.errors import NotFound, RefusalCode
from askback.http.audit_trail import changed
from askback.http.auth import headers_of, host_of
from askback.http.context import Context, json_response
from askback.http.routing import Router
from askback.http.sign_in import set_cookie
from askback.wire import server as wire

router = Router("sessions")


@router.add(
    "GET /v1/sessions",
    "List browser sessions",
    scopes=tuple(AccessScope),
    returns=wire.SessionList,
    description="All sessions.",
)
async def list_sessions(request: Request, context: Context) -> Response:
    """The browser sessions of the caller's token, most recently used first. With `admin`, those of every token."""
    grant: Grant = request.scope["grant"]
    return json_response(wire.SessionList(items=tuple(_shown(each, grant) for each in _visible(context, grant))))


@router.add(
    "DELETE /v1/sessions",
    "Sign out everywhere",
    action=Action.SESSION_END,
    scopes=tuple(AccessScope),
    status=HTTPStatus.NO_CONTENT,
    description="The sessions have ended.",
)
async def delete_sessions(request: Request, context: Context) -> Response:
    """End every browser session of the caller's token, including the current one."""
    grant: Grant = request.scope["grant"]
    own = [each.id for each in context.sessions.all() if each.token_digest == grant.token_digest]
    return await _end(request, context, own)


@router.add(
    "DELETE /v1/sessions/{session_id}",
    "End a browser session",
    action=Action.SESSION_END,
    scopes=tuple(AccessScope),
    status=HTTPStatus.NO_CONTENT,
    description="The session has ended.",
    refusals=(RefusalCode.SESSION_NOT_FOUND,),
)
async def delete_session(request: Request, context: Context, *, session_id: str) -> Response:
    """End one session of the caller's token, or with `admin` of any token. Ending the current session signs out."""
    if session_id not in [each.id for each in _visible(context, request.scope["grant"])]:
        raise NotFound(RefusalCode.SESSION_NOT_FOUND, f"there is no session {session_id!r}")
    return await _end(request, context, [session_id])


def _visible(context: Context, grant: Grant) -> list[Session]:
    every = grant.allows(AccessScope.ADMIN)
    return [each for each in context.sessions.all() if every or each.token_digest == grant.token_digest]


async def _end(request: Request, context: Context, ids: list[str]) -> Response:
    await asyncio.to_thread(context.sessions.revoke, ids)
    if ids:
        changed(request, ", ".join(ids))
    response = Response(status_code=HTTPStatus.NO_CONTENT)
    if request.scope["grant"].session_id in ids:
        set_cookie(response, context.addresses, host_of(headers_of(request.scope)), "")
    return response


def _shown(session: Session, grant: Grant) -> wire.Session:
    return wire.Session(
        id=session.id,
        token=session.token,
        browser=session.browser,
        invited=session.invited,
        host=session.host,
        current=session.id == grant.session_id,
        created_at=session.created_at,
        last_seen_at=session.last_seen_at,
        expires_at=session.ends_at,
    )
