"""One POST to an address that a stranger may have named. Owns what it may reach; knows no run and no store.

The name is looked up once, what it leads to is judged, and the connection goes to that very address: a name that leads
elsewhere a moment later gains nothing. Redirects are not followed and the answer's body is not read.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self

from askback.core.webhooks import is_public

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx

TIMEOUT_SEC = 15.0
_CONNECT_SEC = 5.0
_LOOKUPS = 4

Resolve = Callable[[str, int], Sequence[str]]


class Refused(Exception):
    """The address is not one that may be told; trying again would not help."""


class Failed(Exception):
    """It was not told this time; says why, without the address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the receiver said; `retry_after` is its header of that name, as it came."""

    status: int
    retry_after: str | None = None


def resolve(host: str, port: int) -> Sequence[str]:
    """Every numeric address of a host, in the system's order."""
    return [str(address[0]) for *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def _lookups() -> ThreadPoolExecutor:
    """Threads of their own: a name server that hangs must not hold up whoever else needs a thread."""
    return ThreadPoolExecutor(_LOOKUPS, thread_name_prefix="askback-webhook-lookup")


@dataclass(slots=True, kw_only=True, eq=False)
class WebhookSender:
    """`async with` it; the client is made with the first message, for most servers send none."""

    allow_private: bool
    resolve: Resolve = resolve
    timeout_sec: float = TIMEOUT_SEC
    _client: httpx.AsyncClient | None = None
    _threads: ThreadPoolExecutor = field(default_factory=_lookups)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._client is not None:
            await self._client.aclose()

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """The head of the answer. Raises `Refused` or `Failed`."""
        try:
            async with asyncio.timeout(self.timeout_sec), self._answered(url, headers, body) as answer:
                return Answer(status=answer.status_code, retry_after=answer.headers.get("retry-after"))
        except TimeoutError:
            raise Failed(f"no answer within {self.timeout_sec:g} s") from None

    @asynccontextmanager
    async def _answered(self, url: str, headers: Mapping[str, str], body: bytes) -> AsyncIterator[httpx.Response]:
        import httpx

        try:
            target = httpx.URL(url)
            address = await self._address(target.host, target.port or (443 if target.scheme == "https" else 80))
            pinned = target.copy_with(host=address)
            named = {**headers, "Host": target.netloc.decode("ascii")}
            extensions = {"sni_hostname": target.raw_host.decode("ascii")}
            client = self._opened()
            async with client.stream("POST", pinned, headers=named, content=body, extensions=extensions) as answer:
                yield answer
        except httpx.TimeoutException:
            raise Failed("the connection timed out") from None
        except httpx.InvalidURL:
            raise Refused("this is not an address") from None
        except (httpx.HTTPError, OSError, ValueError) as error:
            raise Failed(_why(error)) from None

    async def _address(self, host: str, port: int) -> str:
        addresses = await asyncio.get_running_loop().run_in_executor(self._threads, self.resolve, host, port)
        for address in addresses:
            if self.allow_private or is_public(address):
                return address
        if not addresses:
            raise Failed("the name leads to no address")
        raise Refused("this leads to a private address; notifications.allow_private = true in the settings allows it")

    def _opened(self) -> httpx.AsyncClient:
        import httpx

        if self._client is None:
            self._client = httpx.AsyncClient(
                # Proxies of the environment would look the name up again, and connect to what they find.
                trust_env=False,
                follow_redirects=False,
                timeout=httpx.Timeout(self.timeout_sec, connect=_CONNECT_SEC),
                verify=ssl.create_default_context(),
                # A kept connection is found by its address alone, and may belong to another name there.
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            )
        return self._client


def _why(error: Exception) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, socket.gaierror):
            return "the name was not found"
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"the certificate was refused: {cause.verify_message}"
        if isinstance(cause, ConnectionRefusedError):
            return "the connection was refused"
        cause = cause.__cause__ or cause.__context__
    return f"the connection failed ({type(error).__name__})"


LONGEST_SEC = 24 * 3600.0
"""Nobody is waited for any longer than this, whatever he asks for."""
_SECONDS = re.compile(r"[0-9]+", re.ASCII)


def asked_pause_sec(header: str | None, now: datetime) -> float:
    """The seconds that the header asks for, as a number or as a date; none for what is neither, or is past."""
    if header is None:
        return 0.0
    text = header.strip()
    seconds = float(text) if _SECONDS.fullmatch(text) else _until(text, now)
    return min(max(seconds, 0.0), LONGEST_SEC)


def _until(date: str, now: datetime) -> float:
    try:
        moment = parsedate_to_datetime(date)
        # A date of HTTP is in UTC, also where it does not say so.
        return (moment.replace(tzinfo=moment.tzinfo or UTC) - now).total_seconds()
    except (ValueError, OverflowError):
        return 0.0
