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
from askback.access.sessions import Session, browser
from askback.access.tokens import Token
from askback.core.access import AccessScope, Action
from askback.core.errors import Invalid, NotFound, RefusalCode
from askback.core.webhooks import address_problems
from askback.http.auth import ENTER, headers_of, host_of
from askback.http.context import Context, changed
from askback.http.quotas import MAIN
from askback.http.routing import ADMIN, Router
from askback.http.sign_in import set_cookie
from askback.wire import access as wire
from askback.wire.requests import InvitationCreate, PushSubscriptionCreate, TokenCreate

router = Router("tokens")
sessions_router = Router("sessions")
push_router = Router("push")


@router.add("GET /v1/tokens", "List tokens", ADMIN)
async def list_tokens(request: Request, context: Context) -> wire.TokenList:
    """The server's own token and all others, with their last use. Never the texts of the tokens."""
    signed_in = Counter(each.token_digest for each in context.sessions.all())
    own = wire.Token(
        name=MAIN,
        main=True,
        scopes=(ADMIN,),
        labels={},
        created_at=None,
        expires_at=None,
        expired=False,
        sessions=signed_in[context.main_digest],
        **_last_use(context, context.main_digest),
    )
    others = [
        wire.Token.of(each, sessions=signed_in[each.digest], **_state(context, each)) for each in context.tokens.all()
    ]
    return wire.TokenList(items=(own, *others))


@router.add(
    "POST /v1/tokens",
    "Create a token",
    ADMIN,
    action=Action.TOKEN_CREATE,
    status=HTTPStatus.CREATED,
    description="The token, with its text.",
    refusals=(RefusalCode.INPUT_INVALID,),
)
async def create_token(request: Request, context: Context, *, body: TokenCreate) -> wire.CreatedToken:
    """Create a token for a person or a program. Its text is returned once. A name is used by one token at a time."""
    lasts = body.expires_in_sec
    expires_at = None if lasts is None else context.tokens.clock() + timedelta(seconds=lasts)
    scopes = tuple(dict.fromkeys(body.scopes))
    text = await asyncio.to_thread(context.tokens.make, body.name, scopes, expires_at, body.labels, body.permissions)
    changed(request, body.name)
    token = context.tokens.named(body.name)
    return wire.CreatedToken.of(token, token=text, sessions=0, **_state(context, token))


@router.add(
    "DELETE /v1/tokens/{token_name}",
    "Revoke a token",
    ADMIN,
    action=Action.TOKEN_REVOKE,
    refusals=(RefusalCode.INPUT_INVALID,),
)
async def revoke_token(request: Request, context: Context, *, token_name: str) -> None:
    """Revoke a token at once, with the sessions, links and invitations that were made with it or for it.

    422 for the server's own token: replace it in the settings, or in the data folder.
    """
    _refuse_main(token_name, "cannot be revoked here; replace it in the settings, or in the data folder")
    await asyncio.to_thread(context.tokens.revoke, token_name)
    changed(request, token_name)


@router.add("GET /v1/invitations", "List invitations", ADMIN)
async def list_invitations(request: Request, context: Context) -> wire.InvitationList:
    """The invitations that were not used yet, without their URLs."""
    return wire.InvitationList.of(items=context.invitations.all())


@router.add(
    "POST /v1/invitations",
    "Invite a device",
    ADMIN,
    action=Action.INVITATION_CREATE,
    status=HTTPStatus.CREATED,
    description="The invitation, with its URL.",
    refusals=(RefusalCode.TOKEN_NOT_FOUND, RefusalCode.INPUT_INVALID, RefusalCode.STATE_UNSUITABLE),
)
async def invite(request: Request, context: Context, *, body: InvitationCreate) -> wire.Invitation:
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
    return wire.Invitation.of(made, url=f"{base}{ENTER}?invitation={text}")


@router.add("DELETE /v1/invitations/{invitation_id}", "Revoke an invitation", ADMIN, action=Action.INVITATION_REVOKE)
async def revoke_invitation(request: Request, context: Context, *, invitation_id: str) -> None:
    """Revoke an invitation that was not used yet. A device that has used it stays signed in: end its session."""
    await asyncio.to_thread(context.invitations.revoke, [invitation_id])
    changed(request, invitation_id)


def _refuse_main(name: str, reason: str) -> None:
    if name == MAIN:
        raise Invalid(RefusalCode.INPUT_INVALID, f"the server's own token {reason}")


def _state(context: Context, token: Token) -> dict[str, Any]:
    expired = context.tokens.find(token.digest) is None
    return {"main": False, "expired": expired, **_last_use(context, token.digest)}


def _last_use(context: Context, token_digest: str) -> dict[str, Any]:
    use = context.token_uses.last(token_digest)
    return {"last_used_at": None if use is None else use.at, "last_used_via": None if use is None else use.via.value}


@sessions_router.add("GET /v1/sessions", "List browser sessions", *AccessScope)
async def list_sessions(request: Request, context: Context) -> wire.SessionList:
    """The browser sessions of the caller's token, most recently used first. With `admin`, those of every token."""
    grant: Grant = request.scope["grant"]
    items = [
        wire.Session.of(each, current=each.id == grant.session_id, expires_at=each.ends_at)
        for each in _visible(context, grant)
    ]
    return wire.SessionList.of(items=items)


@sessions_router.add(
    "DELETE /v1/sessions",
    "Sign out everywhere",
    *AccessScope,
    action=Action.SESSION_END,
)
async def delete_sessions(request: Request, context: Context) -> Response | None:
    """End every browser session of the caller's token, including the current one."""
    grant: Grant = request.scope["grant"]
    own = [each.id for each in context.sessions.all() if each.token_digest == grant.token_digest]
    return await _end(request, context, own)


@sessions_router.add(
    "DELETE /v1/sessions/{session_id}",
    "End a browser session",
    *AccessScope,
    action=Action.SESSION_END,
)
async def delete_session(request: Request, context: Context, *, session_id: str) -> Response | None:
    """End one session of the caller's token, or with `admin` of any token. Ending the current session signs out."""
    if session_id not in [each.id for each in _visible(context, request.scope["grant"])]:
        raise NotFound(RefusalCode.SESSION_NOT_FOUND, f"there is no session {session_id!r}")
    return await _end(request, context, [session_id])


def _visible(context: Context, grant: Grant) -> list[Session]:
    every = grant.allows(ADMIN)
    return [each for each in context.sessions.all() if every or each.token_digest == grant.token_digest]


async def _end(request: Request, context: Context, ids: list[str]) -> Response:
    await asyncio.to_thread(context.sessions.revoke, ids)
    if ids:
        changed(request, ", ".join(ids))
    response = Response(status_code=HTTPStatus.NO_CONTENT)
    if request.scope["grant"].session_id in ids:
        set_cookie(response, context.addresses, host_of(headers_of(request.scope)), "")
    return response


@push_router.add(
    "GET /v1/push", "List push subscriptions", *SCOPES, description="The public key, and the subscriptions."
)
async def get_push(request: Request, context: Context) -> wire.Push:
    """The server's public key, which a browser needs to subscribe, and the subscriptions of the caller's token."""
    grant: Grant = request.scope["grant"]
    items = tuple(_subscription(each, grant) for each in context.push.subscriptions.of(grant.token_digest))
    key = await asyncio.to_thread(lambda: context.push.channel.key().public)
    return wire.Push(public_key=key, token=grant.name, items=items)


@push_router.add(
    "POST /v1/push/subscriptions",
    "Add a push subscription",
    *SCOPES,
    action=Action.PUSH_SUBSCRIBE,
    status=HTTPStatus.CREATED,
    refusals=(RefusalCode.INPUT_INVALID, RefusalCode.STATE_UNSUITABLE),
)
async def add_subscription(
    request: Request, context: Context, *, body: PushSubscriptionCreate
) -> wire.PushSubscription:
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
    return _subscription(stored, grant)


@push_router.add(
    "DELETE /v1/push/subscriptions/{subscription_id}",
    "Remove a push subscription",
    *SCOPES,
    action=Action.PUSH_UNSUBSCRIBE,
)
async def delete_subscription(request: Request, context: Context, *, subscription_id: str) -> None:
    """End one subscription of the caller's token. Pushes that were not sent yet are dropped."""
    found = context.push.subscriptions.find(subscription_id, request.scope["grant"].token_digest)
    await asyncio.to_thread(context.push.subscriptions.end, found.endpoint)
    await context.push.changed()
    changed(request, subscription_id)


@push_router.add(
    "POST /v1/push/subscriptions/{subscription_id}/test",
    "Send a test push",
    *SCOPES,
    action=Action.PUSH_TEST,
)
async def send_test(request: Request, context: Context, *, subscription_id: str) -> wire.PushTest:
    """Send a test push to a device of the caller's token at once, and say whether the push service accepted it."""
    found = context.push.subscriptions.find(subscription_id, request.scope["grant"].token_digest)
    error = await context.push.test(found)
    changed(request, subscription_id)
    return wire.PushTest(delivered=error is None, error=error)


def _made(body: PushSubscriptionCreate, grant: Grant, push: Push, user_agent: str) -> Subscription:
    """Validate a subscription. Raises one `Invalid` with all problems."""
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
    current = subscription.session_id is not None and subscription.session_id == grant.session_id
    return wire.PushSubscription.of(subscription, current=current)
