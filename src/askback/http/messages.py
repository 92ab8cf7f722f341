"""JSON-RPC messages for an application that decodes bodies itself. Each has passed the rules of every JSON body before."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from askback.background.pools import Pool
from askback.core.errors import AskbackError
from askback.http.bodies import BodyMemory, Checked
from askback.http.context import json_response
from askback.http.problems import default_code, retry_after, status_of

METHOD = "askback.rpc_method"
"""The key of the ASGI scope with the method of the message; None for a response."""
MAX_VALUES = 20_000
"""The application decodes in the event loop: more values would stop the server for a moment."""
SMALL_BYTES = 65_536
SMALL_VALUES = 2_000
_LARGE = frozenset({"tools/call", "tasks/update"})
"""The methods that carry input or answers. All other messages are small."""
_TOO_LARGE = (
    f"the message is too large: apart from {' and '.join(sorted(_LARGE))}, {SMALL_BYTES} bytes and {SMALL_VALUES} values are"
    " allowed"
)
_HELD_BYTES = 64 << 20
_MAX_LEVELS = 100
_PARSE_ERROR = -32700
_INVALID_REQUEST = -32600


class Messages:
    """Passes a complete and checked body to the application, and refuses others with a JSON-RPC error.

    Messages that are being handled hold up to `_HELD_BYTES`, apart from the other bodies: a call may wait for minutes.
    """

    def __init__(self, app: ASGIApp, parsing: Pool) -> None:
        self._app = app
        self._parsing = parsing
        self._memory = BodyMemory(_HELD_BYTES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            await self._app(scope, _Replayed(b"", receive), send)
            return
        async with AsyncExitStack() as handling:
            try:
                checked = await self._checked(scope, receive, handling)
                method, body = _allowed_method(checked), checked.body
            except (HTTPException, AskbackError) as error:
                await _refusal(error)(scope, receive, send)
                return
            del checked
            await self._app({**scope, METHOD: method}, _Replayed(body, receive), send)

    async def _checked(self, scope: Scope, receive: Receive, handling: AsyncExitStack) -> Checked:
        scope["askback.body_values"] = min(scope.get("askback.body_values", MAX_VALUES), MAX_VALUES)
        return await handling.enter_async_context(self._memory.check(Request(scope, receive), self._parsing))


def _allowed_method(checked: Checked) -> str | None:
    """The method of a message that is small enough for it; None for a response."""
    document = checked.document
    given = document if isinstance(document, dict) else {}
    method = given.get("method")
    # A response to a request of the server has no method; it carries a person's answer.
    is_large = method in _LARGE if isinstance(method, str) else "result" in given
    if not is_large and (len(checked.body) > SMALL_BYTES or checked.values > SMALL_VALUES):
        raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _TOO_LARGE)
    if _is_deep(document):
        raise HTTPException(HTTPStatus.BAD_REQUEST, "the JSON is nested too deeply")
    return method if isinstance(method, str) else None


def _is_deep(document: Any) -> bool:
    """Whether there are more levels than the application can write again."""
    level = [document]
    for _ in range(_MAX_LEVELS):
        inside = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [value for values in inside for value in values]
        if not level:
            return False
    return True


class _Replayed:
    """Receives a body that is complete, and then only that the client has left."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if (body := self._body) is not None:
            self._body = None
            return {"type": "http.request", "body": body, "more_body": False}
        while (message := await self._receive())["type"] == "http.request":
            pass
        return message


def _refusal(error: HTTPException | AskbackError) -> Response:
    """What the API would answer, as JSON-RPC. The `id` is null: the message was not accepted."""
    headers: Mapping[str, str] | None = None
    if isinstance(error, AskbackError):
        status, code, detail, headers = status_of(error.code), str(error.code), error.message, retry_after(error)
    else:
        status, detail, headers = HTTPStatus(error.status_code), str(error.detail), error.headers
        code = default_code(status)
    number = _PARSE_ERROR if status is HTTPStatus.BAD_REQUEST else _INVALID_REQUEST
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": number, "message": detail, "data": {"code": code}}}
    return json_response(body, status, headers)
