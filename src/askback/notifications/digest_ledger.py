"""Which digests were sent. What is claimed here is sent by nobody else, and never again."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from askback.core.webhooks import Webhook
from askback.fs.records import Records

LATEST = timedelta(hours=12)
"""A digest that is later than this is not sent any more: the next one is near."""
_AHEAD = timedelta(days=2)
"""A record from further in the future was written while the clock was wrong."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestClaim:
    """The right to send one digest once. It does not come back if the program dies."""

    channel: str
    due_at: datetime
    attempts: int


def channel_key(webhook: Webhook) -> str:
    return hashlib.sha256(f"{webhook.kind} {webhook.url}".encode()).hexdigest()


class DigestLedger:
    """All methods may write: call them in a thread."""

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

    def claim(self, channel: str, latest: datetime, now: datetime) -> DigestClaim | None:
        """The digest that this channel is to get now, if any. `latest` is the last due time."""
        if self._claimed(self._stored.read().get(channel), channel, latest, now) is None:
            return None
        with self._stored.changing() as records:
            after = self._claimed(records.get(channel), channel, latest, now)
            if after is None:
                return None
            records[channel] = after
        if after.attempts == 0:
            return None
        return DigestClaim(channel=channel, due_at=after.last_at, attempts=after.attempts)

    def next_retry(self, channels: Collection[str]) -> datetime | None:
        """When the next digest that failed is to be sent again, of these channels."""
        records = [record for record in self._stored.read().values() if record.digest in channels]
        return min((record.retry_at for record in records if record.retry_at is not None), default=None)

    def failed(self, claim: DigestClaim, retry_at: datetime) -> bool:
        """Whether the digest is sent again then: not if it would be too late, or if the next one was claimed."""
        if retry_at - claim.due_at > LATEST:
            return False
        with self._stored.changing() as records:
            record = records.get(claim.channel)
            if record is None or (record.last_at, record.attempts) != (claim.due_at, claim.attempts):
                return False
            records[claim.channel] = replace(record, retry_at=retry_at)
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
