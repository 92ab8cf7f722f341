"""Tokens and invitations for administrators, browser sessions, and push devices."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from askback.access.grants import Grant
from askback.access.push_subscriptions import SCOPES, Push, Subscription, digest
from askback.access.sessions import Invitation, Session, browser
from askback.access.tokens import Token
from askback.core.access import AccessScope, Action
from askback.core.errors import Invalid, NotFound, RefusalCode
from askback.core.webhooks import address_problems
from askback.http.auth import ENTER, headers_of, host_of
from askback.http.context import Context, changed, json_response
from askback.http.problems import JSON_BODY
from askback.http.quotas import MAIN
from askback.http.routing import Router
from askback.http.sign_in import set_cookie
from askback.wire import access as wire
from askback.wire.requests import InvitationCreate, PushSubscriptionCreate, TokenCreate

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


sessions_router = Router("sessions")


@sessions_router.add(
    "GET /v1/sessions",
    "List browser sessions",
    scopes=tuple(AccessScope),
    returns=wire.SessionList,
    description="All sessions.",
)
async def list_sessions(request: Request, context: Context) -> Response:
    """The browser sessions of the caller's token, most recently used first. With `admin`, those of every token."""
    grant: Grant = request.scope["grant"]
    return json_response(wire.SessionList(items=tuple(_session(each, grant) for each in _visible(context, grant))))


@sessions_router.add(
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


@sessions_router.add(
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


def _session(session: Session, grant: Grant) -> wire.Session:
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


push_router = Router("push")


@push_router.add(
    "GET /v1/push",
    "List push subscriptions",
    scopes=SCOPES,
    returns=wire.Push,
    description="The public key, and the subscriptions.",
)
async def get_push(request: Request, context: Context) -> Response:
    """The server's public key, which a browser needs to subscribe, and the subscriptions of the caller's token."""
    grant: Grant = request.scope["grant"]
    items = tuple(_subscription(each, grant) for each in context.push.subscriptions.of(grant.token_digest))
    key = await asyncio.to_thread(lambda: context.push.channel.key().public)
    return json_response(wire.Push(public_key=key, token=grant.name, items=items))


@push_router.add(
    "POST /v1/push/subscriptions",
    "Add a push subscription",
    action=Action.PUSH_SUBSCRIBE,
    scopes=SCOPES,
    body=PushSubscriptionCreate,
    returns=wire.PushSubscription,
    status=HTTPStatus.CREATED,
    description="The subscription.",
    refusals=(*JSON_BODY, RefusalCode.INPUT_INVALID, RefusalCode.STATE_UNSUITABLE),
)
async def add_subscription(request: Request, context: Context, *, body: PushSubscriptionCreate) -> Response:
    """Tell this browser of questions from now on.

    It ends with the caller's token, with the session if a browser adds it, or when the push service says that it is gone.
    The same endpoint again renews it.
    """
    grant: Grant = request.scope["grant"]
    made = await asyncio.to_thread(_made, body, grant, context.push, request.headers.get("user-agent", ""))
    await asyncio.to_thread(context.push.subscriptions.add, made)
    await context.push.changed()
    changed(request, made.id)
    stored = context.push.subscriptions.find(made.id, grant.token_digest)
    return json_response(_subscription(stored, grant), HTTPStatus.CREATED)


@push_router.add(
    "DELETE /v1/push/subscriptions/{subscription_id}",
    "Remove a push subscription",
    action=Action.PUSH_UNSUBSCRIBE,
    scopes=SCOPES,
    status=HTTPStatus.NO_CONTENT,
    description="The subscription has ended.",
    refusals=(RefusalCode.SUBSCRIPTION_NOT_FOUND,),
)
async def delete_subscription(request: Request, context: Context, *, subscription_id: str) -> Response:
    """End one subscription of the caller's token. Pushes that were not sent yet are dropped."""
    found = context.push.subscriptions.find(subscription_id, request.scope["grant"].token_digest)
    await asyncio.to_thread(context.push.subscriptions.end, found.endpoint)
    await context.push.changed()
    changed(request, subscription_id)
    return Response(status_code=HTTPStatus.NO_CONTENT)


@push_router.add(
    "POST /v1/push/subscriptions/{subscription_id}/test",
    "Send a test push",
    action=Action.PUSH_TEST,
    scopes=SCOPES,
    returns=wire.PushTest,
    description="How it went.",
    refusals=(RefusalCode.SUBSCRIPTION_NOT_FOUND,),
)
async def send_test(request: Request, context: Context, *, subscription_id: str) -> Response:
    """Send a test push to a device of the caller's token at once, and say whether the push service accepted it."""
    found = context.push.subscriptions.find(subscription_id, request.scope["grant"].token_digest)
    error = await context.push.test(found)
    changed(request, subscription_id)
    return json_response(wire.PushTest(delivered=error is None, error=error))


def _made(body: PushSubscriptionCreate, grant: Grant, push: Push, user_agent: str) -> Subscription:
    """Raises `Invalid` with every problem."""
    from askback.notifications.channels.push_encryption import Recipient

    problems = [f"endpoint: {each}" for each in address_problems(body.endpoint, allow_private=push.allow_private)]
    try:
        Recipient.of(body.keys.p256dh, body.keys.auth)
    except ValueError as error:
        problems.append(f"keys.{error}")
    if problems:
        raise Invalid(RefusalCode.INPUT_INVALID, "the subscription is not valid", problems)
    return Subscription(
        digest=digest(body.endpoint),
        endpoint=body.endpoint,
        p256dh=body.keys.p256dh,
        auth=body.keys.auth,
        token_digest=grant.token_digest,
        session_id=grant.session_id,
        device=browser(user_agent),
        created_at=push.clock(),
    )


def _subscription(subscription: Subscription, grant: Grant) -> wire.PushSubscription:
    return wire.PushSubscription(
        id=subscription.id,
        device=subscription.device,
        service=subscription.service,
        current=subscription.session_id is not None and subscription.session_id == grant.session_id,
        created_at=subscription.created_at,
        last_success_at=subscription.last_success_at,
    )
