"""Digests: at certain times, each channel for people gets one message about all questions that are open."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from askback.background.outages import OUTAGES
from askback.core.errors import AskbackError, is_outage
from askback.core.runs import Run
from askback.core.webhooks import Webhook
from askback.notifications.delivery import DeliveryPolicy, Senders
from askback.notifications.digest_ledger import DigestClaim, DigestLedger, channel_key
from askback.notifications.digest_times import DigestTimes
from askback.notifications.mail_sender import MailResponse
from askback.notifications.messages import Message
from askback.notifications.messages.digest import Digest, DigestEntry, digest_message
from askback.notifications.sender import Failed, Refused, Response, requested_delay_sec
from askback.runs.links import AnswerLinks, Recipient
from askback.store.base import Store
from askback.text.formatting import count

log = logging.getLogger(__name__)

MAX_LISTED = 10
RETRIES_SEC = (60.0, 300.0, 1800.0, 7200.0)
"""The delay after each failed attempt."""
_RETRY_SEC = 1.0
_MIN_SLEEP_SEC, _MAX_SLEEP_SEC = 0.05, 60.0
"""The wall clock may be set meanwhile, and another server may have failed."""
_GONE = 410


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    """Why a digest was not sent. `final`: another attempt would not help."""

    reason: str
    final: bool = False
    delay_sec: float = 0.0
    """At least, until the next attempt."""


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
        async with Senders(self._policy) as senders:
            while True:
                # Before anything is claimed: what is due since then is seen next time.
                next_at = self._times.next(self._clock())
                retry_at = None
                try:
                    retry_at = await self._send_due(senders, self._times)
                except Exception as error:
                    if not (isinstance(error, AskbackError) or is_outage(error)):
                        raise
                    OUTAGES.failed(log, "cannot send digests", error)
                    retry_at = self._clock() + timedelta(seconds=_RETRY_SEC)
                wait_sec = (min(next_at, retry_at or next_at) - self._clock()).total_seconds()
                await asyncio.sleep(min(max(wait_sec, _MIN_SLEEP_SEC), _MAX_SLEEP_SEC))

    async def _send_due(self, senders: Senders, times: DigestTimes) -> datetime | None:
        """Returns when the next digest that failed is to be sent again."""
        # Another server on this data folder may have registered other webhooks since.
        numbers = await self._store.server_webhooks()
        known = [each for each in self._channels if (each.url, each.kind) in numbers]
        due = await asyncio.to_thread(self._claimed, known, times)
        await asyncio.gather(
            *(self._send(senders, webhook, numbers[webhook.url, webhook.kind], claim) for webhook, claim in due)
        )
        return await asyncio.to_thread(self._ledger.next_retry, [channel_key(webhook) for webhook in known])

    def _claimed(self, channels: Sequence[Webhook], times: DigestTimes) -> Sequence[tuple[Webhook, DigestClaim]]:
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

    async def _send(self, senders: Senders, webhook: Webhook, number: int, claim: DigestClaim) -> None:
        failure = await self._attempt(senders, webhook, number, claim)
        if failure is None:
            return
        if not failure.final and claim.attempts <= len(RETRIES_SEC):
            delay_sec = max(RETRIES_SEC[claim.attempts - 1], failure.delay_sec)
            retry_at = self._clock() + timedelta(seconds=delay_sec)
            try:
                if await asyncio.to_thread(self._ledger.failed, claim, retry_at):
                    return
            except (AskbackError, OSError) as error:
                log.error("cannot write the digests that failed: %s", error)
        attempts = count(claim.attempts, "attempt")
        log.warning("the digest for %s is given up after %s: %s", webhook.shown_url, attempts, failure.reason)

    async def _attempt(self, senders: Senders, webhook: Webhook, number: int, claim: DigestClaim) -> _Failure | None:
        try:
            message = await self._message(webhook, number, claim)
            if message is None:
                log.debug("no question is open: no digest for %s", webhook.shown_url)
                return None
            return self._judged(await senders.send(message), webhook)
        except Refused as error:
            return _Failure(reason=str(error), final=True)
        except (Failed, AskbackError) as error:
            return _Failure(reason=str(error))
        except Exception as error:  # a bug in one digest must not stop the server
            # Its message may contain the URL, which may contain a secret.
            return _Failure(reason=f"internal error ({type(error).__name__})")

    def _judged(self, response: Response | MailResponse, webhook: Webhook) -> _Failure | None:
        status = response.status
        if 200 <= status < 300:
            log.info("a digest was sent to %s", webhook.shown_url)
            return None
        if isinstance(response, MailResponse):
            return _Failure(reason=response.problem, final=status >= 500)
        delay_sec = requested_delay_sec(response.retry_after, self._clock())
        return _Failure(reason=f"the receiver returned {status}", final=status == _GONE, delay_sec=delay_sec)

    # What it says.

    async def _message(self, webhook: Webhook, number: int, claim: DigestClaim) -> Message | None:
        """None if no question is open."""
        now = self._clock()
        found = await self._store.open_questions(webhook.labels, now, MAX_LISTED)
        if not found.oldest:
            return None
        entries = await self._entries(found.oldest, webhook, number)
        digest = Digest(entries=entries, total=found.total, at=now, zone=self._policy.style.zone)
        message_id = f"digest_{claim.channel[:16]}_{int(claim.due_at.timestamp())}"
        return digest_message(webhook, digest, message_id, self._policy.style.sender)

    async def _entries(self, runs: Sequence[Run], webhook: Webhook, number: int) -> tuple[DigestEntry, ...]:
        # The same key as that of single messages: the links are the same, and a revoked one stays revoked.
        recipient = Recipient(name=webhook.recipient, key=f"webhook {number}")
        entries = []
        for run in runs:
            links, link = self._answer_links, self._policy.link
            answer_url = None if links is None else await links.answer_link(run, recipient)
            run_url = None if link is None else link.replace("{run}", run.id)
            entries.append(DigestEntry.of(run, answer_url=answer_url, run_url=run_url))
        return tuple(entries)
