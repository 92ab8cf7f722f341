"""Web push: what a device shows of a question, and whether it still may.

A device is a server's webhook of the kind `push` whose URL is the endpoint of the browser's push service. Who it belongs to
is looked up when something is sent, so that nothing is sent after its token or session has ended.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from askback import __version__
from askback.background.outages import OUTAGES
from askback.core.errors import Unavailable
from askback.core.interactions import Interaction, option_label
from askback.core.runs import Run, RunState
from askback.core.webhooks import Attempt, DeliveryReason, DueDelivery, Reminders, Webhook, WebhookKind
from askback.notifications.channels.base import Channel, DueMessage, Refused, Response
from askback.notifications.channels.webhook import HttpRequest, WebhookSender
from askback.store.base import Store
from askback.text.formatting import one_line

if TYPE_CHECKING:
    from askback.notifications.channels.push_encryption import Recipient, ServerKey

log = logging.getLogger(__name__)

_MAX_TEXT = 200
_MAX_TITLE = 80
_MAX_OPTION = 40
_MAX_ACTIONS = 2
"""What every system shows."""
_MAX_TTL_SEC = 28 * 24 * 3600
_TEST_TTL_SEC = 300
_GONE = frozenset({404, 410})
"""The push service does not know the subscription any more."""
_FINAL = _GONE | {413}
"""The statuses of a push service after which a retry would not help."""


class Devices(Protocol):
    """The subscriptions of a data folder. `access.push_subscriptions` implements it."""

    def endpoints(self) -> Sequence[str]:
        """The endpoints of all subscriptions, in a stable order. Raises `Unavailable` if they cannot be read."""

    def owners(self) -> Mapping[str, str]:
        """The name of the token of each subscription, by its endpoint."""

    def recipient(self, endpoint: str, run: Run) -> Recipient:
        """The keys of the subscription, if its token may see the run now. Raises `Refused`."""

    def has_ended(self, endpoint: str) -> bool:
        """Whether its token or session has ended, or it was removed."""

    def succeeded(self, endpoint: str) -> None:
        """Record that a push was accepted. May write a file."""

    def end(self, endpoint: str) -> None:
        """Remove the subscription. Writes a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushChannel(Channel):
    devices: Devices
    key: Callable[[], ServerKey]
    shows_text: bool
    store: Store
    sender: WebhookSender
    reminders: Reminders | None = None

    async def notify(self, due: DueMessage) -> Response:
        request = await self._due_request(due.due, due.at)
        response = await self.sender.post(request.url, request.headers, request.body)
        if response.status not in _FINAL:
            return response
        return replace(response, problem=f"the push service returned {response.status}", final=True)

    async def close(self) -> None:
        await self.sender.close()

    async def receivers(self) -> Sequence[Webhook]:
        try:
            endpoints = self.devices.endpoints()
        except Unavailable as error:
            # Everything else works without pushes. Devices that cannot be read were not removed.
            OUTAGES.failed(log, "cannot read the push subscriptions", error)
            endpoints = [url for url, kind in await self.store.server_webhooks() if kind is WebhookKind.PUSH]
        return [
            Webhook(url=endpoint, kind=WebhookKind.PUSH, states=(RunState.WAITING_USER,), reminders=self.reminders)
            for endpoint in endpoints
        ]

    def owners(self) -> Mapping[str, str]:
        return self.devices.owners()

    async def record_attempt(self, webhook: Webhook, attempt: Attempt) -> bool:
        """A subscription that has ended is removed."""
        try:
            if attempt.delivered_at is not None:
                await asyncio.to_thread(self.devices.succeeded, webhook.url)
                return False
            if attempt.next_attempt_at is not None:
                return False
            is_gone = attempt.status in _GONE or await asyncio.to_thread(self.devices.has_ended, webhook.url)
            if not is_gone:
                return False
            await asyncio.to_thread(self.devices.end, webhook.url)
            return True
        except (OSError, Unavailable) as error:
            OUTAGES.failed(log, "cannot write the push subscriptions", error)
            return False

    async def _due_request(self, due: DueDelivery, now: datetime) -> HttpRequest:
        """Raises `Refused` if the device must not know of it, or if the question is closed."""
        endpoint, asked = due.delivery.webhook.url, due.run.pending_interaction
        run = await self.store.get(due.run.id)
        recipient = self.devices.recipient(endpoint, run)
        pending = run.pending_interaction
        if asked is None or pending is None or pending.interaction_id != asked.interaction_id:
            raise Refused("the question is closed")
        payload = question_payload(run, asked, shows_text=self.shows_text)
        if due.delivery.reason is not DeliveryReason.STATE:
            payload["reason"] = due.delivery.reason
        # A push service replaces an undelivered message by a later one with the same topic.
        topic = hashlib.sha256(f"{run.id} {asked.interaction_id}".encode()).hexdigest()[:32]
        return self._request(endpoint, recipient, payload, now, ttl_sec=_ttl_sec(run, now), topic=topic)

    def test_request(self, endpoint: str, recipient: Recipient, now: datetime) -> HttpRequest:
        """A message that only shows that pushes arrive."""
        return self._request(endpoint, recipient, {"kind": "test"}, now, ttl_sec=_TEST_TTL_SEC, topic="test")

    def _request(
        self, endpoint: str, recipient: Recipient, payload: dict[str, Any], now: datetime, *, ttl_sec: int, topic: str
    ) -> HttpRequest:
        from askback.notifications.channels.push_encryption import MAX_BYTES, encrypted

        content = msgspec.json.encode(payload)
        assert len(content) <= MAX_BYTES, "every part of the payload is bounded"
        headers = {
            "Authorization": self.key().authorization(endpoint, now),
            "Content-Encoding": "aes128gcm",
            "Content-Type": "application/octet-stream",
            "TTL": str(ttl_sec),
            "Topic": topic,
            "Urgency": "high",
            "User-Agent": f"askback/{__version__}",
        }
        return HttpRequest(url=endpoint, headers=headers, body=encrypted(content, recipient))


def question_payload(run: Run, asked: Interaction, *, shows_text: bool) -> dict[str, Any]:
    """What the service worker of the page needs to show the question. An option is its index in the question."""
    payload: dict[str, Any] = {
        "kind": "question",
        "skill": one_line(run.skill.id, _MAX_TITLE),
        "run": run.id,
        "question": asked.interaction_id,
    }
    if shows_text:
        payload["text"] = one_line(asked.heading, _MAX_TEXT)
        # As on the page, a question with a form, or for a secret, has no buttons.
        has_form = asked.response_schema is not None and asked.response_schema.get("type") == "object"
        offered = () if has_form or asked.asks_secrets else asked.options[:_MAX_ACTIONS]
        payload["options"] = [one_line(option_label(each), _MAX_OPTION) for each in offered]
    return payload


def _ttl_sec(run: Run, now: datetime) -> int:
    """How long the push service keeps the message for a device that is off."""
    if run.wait_deadline_at is None:
        return _MAX_TTL_SEC
    left = (run.wait_deadline_at - now).total_seconds()
    if left <= 0:
        raise Refused("the time for an answer is over")
    return min(int(left), _MAX_TTL_SEC)
