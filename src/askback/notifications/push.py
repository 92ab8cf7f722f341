"""Web push: what a device shows of a question, and whether it still may.

A device is a server's webhook of the kind `push` whose URL is the endpoint of the browser's push service. Who it belongs to
is looked up when something is sent, so that nothing is sent after its token or session has ended.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from askback import __version__
from askback.core.interactions import Interaction, option_label
from askback.core.runs import Run, RunState
from askback.core.webhooks import DeliveryReason, DueDelivery, Reminders, Webhook, WebhookKind
from askback.notifications.messages.http_request import HttpRequest
from askback.notifications.sender import Refused
from askback.text.formatting import one_line

if TYPE_CHECKING:
    from askback.notifications.encryption import Recipient, ServerKey

_MAX_TEXT = 200
_MAX_TITLE = 80
_MAX_OPTION = 40
_MAX_ACTIONS = 2
"""What every system shows."""
_MAX_TTL_SEC = 28 * 24 * 3600
_TEST_TTL_SEC = 300
_GONE = frozenset({404, 410})
"""The push service does not know the subscription any more."""
FINAL = _GONE | {413}
"""The statuses of a push service after which a retry would not help."""


class Devices(Protocol):
    """The subscriptions of a data folder. `http` implements it."""

    def endpoints(self) -> Sequence[str]:
        """Of all subscriptions, in a stable order. Raises `Unavailable` if they cannot be read."""
        ...

    def owners(self) -> Mapping[str, str]:
        """The name of the token of each subscription, by its endpoint."""
        ...

    def recipient(self, endpoint: str, run: Run) -> Recipient:
        """The keys of the subscription, if its token may see the run now. Raises `Refused`."""
        ...

    def has_ended(self, endpoint: str) -> bool:
        """Whether its token or session has ended, or it was removed."""
        ...

    def succeeded(self, endpoint: str) -> None:
        """Record that a push was accepted. May write a file."""
        ...

    def end(self, endpoint: str) -> None:
        """Remove the subscription. Writes a file."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PushChannel:
    """Makes the requests to push services."""

    devices: Devices
    key: Callable[[], ServerKey]
    shows_text: bool
    run: Callable[[str], Awaitable[Run]]
    """The run as it is now."""
    reminders: Reminders | None = None

    def webhooks(self, endpoints: Iterable[str]) -> tuple[Webhook, ...]:
        return tuple(
            Webhook(url=endpoint, kind=WebhookKind.PUSH, states=(RunState.WAITING_USER,), reminders=self.reminders)
            for endpoint in endpoints
        )

    async def request(self, due: DueDelivery, now: datetime) -> HttpRequest:
        """Raises `Refused` if the device must not know of it, or if the question is closed."""
        endpoint, asked = due.delivery.webhook.url, due.run.pending_interaction
        run = await self.run(due.run.id)
        recipient = self.devices.recipient(endpoint, run)
        pending = run.pending_interaction
        if asked is None or pending is None or pending.interaction_id != asked.interaction_id:
            raise Refused("the question is closed")
        payload = question_payload(run, asked, shows_text=self.shows_text)
        if due.delivery.reason is not DeliveryReason.STATE:
            payload["reason"] = due.delivery.reason
        return self._request(endpoint, recipient, payload, now, ttl_sec=_ttl_sec(run, now), topic=_topic(run, asked))

    def ended(self, endpoint: str, status: int | None) -> bool:
        """Whether the subscription is over after a push with this status; then it is removed. Writes a file."""
        if status not in _GONE and not self.devices.has_ended(endpoint):
            return False
        self.devices.end(endpoint)
        return True

    def test_request(self, endpoint: str, recipient: Recipient, now: datetime) -> HttpRequest:
        """A message that only shows that pushes arrive."""
        return self._request(endpoint, recipient, {"kind": "test"}, now, ttl_sec=_TEST_TTL_SEC, topic="test")

    def _request(
        self, endpoint: str, recipient: Recipient, payload: dict[str, Any], now: datetime, *, ttl_sec: int, topic: str
    ) -> HttpRequest:
        from askback.notifications.encryption import MAX_BYTES, encrypted

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
        payload["options"] = [one_line(option_label(each), _MAX_OPTION) for each in _offered(asked)]
    return payload


def _offered(asked: Interaction) -> Sequence[Any]:
    """The first options that the page shows as buttons: a question with a form, or for a secret, has none."""
    has_form = asked.response_schema is not None and asked.response_schema.get("type") == "object"
    return () if has_form or asked.asks_secrets else asked.options[:_MAX_ACTIONS]


def _topic(run: Run, asked: Interaction) -> str:
    """A push service replaces an undelivered message by a later one with the same topic."""
    return hashlib.sha256(f"{run.id} {asked.interaction_id}".encode()).hexdigest()[:32]


def _ttl_sec(run: Run, now: datetime) -> int:
    """How long the push service keeps the message for a device that is off."""
    if run.wait_deadline_at is None:
        return _MAX_TTL_SEC
    left = (run.wait_deadline_at - now).total_seconds()
    if left <= 0:
        raise Refused("the time for an answer is over")
    return min(int(left), _MAX_TTL_SEC)
