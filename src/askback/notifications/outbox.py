"""The outbox: sends the deliveries that are due, with retries.

A slow receiver must not delay the others, and what callers add must not delay the webhooks of the settings: those have slots
that nobody else can take (`Slots`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from enum import StrEnum, auto

from askback.background.loops import keep_trying
from askback.background.outages import OUTAGES
from askback.core.errors import NotFound, Unavailable, is_outage
from askback.core.runs import RunState
from askback.core.webhooks import Attempt, BusyReceivers, Delivery, DeliveryReason, DueDelivery, WebhookKind
from askback.notifications.channels import DeliveryPolicy, open_channels
from askback.notifications.channels.base import Channel, DueMessage, Failed, Refused, Response
from askback.notifications.channels.webhook import TIMEOUT_SEC, requested_delay_sec
from askback.runs.links import AnswerLinks, Recipient
from askback.store.base import Store
from askback.store.listeners import Changes

log = logging.getLogger(__name__)

_CLAIM_SEC = 4 * TIMEOUT_SEC
_PAUSE_SEC = 0.1
"""Under load, changes are collected for this time."""
_MAX_SLEEP_SEC = 60.0
"""Sleep uses the monotonic clock, but due times use the wall clock, which may be set in the meantime."""

Channels = Mapping[WebhookKind, Channel]


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
        self.channels = dict(channels or {})
        """Those that need more than the policy. A channel may be added at any time."""
        self._of_settings = {(each.url, each.kind): each for each in policy.webhooks}
        self._registering = asyncio.Lock()
        self._slots = Slots()
        self._wake = asyncio.Event()

    async def register(self) -> None:
        """Store the webhooks of the settings and the devices, which every instance on this store uses from now on."""
        # One after the other: an older list of devices must not replace a newer one.
        async with self._registering:
            further = [each for channel in self.channels.values() for each in await channel.receivers()]
            await self._store.register_webhooks((*self._policy.webhooks, *further), self._clock())

    async def run(self) -> None:
        changes = self._store.changes()
        try:
            async with open_channels(self._policy, self.channels) as channels, asyncio.TaskGroup() as group:
                group.create_task(self._listen(changes))

                async def send_and_sleep() -> None:
                    await self._send_due(channels, group)
                    await self._sleep()

                await keep_trying(send_and_sleep, log, "cannot send notifications")
        finally:
            changes.close()
            for channel in self.channels.values():
                await channel.close()

    async def _send_due(self, channels: Channels, group: asyncio.TaskGroup) -> None:
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
                group.create_task(self._deliver(channels, due, slot))

    @property
    def _owners(self) -> Mapping[str, str]:
        """The token of each device, by the URL of the device."""
        return {url: owner for channel in self.channels.values() for url, owner in channel.owners().items()}

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

    async def _deliver(self, channels: Channels, due: DueDelivery, slot: Slot) -> None:
        try:
            if await self._is_wanted(due):
                attempt = await self._attempt(channels, due)
            else:
                attempt = Attempt(error="the question is closed")
            await self._store.record_attempt(due.delivery, attempt)
            channel = self.channels.get(due.delivery.webhook.kind)
            if channel is not None and await channel.record_attempt(due.delivery.webhook, attempt):
                await self.register()
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
        if delivery.reason is DeliveryReason.REMINDER or delivery.reason is DeliveryReason.EXPIRING:
            return await self._store.is_due(delivery)
        if delivery.new is not RunState.WAITING_USER or delivery.webhook.kind is WebhookKind.STANDARD:
            return True
        try:
            run = await self._store.get(delivery.run_id)
        except NotFound:
            return False
        pending = run.pending_interaction if run.answerable else None
        return asked is None or (pending is not None and pending.asked_at == asked.asked_at)

    async def _attempt(self, channels: Channels, due: DueDelivery) -> Attempt:
        delivery, now = due.delivery, self._clock()
        message = DueMessage(
            due=due,
            at=now,
            answer_url=lambda: self._answer_url(due),
            run_url=self._policy.run_url(due.run.id),
            zone=self._policy.zone,
        )
        try:
            response = await channels[delivery.webhook.kind].notify(message)
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
        return self._judged(delivery, response)

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

    def _judged(self, delivery: Delivery, response: Response) -> Attempt:
        if response.problem is None:
            return Attempt(status=response.status, delivered_at=self._clock())
        if response.final:
            return self._given_up(delivery, response.status, response.problem)
        retry_after_sec = requested_delay_sec(response.retry_after, self._clock())
        return self._failed(delivery, response.status, response.problem, retry_after_sec)

    def _failed(self, delivery: Delivery, status: int | None, error: str, retry_after_sec: float = 0.0) -> Attempt:
        """Retry after the delay of the policy, or the longer one that the receiver requested."""
        if delivery.attempts > len(self._policy.retries_sec):
            return self._given_up(delivery, status, error)
        delay_sec = max(self._policy.retries_sec[delivery.attempts - 1], retry_after_sec)
        return Attempt(status=status, error=error, next_attempt_at=self._clock() + timedelta(seconds=delay_sec))

    def _given_up(self, delivery: Delivery, status: int | None, error: str) -> Attempt:
        log.warning("notification %s given up after %d attempts: %s", delivery.id, delivery.attempts, error)
        return Attempt(status=status, error=error)


class _Share(StrEnum):
    """What is limited."""

    ALL = auto()
    CALLERS = auto()
    CALLER = auto()
    HOST = auto()
    HOST_OF_CALLERS = auto()


_LIMITS = {_Share.ALL: 16, _Share.CALLERS: 8, _Share.CALLER: 4, _Share.HOST: 4, _Share.HOST_OF_CALLERS: 2}
_MAX_CLAIM = min(_LIMITS.values())

Slot = tuple[tuple[_Share, str], ...]
"""What a delivery counts for."""


class Slots:
    def __init__(self) -> None:
        self._taken: Counter[tuple[_Share, str]] = Counter()

    @property
    def room(self) -> int:
        """How many deliveries may be claimed now, whatever they are, if those of `busy` are left out."""
        if self._taken[_Share.ALL, ""] >= _LIMITS[_Share.ALL]:
            return 0
        left = (_LIMITS[share] - count for (share, _), count in self._taken.items())
        return min(_MAX_CLAIM, min((each for each in left if each > 0), default=_MAX_CLAIM))

    def busy(self, owners: Mapping[str, str]) -> BusyReceivers:
        """`owners`: of the devices, by their URL."""
        callers = self._full(_Share.CALLER)
        return BusyReceivers(
            hosts=self._full(_Share.HOST),
            hosts_of_callers=self._full(_Share.HOST_OF_CALLERS),
            callers=callers,
            devices=frozenset(url for url, owner in owners.items() if owner in callers),
            all_callers=bool(self._full(_Share.CALLERS)),
        )

    def take(self, due: DueDelivery, owners: Mapping[str, str]) -> Slot:
        host, caller = due.delivery.webhook.host, _caller(due, owners)
        slot: Slot = ((_Share.ALL, ""), (_Share.HOST, host))
        if caller is not None:
            shares = ((_Share.CALLERS, ""), (_Share.CALLER, caller), (_Share.HOST_OF_CALLERS, host))
            slot = ((_Share.ALL, ""), *shares)
        self._taken.update(slot)
        return slot

    def free(self, slot: Slot) -> None:
        self._taken.subtract(slot)
        self._taken = +self._taken

    def _full(self, share: _Share) -> frozenset[str]:
        return frozenset(
            name for (each, name), count in self._taken.items() if each is share and count >= _LIMITS[share]
        )


def _caller(due: DueDelivery, owners: Mapping[str, str]) -> str | None:
    """The token that added the receiver; empty for a user of this machine. None: the settings have it."""
    delivery = due.delivery
    if delivery.of_run:
        return due.run.created_by or ""
    return owners.get(delivery.webhook.url, "") if delivery.webhook.kind is WebhookKind.PUSH else None
