"""Deliveries to webhooks: sending those that are due, with retries."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Protocol, Self, assert_never

from askback.background.loops import keep_trying
from askback.background.outages import OUTAGES
from askback.core.errors import NotFound, Unavailable, is_outage
from askback.core.runs import RunState
from askback.core.webhooks import Attempt, Delivery, DeliveryReason, DueDelivery, Webhook, WebhookKind
from askback.notifications import reminder_texts
from askback.notifications.mail_sender import MailResponse, MailSender, MailServer
from askback.notifications.messages import Message, MessageStyle, message
from askback.notifications.messages.http_request import HttpRequest
from askback.notifications.messages.mail import Mail
from askback.notifications.messages.notice import Notice
from askback.notifications.push import FINAL, PushChannel
from askback.notifications.sender import TIMEOUT_SEC, Failed, Refused, Response, WebhookSender, requested_delay_sec
from askback.notifications.slots import Slot, Slots
from askback.runs.links import AnswerLinks, Recipient
from askback.store.base import Changes, Store
from askback.wire.deliveries import Notification

log = logging.getLogger(__name__)

RETRIES_SEC = (5.0, 30.0, 120.0, 600.0, 3600.0, 3 * 3600.0, 6 * 3600.0, 12 * 3600.0)
"""The delay after each failed attempt, about 22 hours in all."""
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
    """The URL of a run for people, with `{run}` for its id."""
    retries_sec: Sequence[float] = RETRIES_SEC
    style: MessageStyle = field(default_factory=MessageStyle)
    mail_server: MailServer | None = None


class Senders:
    """Sends messages of every kind. Use it with `async with`."""

    def __init__(self, policy: DeliveryPolicy) -> None:
        self._http = WebhookSender(allow_private=policy.allow_private)
        self._mail = None if policy.mail_server is None else MailSender(server=policy.mail_server)
        self._ends = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._ends.enter_async_context(self._http)
        if self._mail is not None:
            await self._ends.enter_async_context(self._mail)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._ends.aclose()

    async def send(self, sent: Message) -> Response | MailResponse:
        """Raises `Refused` or `Failed`."""
        match sent:
            case HttpRequest():
                return await self._http.post(sent.url, sent.headers, sent.body)
            case Mail():
                if self._mail is None:
                    raise Refused("the settings have no notifications.email.url")
                return await self._mail.send(sent)
            case _:
                assert_never(sent)


AnswerLink = Callable[[], Awaitable[str | None]]
"""Makes a link to the question of a delivery, for its recipient. None if there can be none."""


class Channel(Protocol):
    """Sends the notifications of one kind in another way than a POST request to their address."""

    async def send(self, due: DueDelivery, answer_link: AnswerLink) -> Response:
        """Raises `Refused` or `Failed`."""
        ...


class Notifications:
    def __init__(
        self,
        *,
        store: Store,
        policy: DeliveryPolicy,
        clock: Callable[[], datetime],
        answer_links: AnswerLinks | None = None,
        channels: Mapping[WebhookKind, Channel] | None = None,
    ) -> None:
        self._store = store
        self._policy = policy
        self._clock = clock
        self._answer_links = answer_links
        self._channels = channels or {}
        self._of_settings = {(each.url, each.kind): each for each in policy.webhooks}
        self.push: PushChannel | None = None
        """Only a server with tokens has it."""
        self._registering = asyncio.Lock()
        self._slots = Slots()
        self._wake = asyncio.Event()

    async def register(self) -> None:
        """Store the webhooks of the settings and the devices, before any run changes and when a device was added or removed.

        Every program on this store uses them from now on.
        """
        # One after the other: an older list of devices must not replace a newer one.
        async with self._registering:
            devices = await self._devices()
            await self._store.register_webhooks((*self._policy.webhooks, *devices), self._clock())

    async def _devices(self) -> Sequence[Webhook]:
        if self.push is None:
            return ()
        try:
            endpoints = self.push.devices.endpoints()
        except Unavailable as error:
            # Everything else works without pushes. Devices that cannot be read were not removed.
            OUTAGES.failed(log, "cannot read the push subscriptions", error)
            endpoints = [url for url, kind in await self._store.server_webhooks() if kind is WebhookKind.PUSH]
        return self.push.webhooks(endpoints)

    async def run(self) -> None:
        changes = self._store.changes()
        try:
            async with Senders(self._policy) as senders, asyncio.TaskGroup() as group:
                group.create_task(self._listen(changes))

                async def send_and_sleep() -> None:
                    await self._send_due(senders, group)
                    await self._sleep()

                await keep_trying(send_and_sleep, log, "cannot send notifications")
        finally:
            changes.close()

    # What is due.

    async def _send_due(self, senders: Senders, group: asyncio.TaskGroup) -> None:
        self._wake.clear()
        while (room := self._slots.room) > 0:
            busy = self._slots.busy(self._owners)
            earliest = await self._store.next_delivery(busy=busy)
            now = self._clock()
            if earliest is None or earliest > now:
                return
            until = now + timedelta(seconds=_CLAIM_SEC)
            for due in await self._store.claim_deliveries(now, until=until, limit=room, busy=busy):
                slot = self._slots.take(due, self._owners)
                group.create_task(self._deliver(senders, due, slot))

    @property
    def _owners(self) -> Mapping[str, str]:
        """The token of each device, by the URL of the device."""
        return {} if self.push is None else self.push.devices.owners()

    async def _listen(self, changes: Changes) -> None:
        with suppress(Unavailable):
            while True:
                await changes.wait()
                self._wake.set()
                await asyncio.sleep(_PAUSE_SEC)

    async def _sleep(self) -> None:
        """Until the next attempt is due, a run changes, or an attempt ends."""
        busy = self._slots.busy(self._owners)
        at = await self._store.next_delivery(busy=busy) if self._slots.room else None
        seconds = None if at is None else min(max((at - self._clock()).total_seconds(), 0), _MAX_SLEEP_SEC)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    # One delivery.

    async def _deliver(self, senders: Senders, due: DueDelivery, slot: Slot) -> None:
        try:
            if await self._is_wanted(due):
                attempt = await self._attempt(senders, due)
            else:
                attempt = Attempt(error="the question is closed")
            await self._store.record_attempt(due.delivery, attempt)
            await self._note_device(due.delivery.webhook, attempt)
        except Exception as error:
            # An attempt that cannot be stored is due again when its claim ends.
            if not is_outage(error):
                raise
            OUTAGES.failed(log, "the result of a notification cannot be stored", error)
        finally:
            self._slots.free(slot)
            self._wake.set()

    async def _is_wanted(self, due: DueDelivery) -> bool:
        """Nobody is asked, or reminded, after the question was closed. Programs get every change of state."""
        delivery, asked = due.delivery, due.run.pending_interaction
        if delivery.reason is not DeliveryReason.STATE:
            return await self._store.is_due(delivery)
        if delivery.new is not RunState.WAITING_USER or delivery.webhook.kind is WebhookKind.STANDARD:
            return True
        try:
            run = await self._store.get(delivery.run_id)
        except NotFound:
            return False
        pending = run.pending_interaction if run.answerable else None
        return asked is None or (pending is not None and pending.asked_at == asked.asked_at)

    async def _note_device(self, webhook: Webhook, attempt: Attempt) -> None:
        channel = self.push
        if channel is None or webhook.kind is not WebhookKind.PUSH:
            return
        try:
            if attempt.delivered_at is not None:
                await asyncio.to_thread(channel.devices.succeeded, webhook.url)
            elif attempt.next_attempt_at is None and await asyncio.to_thread(
                channel.ended, webhook.url, attempt.status
            ):
                await self.register()
        except (OSError, Unavailable) as error:
            OUTAGES.failed(log, "cannot write the push subscriptions", error)

    async def _attempt(self, senders: Senders, due: DueDelivery) -> Attempt:
        delivery = due.delivery
        try:
            response = await self._send(senders, due)
        except Refused as error:
            return self._given_up(delivery, None, str(error))
        except Failed as error:
            return self._failed(delivery, None, str(error))
        except Unavailable as error:
            OUTAGES.failed(log, "a notification cannot be sent", error)
            return self._failed(delivery, None, f"not sent: {error.code}")
        except Exception as error:  # a bug in one delivery must not stop the server
            # Its message may contain the URL, which may contain a secret.
            return self._failed(delivery, None, f"internal error ({type(error).__name__})")
        if isinstance(response, MailResponse):
            return self._mail_responded(delivery, response)
        return self._responded(delivery, response)

    async def _send(self, senders: Senders, due: DueDelivery) -> Response | MailResponse:
        if (channel := self._channels.get(due.delivery.webhook.kind)) is not None:
            return await channel.send(due, lambda: self._answer_url(due))
        return await senders.send(await self._message(due))

    async def _message(self, due: DueDelivery) -> Message:
        if due.delivery.webhook.kind is WebhookKind.PUSH:
            return await self._push_request(due)
        delivery, link = due.delivery, self._policy.link
        answer_url = await self._answer_url(due) if delivery.new is RunState.WAITING_USER else None
        run_url = None if link is None else link.replace("{run}", due.run.id)
        style, now = self._policy.style, self._clock()
        notice = Notice.of(due.run, delivery.new, answer_url=answer_url, run_url=run_url, zone=style.zone)
        return message(
            delivery.webhook,
            delivery.id,
            now,
            document=Notification.of(due, answer_url),
            notice=replace(notice, title=reminder_texts.prefix(due, now) + notice.title),
            style=style,
        )

    async def _push_request(self, due: DueDelivery) -> HttpRequest:
        if self.push is None:
            raise Failed("this program sends no pushes")
        return await self.push.request(due, self._clock())

    async def _answer_url(self, due: DueDelivery) -> str | None:
        if self._answer_links is None:
            return None
        try:
            recipient = self._recipient(self._answer_links, due)
        except Unavailable as error:
            log.error("a notification of run %s has no link: %s", due.run.id, error.message)
            return None
        return None if recipient is None else await self._answer_links.answer_link(due.run, recipient)

    def _recipient(self, links: AnswerLinks, due: DueDelivery) -> Recipient | None:
        """Who may answer with the message: the receivers of the settings, and those of callers who may answer."""
        webhook, key = due.delivery.webhook, f"webhook {due.delivery.webhook_number}"
        if (configured := self._of_settings.get((webhook.url, webhook.kind))) is not None:
            return Recipient(name=configured.recipient, key=key)
        if due.run.created_by is None:
            # A user of this machine created the run.
            return Recipient(name=webhook.recipient, key=key)
        creator = links.creator(due.run)
        return None if creator is None else Recipient(name=webhook.recipient, key=key, creator=creator)

    def _mail_responded(self, delivery: Delivery, response: MailResponse) -> Attempt:
        status = response.status
        if 200 <= status < 300:
            return Attempt(status=status, delivered_at=self._clock())
        if status >= 500:
            return self._given_up(delivery, status, response.problem)
        return self._failed(delivery, status, response.problem)

    def _responded(self, delivery: Delivery, response: Response) -> Attempt:
        status = response.status
        if 200 <= status < 300:
            return Attempt(status=status, delivered_at=self._clock())
        if delivery.webhook.kind is WebhookKind.PUSH and status in FINAL:
            return self._given_up(delivery, status, f"the push service returned {status}")
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
