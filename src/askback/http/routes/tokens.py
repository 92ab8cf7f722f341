"""Tokens of people and programs, and invitations for their devices: for administrators."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from askback.access.tokens import Token
from askback.core.access import AccessScope, Action
from askback.core.errors import Invalid, NotFound, RefusalCode
from askback.http.audit_trail import changed
from askback.http.auth import ENTER, headers_of, host_of
from askback.http.context import Context, json_response
from askback.http.problems import JSON_BODY
from askback.http.quotas import MAIN
from askback.http.routes.invitations import Invitation
from askback.http.routing import Router
from askback.wire import tokens as wire
from askback.wire.requests import InvitationCreate, TokenCreate

router = Router("tokens")


@router.add(
    "GET /v1/tokens",
    "List tokens",
    scopes=(AccessScope.ADMIN,),
    returns=wire.TokenList,
    description="All tokens.",
)
async def list_tokens(request: Request, context: Context) -> Response:
    """The server's own token and all others, with their last use. Never the texts of the tokens."""
    signed_in = Counter(each.token_digest for each in context.sessions.all())
    further = [wire.Token(**_fields(context, each, signed_in[each.digest])) for each in context.tokens.all()]
    return json_response(wire.TokenList(items=(_main(context, signed_in[context.main_digest]), *further)))


@router.add(
    "POST /v1/tokens",
    "Create a token",
    action=Action.TOKEN_CREATE,
    scopes=(AccessScope.ADMIN,),
    body=TokenCreate,
    returns=wire.CreatedToken,
    status=HTTPStatus.CREATED,
    description="The token, with its text.",
    refusals=(*JSON_BODY, RefusalCode.INPUT_INVALID),
)
async def create_token(request: Request, context: Context, *, body: TokenCreate) -> Response:
    """Create a token for a person or a program. Its text is returned once. A name is used by one token at a time."""
    lasts = body.expires_in_sec
    expires_at = None if lasts is None else context.tokens.clock() + timedelta(seconds=lasts)
    scopes = tuple(dict.fromkeys(body.scopes))
    text = await asyncio.to_thread(context.tokens.make, body.name, scopes, expires_at, body.labels)
    changed(request, body.name)
    made = wire.CreatedToken(**_fields(context, context.tokens.named(body.name), 0), token=text)
    return json_response(made, HTTPStatus.CREATED)


@router.add(
    "DELETE /v1/tokens/{token_name}",
    "Revoke a token",
    action=Action.TOKEN_REVOKE,
    scopes=(AccessScope.ADMIN,),
    status=HTTPStatus.NO_CONTENT,
    description="The token is revoked.",
    refusals=(RefusalCode.TOKEN_NOT_FOUND, RefusalCode.INPUT_INVALID),
)
async def revoke_token(request: Request, context: Context, *, token_name: str) -> Response:
    """Revoke a token at once, with the sessions, links and invitations that were made with it or for it.

    422 for the server's own token: replace it in the settings, or in the data folder.
    """
    _refuse_main(token_name, "cannot be revoked here; replace it in the settings, or in the data folder")
    await asyncio.to_thread(context.tokens.revoke, token_name)
    changed(request, token_name)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.add(
    "GET /v1/invitations",
    "List invitations",
    scopes=(AccessScope.ADMIN,),
    returns=wire.InvitationList,
    description="All unused invitations.",
)
async def list_invitations(request: Request, context: Context) -> Response:
    """The invitations that were not used yet, without their URLs."""
    items = tuple(wire.ListedInvitation(**_of(each)) for each in context.invitations.all())
    return json_response(wire.InvitationList(items=items))


@router.add(
    "POST /v1/invitations",
    "Invite a device",
    action=Action.INVITATION_CREATE,
    scopes=(AccessScope.ADMIN,),
    body=InvitationCreate,
    returns=wire.Invitation,
    status=HTTPStatus.CREATED,
    description="The invitation, with its URL.",
    refusals=(
        *JSON_BODY,
        RefusalCode.TOKEN_NOT_FOUND,
        RefusalCode.INPUT_INVALID,
        RefusalCode.STATE_UNSUITABLE,
    ),
)
async def invite(request: Request, context: Context, *, body: InvitationCreate) -> Response:
    """A URL that signs one device in to the page as the person of the token. Returned once, and valid for one use.

    The device stays signed in as long as the settings `server.device_days` and `server.device_idle_days` allow, until its
    session is ended or the token is revoked. 422 for the server's own token.
    """
    _refuse_main(body.token, "signs no device in; create a token for the person first")
    token = context.tokens.named(body.token)
    if context.tokens.find(token.digest) is None:
        raise Invalid(RefusalCode.INPUT_INVALID, f"the token {token.name!r} has expired")
    lasts = timedelta(seconds=body.expires_in_sec)
    text, made = await asyncio.to_thread(
        context.invitations.make, token=token.name, token_digest=token.digest, lasts=lasts
    )
    changed(request, f"{made.id} for {token.name}")
    base = context.addresses.base_url(host_of(headers_of(request.scope)))
    return json_response(wire.Invitation(**_of(made), url=f"{base}{ENTER}?invitation={text}"), HTTPStatus.CREATED)


@router.add(
    "DELETE /v1/invitations/{invitation_id}",
    "Revoke an invitation",
    action=Action.INVITATION_REVOKE,
    scopes=(AccessScope.ADMIN,),
    status=HTTPStatus.NO_CONTENT,
    description="The invitation is revoked.",
    refusals=(RefusalCode.INVITATION_NOT_FOUND,),
)
async def revoke_invitation(request: Request, context: Context, *, invitation_id: str) -> Response:
    """Revoke an invitation that was not used yet. A device that has used it stays signed in: end its session."""
    if invitation_id not in [each.id for each in context.invitations.all()]:
        raise NotFound(RefusalCode.INVITATION_NOT_FOUND, f"there is no unused invitation {invitation_id!r}")
    await asyncio.to_thread(context.invitations.revoke, invitation_id)
    changed(request, invitation_id)
    return Response(status_code=HTTPStatus.NO_CONTENT)


def _refuse_main(name: str, reason: str) -> None:
    if name == MAIN:
        raise Invalid(RefusalCode.INPUT_INVALID, f"the server's own token {reason}")


def _main(context: Context, sessions: int) -> wire.Token:
    return wire.Token(
        name=MAIN,
        main=True,
        scopes=(AccessScope.ADMIN,),
        labels={},
        created_at=None,
        expires_at=None,
        expired=False,
        sessions=sessions,
        **_last_use(context, context.main_digest),
    )


def _fields(context: Context, token: Token, sessions: int) -> dict[str, Any]:
    return {
        "name": token.name,
        "main": False,
        "scopes": token.scopes,
        "labels": token.labels,
        "created_at": token.created_at,
        "expires_at": token.expires_at,
        "expired": context.tokens.find(token.digest) is None,
        "sessions": sessions,
        **_last_use(context, token.digest),
    }


def _last_use(context: Context, token_digest: str) -> dict[str, Any]:
    use = context.token_uses.last(token_digest)
    return {"last_used_at": None if use is None else use.at, "last_used_via": None if use is None else use.via.value}


def _of(invitation: Invitation) -> dict[str, Any]:
    return {
        "id": invitation.id,
        "token": invitation.token,
        "created_at": invitation.created_at,
        "expires_at": invitation.expires_at,
    }
