"""Deliveries to webhooks: their formats, and sending those that are due, with retries."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol, assert_never

import msgspec

from askback import __version__
from askback.core.errors import Unavailable
from askback.core.runs import Run, RunState
from askback.core.webhooks import Attempt, Delivery, DueDelivery, Webhook, WebhookKind, secret_key
from askback.store.base import Changes, Store
from askback.webhooks.sender import TIMEOUT_SEC, Failed, Refused, Response, WebhookSender, requested_delay_sec
from askback.wire.runs import Notification

log = logging.getLogger(__name__)

RETRIES_SEC = (5.0, 30.0, 120.0, 600.0, 3600.0, 3 * 3600.0, 6 * 3600.0, 12 * 3600.0)
"""The delay after each failed attempt, about 22 hours in all."""
_MAX_CONCURRENT = 16
_MAX_PER_HOST = 4
"""A slow receiver must not delay the others."""
_CLAIM_SEC = 4 * TIMEOUT_SEC
_PAUSE_SEC = 0.1
"""Under load, changes are collected for this time."""
_MAX_SLEEP_SEC = 60.0
"""Sleep uses the monotonic clock, but due times use the wall clock, which may be set in the meantime."""
_GONE = 410


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryPolicy:
    """The settings for notifications."""

    webhooks: tuple[Webhook, ...] = ()
    allow_private: bool = False
    link: str | None = None
    retries_sec: Sequence[float] = RETRIES_SEC


class Channel(Protocol):
    """Sends the notifications of one kind in another way than a POST request to their address."""

    async def send(self, due: DueDelivery) -> Response:
        """Raises `Refused` or `Failed`."""
        ...


class Notifications:
    def __init__(
        self,
        *,
        store: Store,
        policy: DeliveryPolicy,
        clock: Callable[[], datetime],
        channels: Mapping[WebhookKind, Channel] | None = None,
    ) -> None:
        self._store = store
        self._channels = channels or {}
        self._policy = policy
        self._clock = clock
        self._active: Counter[str] = Counter()
        self._wake = asyncio.Event()

    async def register(self) -> None:
        """Store the webhooks of the settings, before any run changes. Every program on this store uses them from now on."""
        await self._store.register_webhooks(self._policy.webhooks)

    async def run(self) -> None:
        changes = self._store.changes()
        try:
            async with WebhookSender(allow_private=self._policy.allow_private) as sender, asyncio.TaskGroup() as group:
                group.create_task(self._listen(changes))
                while True:
                    try:
                        await self._send_due(sender, group)
                        await self._sleep()
                    except Unavailable as error:
                        log.error("cannot send notifications: %s", error.message)
                        await asyncio.sleep(_MAX_SLEEP_SEC)
        finally:
            changes.close()

    # What is due.

    async def _send_due(self, sender: WebhookSender, group: asyncio.TaskGroup) -> None:
        self._wake.clear()
        while (free := _MAX_CONCURRENT - self._active.total()) > 0:
            earliest = await self._store.next_delivery(without_hosts=self._busy)
            now = self._clock()
            if earliest is None or earliest > now:
                return
            until = now + timedelta(seconds=_CLAIM_SEC)
            limit = min(free, _MAX_PER_HOST)
            for due in await self._store.claim_deliveries(now, until=until, limit=limit, without_hosts=self._busy):
                self._active[due.delivery.webhook.host] += 1
                group.create_task(self._deliver(sender, due))

    @property
    def _busy(self) -> Collection[str]:
        return [host for host, count in self._active.items() if count >= _MAX_PER_HOST]

    async def _listen(self, changes: Changes) -> None:
        with suppress(Unavailable):
            while True:
                await changes.wait()
                self._wake.set()
                await asyncio.sleep(_PAUSE_SEC)

    async def _sleep(self) -> None:
        """Until the next attempt is due, a run changes, or an attempt ends."""
        at = (
            None
            if self._active.total() >= _MAX_CONCURRENT
            else await self._store.next_delivery(without_hosts=self._busy)
        )
        seconds = None if at is None else min(max((at - self._clock()).total_seconds(), 0), _MAX_SLEEP_SEC)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    # One delivery.

    async def _deliver(self, sender: WebhookSender, due: DueDelivery) -> None:
        try:
            attempt = await self._attempt(sender, due)
            # An attempt that cannot be stored is due again when its claim ends.
            with suppress(Unavailable):
                await self._store.note_attempt(due.delivery, attempt)
        finally:
            self._active.subtract((due.delivery.webhook.host,))
            self._active = +self._active
            self._wake.set()

    async def _attempt(self, sender: WebhookSender, due: DueDelivery) -> Attempt:
        delivery = due.delivery
        try:
            response = await self._send(sender, due)
        except Refused as error:
            return self._given_up(delivery, None, str(error))
        except Failed as error:
            return self._failed(delivery, None, str(error))
        except Exception as error:  # a bug in one delivery must not stop the server
            # Its message may contain the URL, which may contain a secret.
            return self._failed(delivery, None, f"internal error ({type(error).__name__})")
        return self._responded(delivery, response)

    async def _send(self, sender: WebhookSender, due: DueDelivery) -> Response:
        webhook = due.delivery.webhook
        if (channel := self._channels.get(webhook.kind)) is not None:
            return await channel.send(due)
        sent = message(due, self._clock(), self._policy.link)
        return await sender.post(webhook.url, sent.headers, sent.body)

    def _responded(self, delivery: Delivery, response: Response) -> Attempt:
        status = response.status
        if 200 <= status < 300:
            return Attempt(status=status, delivered_at=self._clock())
        if status == _GONE:
            return self._given_up(delivery, status, "the receiver is gone (410)")
        redirect = ": redirects are not followed" if 300 <= status < 400 else ""
        said = f": {response.reason}" if response.reason else ""
        retry_after_sec = requested_delay_sec(response.retry_after, self._clock())
        return self._failed(delivery, status, f"the receiver returned {status}{said or redirect}", retry_after_sec)

    def _failed(self, delivery: Delivery, status: int | None, error: str, retry_after_sec: float = 0.0) -> Attempt:
        """Retry after the delay of the policy, or the longer one that the receiver requested."""
        if delivery.attempts > len(self._policy.retries_sec):
            return self._given_up(delivery, status, error)
        delay_sec = max(self._policy.retries_sec[delivery.attempts - 1], retry_after_sec)
        return Attempt(status=status, error=error, next_attempt_at=self._clock() + timedelta(seconds=delay_sec))

    def _given_up(self, delivery: Delivery, status: int | None, error: str) -> Attempt:
        log.warning("notification %s given up after %d attempts: %s", delivery.id, delivery.attempts, error)
        return Attempt(status=status, error=error)


_MAX_TEXT = 500
_TAGS = {
    RunState.WAITING_USER: "question",
    RunState.SUCCEEDED: "white_check_mark",
    RunState.FAILED: "x",
    RunState.CANCELED: "no_entry_sign",
}
_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    headers: dict[str, str] = field(repr=False)
    body: bytes = field(repr=False)


def message(due: DueDelivery, now: datetime, link: str | None) -> Message:
    """`link` is the URL of a run for people, with `{run}` for its id."""
    run_url = None if link is None else link.replace("{run}", due.run.id)
    match due.delivery.webhook.kind:
        case WebhookKind.STANDARD:
            return _standard(due, now)
        case WebhookKind.NTFY:
            return _ntfy(due, run_url)
        case WebhookKind.SLACK:
            return _slack(due, run_url)
        case WebhookKind.TELEGRAM:
            raise Failed("this server has no telegram.token; another one has to send this")
        case kind:
            assert_never(kind)


def signature(secret: str, message_id: str, timestamp: str, body: bytes) -> str:
    """The Standard Webhooks signature of the id, the time of the attempt and the body."""
    key = secret_key(secret)
    assert key is not None, "secrets are validated before they are stored"
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


def _standard(due: DueDelivery, now: datetime) -> Message:
    delivery = due.delivery
    body = msgspec.json.encode(Notification.of(due))
    timestamp = str(int(now.timestamp()))
    headers = _headers("application/json") | {"webhook-id": delivery.id, "webhook-timestamp": timestamp}
    if (secret := delivery.webhook.secret) is not None:
        headers["webhook-signature"] = signature(secret, delivery.id, timestamp, body)
    return Message(headers=headers, body=body)


def _ntfy(due: DueDelivery, link: str | None) -> Message:
    headers = _headers("text/plain; charset=utf-8") | {"Title": _ascii(_title(due.run, due.delivery.new))}
    headers["Priority"] = "high" if due.delivery.new is RunState.WAITING_USER else "default"
    if (tag := _TAGS.get(due.delivery.new)) is not None:
        headers["Tags"] = tag
    if link is not None:
        headers["Click"] = _ascii(link)
    if (token := due.delivery.webhook.secret) is not None:
        headers["Authorization"] = f"Bearer {token}"
    return Message(headers=headers, body=_text(due.run, due.delivery.new).encode(errors="replace"))


def _slack(due: DueDelivery, link: str | None) -> Message:
    title = _title(due.run, due.delivery.new).translate(_ESCAPED)
    text = f"*{title}*\n{_text(due.run, due.delivery.new).translate(_ESCAPED)}"
    if link is not None:
        text += f"\n<{link}>"
    return Message(headers=_headers("application/json"), body=msgspec.json.encode({"text": text}))


def _headers(media_type: str) -> dict[str, str]:
    return {"Content-Type": media_type, "User-Agent": f"askback/{__version__}"}


def _title(run: Run, state: RunState) -> str:
    words = {RunState.WAITING_USER: "has a question"}
    return f"{run.skill.id} {words.get(state, f'is {state}' if not state.final else state)}"


def _text(run: Run, state: RunState) -> str:
    """A short text for a small screen."""
    if state is RunState.WAITING_USER and run.pending_interaction is not None:
        return _short(run.pending_interaction.prompt)
    if state is RunState.FAILED and run.error is not None:
        return _short(f"{run.error.code}: {run.error.message}")
    return f"Run {run.id}"


def _short(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"


def _ascii(text: str) -> str:
    """Headers only allow printable ASCII."""
    return "".join(letter if " " <= letter <= "~" else "?" for letter in text)
