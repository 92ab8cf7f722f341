"""Request bodies: limits on size, time, depth and memory, and strict JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import msgspec
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from askback.background.pools import PARTY, Party, Pool, Shares
from askback.core.errors import RefusalCode, Unavailable
from askback.http.auth import check_still_valid
from askback.http.problems import problem
from askback.wire.base import Shape
from askback.wire.reading import read_body

S = TypeVar("S", bound=Shape)
T = TypeVar("T")

FORM = "multipart/form-data"
THREAD_BYTES = 65_536
"""A larger body is decoded in a thread."""
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_REPLY_BYTES = 7 << 20
"""A reply of 1 MB takes six times as much if a client escapes every character."""
_CALL_BYTES = 2 << 20
_SMALL_BYTES = 256 << 10
_LARGE_BYTES = 1 << 20
_RESERVE_BYTES = 32 << 20
_OF_LINK_BYTES = 1 << 20
"""Of the reserve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyLimits:
    """How large a body may be, and how slow. A client may be `seconds` behind a rate of `bytes_per_sec`, and is never ahead:
    what was sent fast does not pay for a pause.
    """

    run_bytes: int
    upload_bytes: int
    values: int = 200_000
    seconds: float = 30.0
    bytes_per_sec: int = 16_384
    _by_path: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        of_path = {
            "/v1/runs": self.run_bytes,
            "/mcp": min(self.run_bytes, _CALL_BYTES),
            "/v1/uploads": self.upload_bytes,
            "/v1/skills": self.upload_bytes,
        }
        object.__setattr__(self, "_by_path", of_path)

    def bytes_for(self, path: str) -> int:
        if (known := self._by_path.get(path)) is not None:
            return known
        if path.startswith("/v1/answers/") and path.endswith("/file"):
            return self.upload_bytes
        is_reply = path.endswith("/interaction/reply") or path.startswith("/v1/answers/")
        return min(self.run_bytes, _REPLY_BYTES if is_reply else _SMALL_BYTES)


class BodyCap:
    """Refuses a body that is too large, by its `Content-Length` or its actual size, or too slow.

    Every body passes here, so here it is decided again who may write: when the body is complete, before the write.
    """

    def __init__(self, app: ASGIApp, limits: BodyLimits) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in _WITH_BODY:
            await self._app(scope, receive, send)
            return
        max_bytes = self._limits.bytes_for(scope["path"])
        if declared_length(scope) > max_bytes:
            await problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _too_large(max_bytes))(scope, receive, send)
            return
        scope["askback.body_values"] = self._limits.values
        await self._app(scope, _Bounded(scope, receive, max_bytes, self._limits), send)


def declared_length(scope: Scope) -> int:
    declared = dict(scope["headers"]).get(b"content-length", b"")
    return int(declared[:20]) if declared.isdigit() else 0


class _Bounded:
    """Receives a body. Only the time spent waiting for the client counts, up to `_left_sec`."""

    def __init__(self, scope: Scope, receive: Receive, max_bytes: int, limits: BodyLimits) -> None:
        self._scope = scope
        self._receive = receive
        self._max_bytes = max_bytes
        self._limits = limits
        self._received = 0
        self._left_sec = limits.seconds
        self._whole = False

    async def __call__(self) -> Message:
        if self._whole:
            return await self._receive()
        message = await self._in_time()
        size = len(message.get("body", b""))
        self._received += size
        self._left_sec = min(self._limits.seconds, self._left_sec + size / self._limits.bytes_per_sec)
        self._whole = not message.get("more_body", False)
        if self._received > self._max_bytes:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _too_large(self._max_bytes))
        if self._whole:
            check_still_valid(self._scope)
        return message

    async def _in_time(self) -> Message:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(max(0.0, self._left_sec)):
                return await self._receive()
        except TimeoutError:
            raise HTTPException(
                HTTPStatus.REQUEST_TIMEOUT, "the body was sent too slowly", {"Connection": "close"}
            ) from None
        finally:
            self._left_sec -= loop.time() - began


def _too_large(max_bytes: int) -> str:
    return f"the body is larger than the maximum of {max_bytes} bytes"


class BodyMemory:
    """Limits the memory for JSON bodies, which callers share, and how many large ones are handled at a time: one of a caller.

    A decoded body takes several times its size, until the run or the reply is stored. Bodies of up to `THREAD_BYTES` have a
    reserve: however many large ones there are, replies and requests of usual size are read.
    """

    def __init__(self, max_bytes: int, at_once: int = 2) -> None:
        self._reserve = Shares(_RESERVE_BYTES, of_link=_OF_LINK_BYTES)
        self._rest = Shares(max_bytes, of_link=_REPLY_BYTES)
        self._large = asyncio.Semaphore(at_once)
        self._turns: WeakValueDictionary[Party, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def read(self, request: Request, shape: type[S], parsing: Pool) -> AsyncIterator[S]:
        """The decoded body. It counts towards the limits until it has been handled."""
        async with self._received(request) as text, AsyncExitStack() as handling:
            if text.size > _LARGE_BYTES:
                await handling.enter_async_context(self._turns.setdefault(PARTY.get()[:1], asyncio.Lock()))
                await handling.enter_async_context(self._large)
            yield await _in_thread_if_large(parsing, text.size, _decode, text, shape)

    @asynccontextmanager
    async def check(self, request: Request, parsing: Pool) -> AsyncIterator[Checked]:
        """The body for an application that decodes it again. It counts towards the limits until it has been handled."""
        async with self._received(request) as text:
            yield await _in_thread_if_large(parsing, text.size, _check, text)

    @asynccontextmanager
    async def _received(self, request: Request) -> AsyncIterator[_JsonText]:
        text = _JsonText(Counter(request.scope.get("askback.body_values", 200_000)), self._reserve, PARTY.get())
        try:
            await self._receive(request, text)
            yield text
        finally:
            text.shares.give_back(text.party, text.held)

    async def _receive(self, request: Request, text: _JsonText) -> None:
        try:
            async for piece in request.stream():
                text.hold(text.size + len(piece), self._rest)
                text.add(piece, counted=is_json(media_type(request)))
        except ClientDisconnect:
            if is_json(media_type(request)):
                raise
        if text.size and not is_json(media_type(request)):
            raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send the body as application/json")


class _JsonText:
    """A body that is being received."""

    def __init__(self, counter: Counter, shares: Shares, party: Party) -> None:
        self.pieces: list[bytes] = []
        self.size = 0
        self.counter = counter
        self.shares = shares
        self.party = party
        self.held = 0
        """Its bytes of `shares`."""

    def hold(self, size: int, of_large: Shares) -> None:
        """Take memory for this size, of the other shares once it is not small. Raises `Unavailable` if there is none left."""
        if size > THREAD_BYTES and self.shares is not of_large:
            self.shares.give_back(self.party, self.held)
            self.shares, self.held = of_large, 0
        if not self.shares.take(self.party, size - self.held):
            raise Unavailable(RefusalCode.SERVER_BUSY, "too many large requests at the moment; try again soon")
        self.held = size

    def add(self, piece: bytes, *, counted: bool) -> None:
        self.size += len(piece)
        self.pieces.append(piece)
        try:
            if counted:
                self.counter.feed(piece)
        except TooManyValues:
            message = "the body contains too many values; send fewer, or upload a file"
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message) from None
        except NumberTooLong:
            message = (
                f"a number in the body has more than {MAX_NUMBER_LENGTH} characters; send a shorter one, or a string if"
                " the schema allows it"
            )
            raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, message) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A body that is valid JSON, as it was sent."""

    body: bytes
    document: Any
    values: int


async def _in_thread_if_large(parsing: Pool, size: int, work: Callable[..., T], *args: Any) -> T:
    try:
        return await parsing.run(work, *args) if size > THREAD_BYTES else work(*args)
    except TooDeep:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "the JSON is nested too deeply") from None
    except ValueError as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"the body is not valid JSON: {error}") from None


def _decode(text: _JsonText, shape: type[S]) -> S:
    """Releases the text before the shape is made."""
    body = b"".join(text.pieces)
    text.pieces.clear()
    if not body:
        return read_body({}, shape)
    document = decode(body, text.counter.names)
    del body
    return read_body(document, shape)


def _check(text: _JsonText) -> Checked:
    body = b"".join(text.pieces)
    text.pieces.clear()
    return Checked(body=body, document=decode(body, text.counter.names), values=text.counter.count)


def media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def is_json(kind: str) -> bool:
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


@asynccontextmanager
async def form_file(request: Request) -> AsyncIterator[UploadFile]:
    """The file in the form field `file`."""
    if media_type(request) != FORM:
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"send a form ({FORM}) with the field 'file'")
    async with request.form(max_files=1, max_fields=10, max_part_size=_SMALL_BYTES) as form:
        file = form.get("file")
        if not isinstance(file, UploadFile):
            raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, "the form has no file in the field 'file'")
        yield file


async def until_disconnected(receive: Receive) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def while_connected(request: Request, work: Awaitable[T]) -> T:
    """The result of the work, which is canceled if the client disconnects. Use it after the body was read."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(until_disconnected(request.receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


_STRUCTURE = (b",", b"[", b"{")
"""Each of these characters adds a value. There are never more names than values."""
MAX_NUMBER_LENGTH = 100
"""In characters: the time to parse a number grows with the square of its length."""
_NUMBER = b"0123456789+-.eE"
_AS_NINES = bytes(b"9"[0] if each in _NUMBER else b" "[0] for each in range(256))
_TOO_LONG = b"9" * (MAX_NUMBER_LENGTH + 1)


class TooManyValues(Exception):
    """The body contains more values than allowed."""


class NumberTooLong(Exception):
    """The body contains a number that is too long."""


class Counter:
    """Counts values and names in JSON text that arrives in pieces.

    Exact up to the first syntax error, which the decoder reports.
    """

    def __init__(self, max_values: int) -> None:
        self._max_values = max_values
        self._carry = b""
        self._in_string = False
        self._number = b""
        self.count = 1
        self.names = 0

    def feed(self, piece: bytes) -> None:
        """Raises `TooManyValues` or `NumberTooLong`."""
        text = self._without_escapes(piece)
        parts = text.split(b'"')
        outside = b"".join(parts[1 if self._in_string else 0 :: 2])
        self._in_string ^= len(parts) % 2 == 0
        self.names += outside.count(b":")
        self.count += sum(outside.count(sign) for sign in _STRUCTURE)
        if self.count > self._max_values:
            raise TooManyValues
        self._measure(outside)

    def _measure(self, outside: bytes) -> None:
        numbers = self._number + outside.translate(_AS_NINES)
        if _TOO_LONG in numbers:
            raise NumberTooLong
        # The last number may continue in the next piece.
        self._number = numbers[len(numbers.rstrip(b"9")) :]

    def _without_escapes(self, piece: bytes) -> bytes:
        """Without escaped quotes and backslashes: every remaining quote starts or ends a string."""
        text = self._carry + piece
        backslashes = len(text) - len(text.rstrip(b"\\"))
        # The last backslash escapes the start of the next piece.
        self._carry = b"\\" if backslashes % 2 else b""
        text = text[: len(text) - len(self._carry)]
        return text.replace(b"\\\\", b"").replace(b'\\"', b"")


class TooDeep(ValueError):
    """Valid JSON with more levels than can be decoded."""


def decode(body: bytes, names: int) -> Any:
    """The document. Raises `ValueError` for NaN, lone surrogates, numbers out of range and duplicate names, and `TooDeep`.

    `names` is the number of names in the text.
    """
    try:
        document = msgspec.json.decode(body)
        if _names_in(document) != names:
            # Finds the duplicate name; slower, and keeps no objects.
            json.loads(body, object_pairs_hook=_refuse_duplicates)
    except RecursionError:
        raise TooDeep from None
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None
    return document


def _names_in(document: Any) -> int:
    count, pending = 0, [document]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            count += len(value)
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
    return count


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> None:
    """Refuse duplicate names: parsers differ in which of the two values they use."""
    if len(dict(pairs)) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"the name {name!r} is used twice")
            seen.add(name)
