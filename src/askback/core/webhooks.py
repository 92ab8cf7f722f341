"""Webhooks, their deliveries, and messages in chats, as values. Validates webhooks; knows no socket and no database."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Self
from urllib.parse import SplitResult, urlsplit

from askback.core.errors import FieldProblem
from askback.core.runs import Run, RunState

SECRET_PREFIX = "whsec_"
MAILTO = "mailto:"
_SECRET_BYTES = range(16, 129)
MAX_REMINDERS = 100
USUAL_MAX_REMINDERS = 10
MIN_REQUESTED_SEC = 60.0
"""Between the reminders that a request may name: one request must not cause many."""
MAX_REMINDER_SEC = 366 * 24 * 3600.0
_IPV6_PUBLIC = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_NTFY_TOPIC = re.compile(r"[-_A-Za-z0-9]{1,64}")
_ADDRESS = re.compile(
    r"[A-Za-z0-9!#$&'*+/=^_`{|}~-]+(\.[A-Za-z0-9!#$&'*+/=^_`{|}~-]+)*@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*"
)
_ADDRESS_CHARS = 254


class WebhookKind(StrEnum):
    """The format of the message."""

    STANDARD = "standard"
    NTFY = "ntfy"
    SLACK = "slack"
    EMAIL = "email"
    """Only in the settings: otherwise every caller could let the server write to anybody."""
    TELEGRAM = "telegram"
    """A chat of the bot, only in the settings as well."""
    PUSH = "push"
    """To a browser, by its push service. Only a subscription of a device has this kind."""


class DeliveryReason(StrEnum):
    """Why something is sent."""

    STATE = "state"
    """The run has changed its state."""
    REMINDER = "reminder"
    """Its question has been open for some time."""
    EXPIRING = "expiring"
    """The deadline of its question is near."""
    PARKED = "parked"
    """The run waits for a limit of the model provider to end."""
    RESUMED = "resumed"
    """It does not wait for it any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reminders:
    """When a webhook is notified again of a question: these seconds after it was asked, and if its deadline is near."""

    after_sec: tuple[float, ...] = ()
    expiring: bool = True

    @classmethod
    def repeated(
        cls, after_sec: Sequence[float], *, repeat_sec: float | None, limit: int | None = None, expiring: bool = True
    ) -> Self:
        """At `after_sec`, then every `repeat_sec`; no more than `limit` times in all, by default all of `after_sec`."""
        times = sorted(set(after_sec))
        if limit is None:
            limit = max(len(times), USUAL_MAX_REMINDERS)
        while repeat_sec is not None and len(times) < limit:
            times.append((times[-1] if times else 0.0) + repeat_sec)
        return cls(after_sec=tuple(times[:limit]), expiring=expiring)


def reminders_of(kind: WebhookKind, wanted: Reminders | bool | None, usual: Reminders | None) -> Reminders | None:
    """The reminders of a webhook that wants these; True: the `usual` ones. By default, people are reminded."""
    match wanted:
        case Reminders():
            return wanted
        case None:
            return None if kind is WebhookKind.STANDARD else usual
        case _:
            return usual if wanted else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """An address that is notified of states (None: all). `secret` signs requests; for ntfy it is the access token."""

    url: str = field(repr=False)
    secret: str | None = field(default=None, repr=False)
    kind: WebhookKind = WebhookKind.STANDARD
    states: tuple[RunState, ...] | None = None
    reminders: Reminders | None = None
    labels: dict[str, str] = field(default_factory=dict)
    """Only runs with all of these labels."""
    name: str | None = None
    """Of its recipient, from the settings. It is not stored."""
    digest: bool = False
    """Whether it gets digests, from the settings as well."""

    @property
    def recipient(self) -> str:
        """Who gets its messages, as answers name them."""
        return self.name or (self.address if self.kind is WebhookKind.EMAIL else self.kind)

    @property
    def address(self) -> str:
        """The e-mail address of a `mailto:` URL."""
        return self.url.removeprefix(MAILTO)

    @property
    def host(self) -> str:
        """The receiver: name and port."""
        return urlsplit(self.url).netloc.lower()

    @property
    def shown_url(self) -> str:
        """The address without possible secrets: the query, and the path if it acts as a password."""
        if self.kind is WebhookKind.EMAIL:
            return self.url
        parts = urlsplit(self.url)
        origin = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        if self.kind is not WebhookKind.STANDARD:
            return f"{origin}/…"
        return origin + parts.path + ("?…" if parts.query else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One notification to one webhook. `next_attempt_at` None: there will be no further attempt.

    `seq` is the event that it is about: a change of state, also for a reminder of the question that came with it, or
    `interaction.expiring`. `place` counts the reminders of one question; 0 is not a reminder.
    """

    number: int
    webhook_number: int
    webhook: Webhook
    run_id: str
    seq: int
    old: RunState | None
    new: RunState
    at: datetime
    attempts: int
    last_status: int | None
    last_error: str | None
    next_attempt_at: datetime | None
    delivered_at: datetime | None
    reason: DeliveryReason = DeliveryReason.STATE
    place: int = 0
    of_run: bool = False
    """Whether the webhook came with the run. Otherwise it is the server's, or a device."""

    @property
    def id(self) -> str:
        """Unique to this delivery, and the same for every attempt."""
        place = f"_{self.place}" if self.place else ""
        return f"msg_{self.run_id}_{self.seq}_{self.webhook_number}{place}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DueDelivery:
    """A claimed delivery, and the run as it was right after the change; for a reminder, at its first attempt."""

    delivery: Delivery
    run: Run


@dataclass(frozen=True, slots=True, kw_only=True)
class BusyReceivers:
    """Whose deliveries are skipped for now. A caller is the creator of a run, by the name of the token."""

    hosts: frozenset[str] = frozenset()
    """Of webhooks of the settings."""
    hosts_of_callers: frozenset[str] = frozenset()
    """Of webhooks of a run, and of devices."""
    callers: frozenset[str] = frozenset()
    devices: frozenset[str] = frozenset()
    """Their URLs."""
    all_callers: bool = False
    """Everything but the webhooks of the settings."""


NOBODY = BusyReceivers()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryView:
    """Which deliveries a caller sees, besides those to the webhooks that came with a run."""

    of_server: bool = True
    """Those to the webhooks of the settings, and to `devices`."""
    devices: frozenset[str] | None = None
    """The URLs of push devices. None: all."""


EVERY_DELIVERY = DeliveryView()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The result of one attempt. If neither time is set, the delivery has failed for good."""

    status: int | None = None
    error: str | None = None
    next_attempt_at: datetime | None = None
    delivered_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """A message that a reply can refer to. `open`: it still offers to answer the question."""

    chat: int
    message: int
    run_id: str
    interaction_id: str
    open: bool = True


def address_problems(url: str, *, allow_private: bool) -> Sequence[str]:
    """What is wrong with the address of a push service, which a client names. It needs TLS."""
    found = _url_problems(url, allow_private=allow_private)
    if not found and not allow_private and urlsplit(url).scheme != "https":
        return ("must start with https://",)
    return found


def webhook_problems(webhook: Webhook, *path: str | int, allow_private: bool) -> Sequence[FieldProblem]:
    """What is wrong with a webhook, each problem with its path. Host names are resolved only when something is sent."""
    if webhook.kind is WebhookKind.EMAIL:
        return _email_problems(webhook, *path)
    found = [
        FieldProblem.at((*path, "url"), problem) for problem in _url_problems(webhook.url, allow_private=allow_private)
    ]
    if webhook.kind is WebhookKind.STANDARD and webhook.secret is not None and secret_key(webhook.secret) is None:
        found.append(
            FieldProblem.at((*path, "secret"), f"must be '{SECRET_PREFIX}' and the base64 of 16 to 128 random bytes")
        )
    if webhook.kind is WebhookKind.NTFY and webhook.secret is not None and not _fits_header(webhook.secret):
        found.append(FieldProblem.at((*path, "secret"), "an access token has only printable ASCII characters"))
    if (
        webhook.kind is WebhookKind.NTFY
        and not found
        and not is_ntfy_topic(urlsplit(webhook.url).path.rpartition("/")[2])
    ):
        found.append(FieldProblem.at((*path, "url"), "must end with the topic: https://ntfy.sh/my-topic"))
    if webhook.kind is WebhookKind.PUSH:
        found.append(
            FieldProblem.at((*path, "kind"), "a device is added on the page, or by POST /v1/push/subscriptions")
        )
    if webhook.kind is WebhookKind.SLACK and webhook.secret is not None:
        found.append(FieldProblem.at((*path, "secret"), "an incoming webhook of this kind has none; leave it out"))
    return found


def secret_key(secret: str) -> bytes | None:
    """The signing key, or None if the secret is not valid."""
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if secret.startswith(SECRET_PREFIX) and len(key) in _SECRET_BYTES else None


def is_ntfy_topic(text: str) -> bool:
    return _NTFY_TOPIC.fullmatch(text) is not None


def is_email_address(text: str) -> bool:
    """Whether it is an address that needs no quoting in a header, a URL or a command of SMTP."""
    return len(text) <= _ADDRESS_CHARS and _ADDRESS.fullmatch(text) is not None


def _email_problems(webhook: Webhook, *path: str | int) -> Sequence[FieldProblem]:
    found = []
    if not webhook.url.startswith(MAILTO) or not is_email_address(webhook.address):
        found.append(
            FieldProblem.at((*path, "url"), "must be mailto: and one e-mail address, such as mailto:anna@example.org")
        )
    if webhook.secret is not None:
        found.append(
            FieldProblem.at(
                (*path, "secret"), "an e-mail has none; the password of the mail server is notifications.email.password"
            )
        )
    return found


def is_loopback(host: str) -> bool:
    """Whether the host is this machine: a loopback address, or `localhost`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_public(address: str) -> bool:
    """Whether an IP address is public. If it embeds an IPv4 address, that one decides."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = (
            ip.ipv4_mapped or ip.sixtofour or (ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF) if ip in _NAT64 else None)
        )
        if inner is None:
            return ip in _IPV6_PUBLIC and ip.is_global and ip.teredo is None
        ip = inner
    return ip.is_global and not ip.is_multicast and not ip.is_reserved


def _url_problems(url: str, *, allow_private: bool) -> Sequence[str]:
    if not _fits_header(url):
        return ("must be an address in printable ASCII characters, without spaces",)
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return ("is not an address",)
    if parts.scheme not in ("http", "https") or not host:
        return ("must start with https:// or http:// and a host",)
    if "@" in parts.netloc:
        return ("must not contain a user name or password",)
    return () if allow_private else _private(parts)


def _private(parts: SplitResult) -> Sequence[str]:
    try:
        refused = not is_public(parts.hostname or "")
    except ValueError:
        return ()
    return ("is a private address; notifications.allow_private = true in the settings allows it",) if refused else ()


def _fits_header(text: str) -> bool:
    return bool(text) and all("!" <= letter <= "~" for letter in text)
