"""Webhooks: one POST request to an untrusted URL. ntfy and Slack are webhooks with other messages.

The host name is resolved once, the address is checked, and the connection goes to that address: a different DNS response
a moment later has no effect. Redirects are not followed and the body of the response is not read.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import re
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Self

import msgspec

from askback import __version__
from askback.core.webhooks import Webhook, is_public, secret_key
from askback.notifications.channels.base import Channel, Failed, Message, Refused, Response
from askback.notifications.notice import Digest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx

TIMEOUT_SEC = 15.0
_CONNECT_SEC = 5.0
_LOOKUPS = 4

Resolve = Callable[[str, int], Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


def json_request(url: str, body: Any, headers: Mapping[str, str] | None = None) -> HttpRequest:
    """A POST request with a JSON body. `body` may be encoded already."""
    encoded = body if isinstance(body, bytes) else msgspec.json.encode(body)
    common = {"Content-Type": "application/json", "User-Agent": f"askback/{__version__}"}
    return HttpRequest(url=url, headers={**common, **(headers or {})}, body=encoded)


def resolve(host: str, port: int) -> Sequence[str]:
    """The addresses of a host, in the order of the system."""
    return [str(address[0]) for *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


@dataclass(slots=True, kw_only=True, eq=False)
class WebhookSender:
    """Use it with `async with`. The client is created with the first request, because most servers send none."""

    allow_private: bool
    resolve: Resolve = resolve
    timeout_sec: float = TIMEOUT_SEC
    _client: httpx.AsyncClient | None = None
    _threads: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(_LOOKUPS, thread_name_prefix="askback-webhook-lookup")
    )
    """Separate threads: a slow name server must not block other work."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._client is not None:
            await self._client.aclose()

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Response:
        """Raises `Refused` or `Failed`."""
        try:
            async with asyncio.timeout(self.timeout_sec), self._request(url, headers, body) as response:
                return Response.of_http(response.status_code, retry_after=response.headers.get("retry-after"))
        except TimeoutError:
            raise Failed(f"no response within {self.timeout_sec:g} s") from None

    @asynccontextmanager
    async def _request(self, url: str, headers: Mapping[str, str], body: bytes) -> AsyncIterator[httpx.Response]:
        import httpx

        try:
            target = httpx.URL(url)
            address = await self._address(target.host, target.port or (443 if target.scheme == "https" else 80))
            pinned = target.copy_with(host=address)
            named = {**headers, "Host": target.netloc.decode("ascii")}
            extensions = {"sni_hostname": target.raw_host.decode("ascii")}
            client = self._open_client()
            async with client.stream("POST", pinned, headers=named, content=body, extensions=extensions) as response:
                yield response
        except httpx.TimeoutException:
            raise Failed("the connection timed out") from None
        except httpx.InvalidURL:
            raise Refused("this is not a valid URL") from None
        except (httpx.HTTPError, OSError, ValueError) as error:
            raise Failed(why_failed(error)) from None

    async def _address(self, host: str, port: int) -> str:
        addresses = await asyncio.get_running_loop().run_in_executor(self._threads, self.resolve, host, port)
        for address in addresses:
            if self.allow_private or is_public(address):
                return address
        if not addresses:
            raise Failed("the host name has no address")
        raise Refused("the host name resolves to a private address; set notifications.allow_private = true to allow it")

    def _open_client(self) -> httpx.AsyncClient:
        import httpx

        if self._client is None:
            self._client = httpx.AsyncClient(
                # A proxy would resolve the name again, and connect to another address.
                trust_env=False,
                follow_redirects=False,
                timeout=httpx.Timeout(self.timeout_sec, connect=_CONNECT_SEC),
                verify=ssl.create_default_context(),
                # A pooled connection is found by its address alone, and may belong to another host name.
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            )
        return self._client


@dataclass(eq=False, repr=False)
class HttpChannel(Channel):
    """Sends each message as one request. `digest_request` None: the kind has no digests."""

    sender: WebhookSender
    request: Callable[[Message], HttpRequest]
    digest_request: Callable[[Webhook, Digest], HttpRequest] | None = None

    async def send(self, message: Message) -> Response:
        return await self._post(self.request(message))

    async def send_digest(self, webhook: Webhook, digest: Digest, message_id: str) -> Response:
        if self.digest_request is None:
            return await super().send_digest(webhook, digest, message_id)
        return await self._post(self.digest_request(webhook, digest))

    async def _post(self, request: HttpRequest) -> Response:
        return await self.sender.post(request.url, request.headers, request.body)


# The messages for programs, as Standard Webhooks describes them.


def signature(secret: str, message_id: str, timestamp: str, body: bytes) -> str:
    """The signature of the id, the time of the attempt and the body."""
    key = secret_key(secret)
    assert key is not None, "secrets are validated before they are stored"
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


def standard_request(message: Message) -> HttpRequest:
    webhook, body = message.webhook, msgspec.json.encode(message.document)
    timestamp = str(int(message.at.timestamp()))
    headers = {"webhook-id": message.id, "webhook-timestamp": timestamp}
    if webhook.secret is not None:
        headers["webhook-signature"] = signature(webhook.secret, message.id, timestamp, body)
    return json_request(webhook.url, body, headers)


def why_failed(error: Exception) -> str:
    """Why a connection failed, without the address."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, socket.gaierror):
            return "the host name was not found"
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"the certificate is invalid: {cause.verify_message}"
        if isinstance(cause, ConnectionRefusedError):
            return "the connection was refused"
        cause = cause.__cause__ or cause.__context__
    return f"the connection failed ({type(error).__name__})"


MAX_DELAY_SEC = 24 * 3600.0
"""The maximum delay that a receiver can request."""
_SECONDS = re.compile(r"[0-9]+", re.ASCII)


def requested_delay_sec(header: str | None, now: datetime) -> float:
    """The delay from a `Retry-After` header, in seconds or as a date. 0 if it is invalid or past."""
    if header is None:
        return 0.0
    text = header.strip()
    seconds = float(text) if _SECONDS.fullmatch(text) else _until(text, now)
    return min(max(seconds, 0.0), MAX_DELAY_SEC)


def _until(date: str, now: datetime) -> float:
    try:
        moment = parsedate_to_datetime(date)
        # HTTP dates are in UTC, even without a time zone.
        return (moment.replace(tzinfo=moment.tzinfo or UTC) - now).total_seconds()
    except (ValueError, OverflowError):
        return 0.0
