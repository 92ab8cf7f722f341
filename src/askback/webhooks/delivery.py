"""Telling webhooks of changes: an outbox in the store, and one sleeper that wakes for the earliest delivery.

At least once on the wire, always under the same id; exactly one entry in the log for each webhook and change.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from askback.core.errors import Unavailable
from askback.core.webhooks import Attempt, Delivery, DueDelivery, Webhook
from askback.store.base import Changes, Store
from askback.webhooks.formats import message
from askback.webhooks.sender import TIMEOUT_SEC, Answer, Failed, Refused, WebhookSender, asked_pause_sec

log = logging.getLogger(__name__)

RETRIES_SEC = (5.0, 30.0, 120.0, 600.0, 3600.0, 3 * 3600.0, 6 * 3600.0, 12 * 3600.0)
"""How long to wait after each attempt that failed: some 22 hours in all, then the delivery is given up."""
_IN_ALL = 16
_AT_A_HOST = 4
"""A receiver that hangs must not keep the others from being told."""
_CLAIM_SEC = 4 * TIMEOUT_SEC
_PAUSE_SEC = 0.1
"""Under load many runs change at once; they are looked at together."""
_LONGEST_SLEEP_SEC = 60.0
"""A sleep is measured by the monotonic clock and an attempt's time by the wall's, which may be set while we sleep."""
_GONE = 410


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryPolicy:
    """How notifications are sent, by the settings."""

    webhooks: tuple[Webhook, ...] = ()
    allow_private: bool = False
    link: str | None = None
    retries_sec: Sequence[float] = RETRIES_SEC


class Notifications:
    def __init__(self, *, store: Store, sending: DeliveryPolicy, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._sending = sending
        self._clock = clock
        self._under_way: Counter[str] = Counter()
        self._stirred = asyncio.Event()

    async def register(self) -> None:
        """Before any run moves: every program on this store writes for the server's webhooks from now on."""
        await self._store.register_webhooks(self._sending.webhooks)

    async def run(self) -> None:
        changes = self._store.changes()
        try:
            async with WebhookSender(allow_private=self._sending.allow_private) as poster, asyncio.TaskGroup() as group:
                group.create_task(self._listen(changes))
                while True:
                    try:
                        await self._send_due(poster, group)
                        await self._sleep()
                    except Unavailable as error:
                        log.error("notifications cannot be sent: %s", error.message)
                        await asyncio.sleep(_LONGEST_SLEEP_SEC)
        finally:
            changes.close()

    # What is due.

    async def _send_due(self, poster: WebhookSender, group: asyncio.TaskGroup) -> None:
        self._stirred.clear()
        while (free := _IN_ALL - self._under_way.total()) > 0:
            earliest = await self._store.next_delivery(without_hosts=self._busy)
            now = self._clock()
            if earliest is None or earliest > now:
                return
            until = now + timedelta(seconds=_CLAIM_SEC)
            limit = min(free, _AT_A_HOST)
            for due in await self._store.claim_deliveries(now, until=until, limit=limit, without_hosts=self._busy):
                self._under_way[due.delivery.webhook.host] += 1
                group.create_task(self._deliver(poster, due))

    @property
    def _busy(self) -> Collection[str]:
        return [host for host, count in self._under_way.items() if count >= _AT_A_HOST]

    async def _listen(self, changes: Changes) -> None:
        with suppress(Unavailable):
            while True:
                await changes.wait()
                self._stirred.set()
                await asyncio.sleep(_PAUSE_SEC)

    async def _sleep(self) -> None:
        """Until the earliest attempt, a change of any run, or the end of an attempt that others wait for."""
        at = None if self._under_way.total() >= _IN_ALL else await self._store.next_delivery(without_hosts=self._busy)
        seconds = None if at is None else min(max((at - self._clock()).total_seconds(), 0), _LONGEST_SLEEP_SEC)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stirred.wait()

    # One delivery.

    async def _deliver(self, poster: WebhookSender, due: DueDelivery) -> None:
        try:
            attempt = await self._attempt(poster, due)
            # An attempt that cannot be noted is due again when its claim ends.
            with suppress(Unavailable):
                await self._store.note_attempt(due.delivery, attempt)
        finally:
            self._under_way.subtract((due.delivery.webhook.host,))
            self._under_way = +self._under_way
            self._stirred.set()

    async def _attempt(self, poster: WebhookSender, due: DueDelivery) -> Attempt:
        delivery = due.delivery
        try:
            sent = message(due, self._clock(), self._sending.link)
            answer = await poster.post(delivery.webhook.url, sent.headers, sent.body)
        except Refused as error:
            return self._given_up(delivery, None, str(error))
        except Failed as error:
            return self._failed(delivery, None, str(error))
        except Exception as error:  # a fault of ours in telling one receiver must not end the server
            # Its own words may hold the address, which may hold a secret.
            return self._failed(delivery, None, f"a fault of Askback's own ({type(error).__name__})")
        return self._answered(delivery, answer)

    def _answered(self, delivery: Delivery, answer: Answer) -> Attempt:
        status = answer.status
        if 200 <= status < 300:
            return Attempt(status=status, delivered_at=self._clock())
        if status == _GONE:
            return self._given_up(delivery, status, "the receiver says that it is gone for good (410)")
        redirect = ": a redirect, which is not followed" if 300 <= status < 400 else ""
        asked_sec = asked_pause_sec(answer.retry_after, self._clock())
        return self._failed(delivery, status, f"the receiver answered {status}{redirect}", asked_sec)

    def _failed(self, delivery: Delivery, status: int | None, error: str, asked_sec: float = 0.0) -> Attempt:
        """Again after our own pause, or the longer one that the receiver asked for."""
        if delivery.attempts > len(self._sending.retries_sec):
            return self._given_up(delivery, status, error)
        pause_sec = max(self._sending.retries_sec[delivery.attempts - 1], asked_sec)
        return Attempt(status=status, error=error, next_attempt_at=self._clock() + timedelta(seconds=pause_sec))

    def _given_up(self, delivery: Delivery, status: int | None, error: str) -> Attempt:
        log.warning("notification %s given up after %d attempts: %s", delivery.id, delivery.attempts, error)
        return Attempt(status=status, error=error)
