"""Browser sessions over HTTP: those of one's own token, and all of them for an administrator."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from askback.core.errors import NotFound, RefusalCode
from askback.http import models, openapi
from askback.http.auth import AccessScope, Grant, headers_of, host_of
from askback.http.bodies import StrictRoute
from askback.http.context import Context, SignedIn, answer
from askback.http.sessions import Session
from askback.http.sign_in import set_cookie

router = APIRouter(prefix="/v1", tags=["sessions"], route_class=StrictRoute)

SessionPath = Annotated[str, Path(description="The session's id, as the list has it.", examples=["9f2c01ab"])]


@router.get(
    "/sessions",
    summary="List browser sessions",
    **openapi.call(*AccessScope, answer=models.SessionsOut, says="All of them, the last used first."),
)
async def list_sessions(request: Request, here: SignedIn) -> Response:
    """The browser sessions that were made with the caller's token; with `admin` those of every token."""
    grant: Grant = request.scope["grant"]
    return answer({"items": [_view(each, grant) for each in _of(here, grant)], "next_cursor": None})


@router.delete(
    "/sessions",
    summary="Sign out everywhere",
    **openapi.call(*AccessScope, status=HTTPStatus.NO_CONTENT, says="They are over."),
)
async def delete_sessions(request: Request, here: SignedIn) -> Response:
    """End every browser session that was made with the caller's token, this one included."""
    grant: Grant = request.scope["grant"]
    own = [each.id for each in here.sessions.all() if each.token_digest == grant.token_digest]
    return await _end(request, here, own)


@router.delete(
    "/sessions/{session_id}",
    summary="End a browser session",
    **openapi.call(
        *AccessScope,
        status=HTTPStatus.NO_CONTENT,
        says="It is over.",
        refusals=[RefusalCode.SESSION_NOT_FOUND],
    ),
)
async def delete_session(request: Request, here: SignedIn, session_id: SessionPath) -> Response:
    """End one session: of the caller's own token, or with `admin` of any. To end the own one is to sign out."""
    if session_id not in [each.id for each in _of(here, request.scope["grant"])]:
        raise NotFound(RefusalCode.SESSION_NOT_FOUND, f"there is no session {session_id!r}")
    return await _end(request, here, [session_id])


def _of(here: Context, grant: Grant) -> list[Session]:
    every = grant.allows(AccessScope.ADMIN)
    return [each for each in here.sessions.all() if every or each.token_digest == grant.token_digest]


async def _end(request: Request, here: Context, ids: list[str]) -> Response:
    await asyncio.to_thread(here.sessions.revoke, ids)
    response = Response(status_code=HTTPStatus.NO_CONTENT)
    if request.scope["grant"].session_id in ids:
        set_cookie(response, here.addresses, host_of(headers_of(request.scope)), "")
    return response


def _view(session: Session, grant: Grant) -> dict[str, Any]:
    return {
        "id": session.id,
        "token": session.token,
        "browser": session.browser,
        "host": session.host,
        "current": session.id == grant.session_id,
        "created_at": session.created_at,
        "last_seen_at": session.last_seen_at,
        "expires_at": session.ends_at,
    }
