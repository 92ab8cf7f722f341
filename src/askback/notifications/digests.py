"""Digests: at certain times, each channel for people gets one message about all questions that are open.

`DigestTimes` says when, `DigestLedger` which were sent, and `Digests` sends those that are due.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta, tzinfo

from askback.background.outages import OUTAGES
from askback.core.errors import AskbackError, is_outage
from askback.core.webhooks import Webhook, WebhookKind
from askback.fs.records import Records
from askback.notifications.channels import DeliveryPolicy, open_channels
from askback.notifications.channels.base import Channel, Failed, Refused
from askback.notifications.channels.webhook import requested_delay_sec
from askback.notifications.notice import Digest, DigestEntry
from askback.runs.links import AnswerLinks, Recipient
from askback.store.base import Store
from askback.text.formatting import count

log = logging.getLogger(__name__)

MAX_LISTED = 10
RETRIES_SEC = (60.0, 300.0, 1800.0, 7200.0)
"""The delay after each failed attempt."""
LATEST = timedelta(hours=12)
"""A digest that is later than this is not sent any more: the next one is near."""
_AHEAD = timedelta(days=2)
"""A record from further in the future was written while the clock was wrong."""
_RETRY_SEC = 1.0
_MIN_SLEEP_SEC, _MAX_SLEEP_SEC = 0.05, 60.0
"""The wall clock may be set meanwhile, and another server may have failed."""

Channels = Mapping[WebhookKind, Channel]


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestTimes:
    """When digests are due: at listed times of day, in one time zone.

    Each listed time of a day is one moment, whatever the clocks of the zone do on that day.

    A time that occurs twice is the first of the two. A time that is skipped is as long after midnight as it would be on
    another day. Two listed times can be the same moment.
    """

    at: tuple[time, ...]
    zone: tzinfo | None = None
    """None: that of this machine."""

    def latest(self, now: datetime) -> datetime:
        """The last of these moments that is not after `now`, in UTC."""
        return max(moment for moment in self._around(now) if moment <= now)

    def next(self, now: datetime) -> datetime:
        """The first of these moments after `now`, in UTC."""
        return min(moment for moment in self._around(now) if moment > now)

    def _around(self, now: datetime) -> Iterator[datetime]:
        # A zone that moves to the other side of the date line skips a day.
        today = now.astimezone(self.zone).date()
        for days in range(-2, 3):
            day = today + timedelta(days=days)
            yield from (datetime.combine(day, at, tzinfo=self.zone).astimezone(UTC) for at in self.at)


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestRecord:
    digest: str
    """Of the channel: see `channel_key`."""
    last_at: datetime
    """All digests up to this one are sent, or are not to be sent."""
    attempts: int = 0
    """To send the last one."""
    retry_at: datetime | None = None
    """When the last one is to be sent again, because it failed."""


def channel_key(webhook: Webhook) -> str:
    return hashlib.sha256(f"{webhook.kind} {webhook.url}".encode()).hexdigest()


class DigestLedger:
    """Which digests were sent. A claimed digest is sent at most once. Methods may write: call them in a thread."""

    def __init__(self, records: Records) -> None:
        self._stored = records.collection("digests", DigestRecord)

    def begin(self, channels: Collection[str], now: datetime) -> None:
        """Forget other channels than these. A new one gets the digests that are due after `now`."""
        if not channels and not self._stored.read():
            return
        with self._stored.changing() as records:
            for other in records.keys() - set(channels):
                del records[other]
            for channel in channels:
                records.setdefault(channel, DigestRecord(digest=channel, last_at=now))

    def claim(self, channel: str, latest: datetime, now: datetime) -> DigestRecord | None:
        """Claim the digest that this channel is to get now, if any: nobody can claim it again. `latest` is when it was due."""
        if self._claimed(self._stored.read().get(channel), channel, latest, now) is None:
            return None
        with self._stored.changing() as records:
            after = self._claimed(records.get(channel), channel, latest, now)
            if after is None:
                return None
            records[channel] = after
        return after if after.attempts else None

    def next_retry(self, channels: Collection[str]) -> datetime | None:
        """When the next digest that failed is to be sent again, of these channels."""
        records = [record for record in self._stored.read().values() if record.digest in channels]
        return min((record.retry_at for record in records if record.retry_at is not None), default=None)

    def failed(self, claim: DigestRecord, retry_at: datetime) -> bool:
        """Whether the digest is sent again then: not if it would be too late, or if the next one was claimed."""
        if retry_at - claim.last_at > LATEST:
            return False
        with self._stored.changing() as records:
            record = records.get(claim.digest)
            if record is None or (record.last_at, record.attempts) != (claim.last_at, claim.attempts):
                return False
            records[claim.digest] = replace(record, retry_at=retry_at)
        return True

    def _claimed(
        self, record: DigestRecord | None, channel: str, latest: datetime, now: datetime
    ) -> DigestRecord | None:
        """The record as it is to be now, or None if it is right."""
        if record is None or record.last_at > now + _AHEAD:
            return DigestRecord(digest=channel, last_at=now)
        if latest > record.last_at and now - latest <= LATEST:
            return DigestRecord(digest=channel, last_at=latest, attempts=1)
        if record.retry_at is not None and record.retry_at <= now:
            is_late = now - record.last_at > LATEST
            attempts = 0 if is_late else record.attempts + 1
            return replace(record, attempts=attempts, retry_at=None)
        return None


class Digests:
    def __init__(
        self,
        *,
        store: Store,
        policy: DeliveryPolicy,
        times: DigestTimes | None,
        ledger: DigestLedger,
        clock: Callable[[], datetime],
        answer_links: AnswerLinks | None = None,
    ) -> None:
        """`times` None: there are no digests."""
        self._store = store
        self._policy = policy
        self._times = times
        self._ledger = ledger
        self._clock = clock
        self._answer_links = answer_links
        self._channels = () if times is None else tuple(each for each in policy.webhooks if each.digest)

    async def run(self) -> None:
        try:
            keys = [channel_key(webhook) for webhook in self._channels]
            await asyncio.to_thread(self._ledger.begin, keys, self._clock())
        except Exception as error:
            if not (isinstance(error, AskbackError) or is_outage(error)):
                raise
            log.error("cannot prepare digests: %s", error)
        if self._times is None or not self._channels:
            return
        async with open_channels(self._policy) as channels:
            while True:
                # Before anything is claimed: what is due since then is seen next time.
                next_at = self._times.next(self._clock())
                retry_at = None
                try:
                    retry_at = await self._send_due(channels, self._times)
                except Exception as error:
                    if not (isinstance(error, AskbackError) or is_outage(error)):
                        raise
                    OUTAGES.failed(log, "cannot send digests", error)
                    retry_at = self._clock() + timedelta(seconds=_RETRY_SEC)
                wait_sec = (min(next_at, retry_at or next_at) - self._clock()).total_seconds()
                await asyncio.sleep(min(max(wait_sec, _MIN_SLEEP_SEC), _MAX_SLEEP_SEC))

    async def _send_due(self, channels: Channels, times: DigestTimes) -> datetime | None:
        """Returns when the next digest that failed is to be sent again."""
        # Another server on this data folder may have registered other webhooks since.
        numbers = await self._store.server_webhooks()
        known = [each for each in self._channels if (each.url, each.kind) in numbers]
        due = await asyncio.to_thread(self._claimed, known, times)
        await asyncio.gather(
            *(self._send(channels, webhook, numbers[webhook.url, webhook.kind], claim) for webhook, claim in due)
        )
        return await asyncio.to_thread(self._ledger.next_retry, [channel_key(webhook) for webhook in known])

    def _claimed(self, channels: Sequence[Webhook], times: DigestTimes) -> Sequence[tuple[Webhook, DigestRecord]]:
        now, found = self._clock(), []
        for webhook in channels:
            try:
                claim = self._ledger.claim(channel_key(webhook), times.latest(now), now)
            except (AskbackError, OSError) as error:
                # What is claimed already must be sent all the same.
                log.error("cannot send a digest: %s", error)
                break
            if claim is not None:
                found.append((webhook, claim))
        return found

    async def _send(self, channels: Channels, webhook: Webhook, number: int, claim: DigestRecord) -> None:
        reason, delay_sec = await self._attempt(channels, webhook, number, claim)
        if reason is None:
            return
        if delay_sec is not None and claim.attempts <= len(RETRIES_SEC):
            retry_at = self._clock() + timedelta(seconds=max(RETRIES_SEC[claim.attempts - 1], delay_sec))
            try:
                if await asyncio.to_thread(self._ledger.failed, claim, retry_at):
                    return
            except (AskbackError, OSError) as error:
                log.error("cannot write the digests that failed: %s", error)
        attempts = count(claim.attempts, "attempt")
        log.warning("the digest for %s is given up after %s: %s", webhook.shown_url, attempts, reason)

    async def _attempt(
        self, channels: Channels, webhook: Webhook, number: int, claim: DigestRecord
    ) -> tuple[str | None, float | None]:
        """Why the digest was not sent, and how long the receiver wants no other attempt. None: it never does."""
        try:
            digest = await self._digest(webhook, number)
            if digest is None:
                log.debug("no question is open: no digest for %s", webhook.shown_url)
                return None, None
            message_id = f"digest_{claim.digest[:16]}_{int(claim.last_at.timestamp())}"
            response = await channels[webhook.kind].send_digest(webhook, digest, message_id)
        except Refused as error:
            return str(error), None
        except (Failed, AskbackError) as error:
            return str(error), 0.0
        except Exception as error:  # a bug in one digest must not stop the server
            # Its message may contain the URL, which may contain a secret.
            return f"internal error ({type(error).__name__})", 0.0
        if response.problem is None:
            log.info("a digest was sent to %s", webhook.shown_url)
        return response.problem, None if response.final else requested_delay_sec(response.retry_after, self._clock())

    async def _digest(self, webhook: Webhook, number: int) -> Digest | None:
        """None if no question is open."""
        now = self._clock()
        found = await self._store.open_questions(webhook.labels, now, MAX_LISTED)
        if not found.oldest:
            return None
        # The same key as that of single messages: the links are the same, and a revoked one stays revoked.
        recipient = Recipient(name=webhook.recipient, key=f"webhook {number}")
        entries = []
        for run in found.oldest:
            answer_url = None if self._answer_links is None else await self._answer_links.answer_link(run, recipient)
            entries.append(DigestEntry.of(run, answer_url=answer_url, run_url=self._policy.run_url(run.id)))
        return Digest(entries=tuple(entries), total=found.total, at=now, zone=self._policy.zone)
