"""The Telegram Bot API: calls, and what a bot receives. The token is part of every address, so no error here contains an address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from askback import __version__
from askback.core.errors import is_temporary, shortage
from askback.core.webhooks import is_loopback
from askback.notifications.channels.webhook import why_failed

if TYPE_CHECKING:
    import httpx

API_URL = "https://api.telegram.org"
_TIMEOUT_SEC = 15.0
_CONNECT_SEC = 10.0


class BotApiError(Exception):
    """A call failed. The message does not contain the token."""


class Unreachable(BotApiError):
    """There was no response, or one that is not from the Bot API."""


class Refused(BotApiError):
    def __init__(self, status: int, description: str, parameters: Mapping[str, Any]) -> None:
        super().__init__(description)
        self.status = status
        self.description = description
        after = parameters.get("retry_after")
        self.retry_after_sec = float(after) if isinstance(after, int | float) and after > 0 else 0.0
        self.migrated_to = parameters.get("migrate_to_chat_id")

    @property
    def of_token(self) -> bool:
        """Whether the token is wrong: 401, or 404 if it does not even have the form of one."""
        return self.status in (401, 404)


@dataclass(slots=True, kw_only=True, eq=False)
class BotApi:
    """One bot. The connection is opened with the first call."""

    token: str = field(repr=False)
    url: str = API_URL
    _client: httpx.AsyncClient | None = None

    async def call(self, method: str, *, waits_sec: float = 0.0, **parameters: Any) -> Any:
        """The result of a method, without parameters that are None. Raises `Refused` or `Unreachable`."""
        import httpx

        given = {name: value for name, value in parameters.items() if value is not None}
        timeout = httpx.Timeout(_TIMEOUT_SEC + waits_sec, connect=_CONNECT_SEC)
        try:
            response = await self._open_client().post(
                f"{self.url}/bot{self.token}/{method}", json=given, timeout=timeout
            )
            document = response.json()
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            raise Unreachable(why_failed(error)) from None
        except RuntimeError as error:
            if not is_temporary(error):
                raise
            # Names are resolved in a thread.
            raise Unreachable(shortage(error).message) from None
        if not isinstance(document, Mapping) or "ok" not in document:
            raise Unreachable(f"the response with status {response.status_code} is not one of the Bot API")
        if document["ok"] is not True:
            description = str(document.get("description", "no reason given")).replace(self.token, "[token]")
            parameters_given = document.get("parameters")
            more = parameters_given if isinstance(parameters_given, Mapping) else {}
            raise Refused(response.status_code, description, more)
        return document.get("result")

    async def close(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.aclose()

    def _open_client(self) -> httpx.AsyncClient:
        import httpx

        if self._client is None:
            self._client = httpx.AsyncClient(
                headers={"User-Agent": f"askback/{__version__}"},
                follow_redirects=False,
                # A proxy cannot reach a server on this machine.
                trust_env=not is_loopback(urlsplit(self.url).hostname or ""),
            )
        return self._client


# What a bot receives: taps on buttons and messages. Unknown fields are ignored.

ALLOWED = ("message", "callback_query")


class User(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    is_bot: bool = False


class ChatRef(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    type: str = ""


class MessageRef(msgspec.Struct, frozen=True, kw_only=True):
    message_id: int
    chat: ChatRef
    sender: User | None = msgspec.field(default=None, name="from")


class Written(msgspec.Struct, frozen=True, kw_only=True):
    message_id: int
    chat: ChatRef
    sender: User | None = msgspec.field(default=None, name="from")
    text: str | None = None
    reply_to_message: MessageRef | None = None


class Tap(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    sender: User = msgspec.field(name="from")
    data: str | None = None
    message: MessageRef | None = None


def read_update(update: Mapping[str, Any]) -> Written | Tap | None:
    """The message or the tap in an update; None for other kinds, and for what is malformed."""
    try:
        if "callback_query" in update:
            return msgspec.convert(update["callback_query"], Tap)
        return msgspec.convert(update["message"], Written) if "message" in update else None
    except msgspec.ValidationError:
        return None
