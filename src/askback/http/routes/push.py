"""Push subscriptions over HTTP: those of the caller's token alone."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response

from askback.access.grants import Grant
from askback.access.push_subscriptions import SCOPES, Push, Subscription, digest
from askback.access.sessions import browser
from askback.core.access import Action
from askback.core.errors import Invalid, RefusalCode
from askback.core.webhooks import address_problems
from askback.http.audit_trail import changed
from askback.http.context import Context, json_response
from askback.http.problems import JSON_BODY
from askback.http.routing import Router
from askback.wire import server as wire
from askback.wire.requests import PushSubscriptionCreate

router = Router("push")


@router.add(
    "GET /v1/push",
    "List push subscriptions",
    scopes=SCOPES,
    returns=wire.Push,
    description="The public key, and the subscriptions.",
)
async def get_push(request: Request, context: Context) -> Response:
    """The server's public key, which a browser needs to subscribe, and the subscriptions of the caller's token."""
    grant: Grant = request.scope["grant"]
    items = tuple(_shown(each, grant) for each in context.push.subscriptions.of(grant.token_digest))
    key = await asyncio.to_thread(lambda: context.push.channel.key().public)
    return json_response(wire.Push(public_key=key, token=grant.name, items=items))


@router.add(
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
    return json_response(_shown(stored, grant), HTTPStatus.CREATED)


@router.add(
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


@router.add(
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
    from askback.notifications.encryption import Recipient

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


def _shown(subscription: Subscription, grant: Grant) -> wire.PushSubscription:
    return wire.PushSubscription(
        id=subscription.id,
        device=subscription.device,
        service=subscription.service,
        current=subscription.session_id is not None and subscription.session_id == grant.session_id,
        created_at=subscription.created_at,
        last_success_at=subscription.last_success_at,
    )
