"""What may come in: who may call is decided first; then bodies are counted and timed while they stream, and read strictly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Protocol, TypeVar, runtime_checkable

from fastapi import Request
from fastapi._compat import ModelField
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from askback.core.errors import RefusalCode, Unavailable
from askback.http import json_bodies
from askback.http.problems import problem
from askback.process.pools import Pool

T = TypeVar("T")

FORM = "multipart/form-data"
ASIDE_BYTES = 65_536
"""A larger body is not decoded in the event loop."""
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
"""Nobody reads the body of another method."""
_REPLY_BYTES = 2 << 20
_SMALL_BYTES = 256 << 10
_LARGE_BYTES = 1 << 20
_READ = b"{}"
"""Stands for a large body: the framework only asks whether there was one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyLimits:
    """How large a body may be, and how slow. A client may take `seconds`, and one more for each `bytes_per_sec` it sent."""

    run_bytes: int
    upload_bytes: int
    values: int = 200_000
    seconds: float = 30.0
    bytes_per_sec: int = 16_384
    _by_path: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        of_path = {"/v1/runs": self.run_bytes, "/v1/uploads": self.upload_bytes, "/v1/skills": self.upload_bytes}
        object.__setattr__(self, "_by_path", of_path)

    def bytes_for(self, path: str) -> int:
        """The smallest unless the call needs more."""
        if (known := self._by_path.get(path)) is not None:
            return known
        is_reply = path.endswith("/interaction/reply") or path.startswith("/v1/answers/")
        return min(self.run_bytes, _REPLY_BYTES if is_reply else _SMALL_BYTES)


class BodyCap:
    """Refuses a body over its cap: by what it says of itself, and by what really comes. Or one that comes too slowly."""

    def __init__(self, app: ASGIApp, limits: BodyLimits) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in _WITH_BODY:
            await self._app(scope, receive, send)
            return
        most = self._limits.bytes_for(scope["path"])
        if said_length(scope) > most:
            await problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _too_large(most))(scope, receive, send)
            return
        scope["askback.body_values"] = self._limits.values
        await self._app(scope, _Bounded(receive, most, self._limits), send)


def said_length(scope: Scope) -> int:
    said = dict(scope["headers"]).get(b"content-length", b"")
    return int(said[:20]) if said.isdigit() else 0


class _Bounded:
    """Receives a body. Only the time that is spent waiting for the client counts, not what we take to store it."""

    def __init__(self, receive: Receive, most: int, limits: BodyLimits) -> None:
        self._receive = receive
        self._most = most
        self._limits = limits
        self._came = 0
        self._waited = 0.0
        self._whole = False

    async def __call__(self) -> Message:
        if self._whole:
            return await self._receive()
        message = await self._in_time()
        self._came += len(message.get("body", b""))
        self._whole = not message.get("more_body", False)
        if self._came > self._most:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _too_large(self._most))
        return message

    async def _in_time(self) -> Message:
        loop = asyncio.get_running_loop()
        allowed = self._limits.seconds + self._came / self._limits.bytes_per_sec
        began = loop.time()
        try:
            async with asyncio.timeout(max(0.0, allowed - self._waited)):
                return await self._receive()
        except TimeoutError:
            raise HTTPException(
                HTTPStatus.REQUEST_TIMEOUT, "the body came too slowly", {"Connection": "close"}
            ) from None
        finally:
            self._waited += loop.time() - began


def _too_large(most: int) -> str:
    return f"the body is larger than {most} bytes, which is the most that is taken here"


class BodyMemory:
    """How much of JSON bodies is in memory: all of them together, and how many large ones are worked on at a time.

    What is made of a body takes several times its size, until the run or the reply is stored.
    """

    def __init__(self, most_bytes: int, at_once: int = 2) -> None:
        self._most = most_bytes
        self._held = 0
        self._places = asyncio.Semaphore(at_once)

    @contextmanager
    def counting(self, request: StrictRequest) -> Iterator[None]:
        request.memory = self
        try:
            yield
        finally:
            self._held -= request.taken

    def take(self, size: int) -> None:
        if self._held + size > self._most:
            raise Unavailable(RefusalCode.SERVER_BUSY, "too many large requests are coming in; try again in a moment")
        self._held += size

    @asynccontextmanager
    async def place(self, size: int) -> AsyncIterator[None]:
        """Wait until it is this body's turn, if it is a large one."""
        if size <= _LARGE_BYTES:
            yield
            return
        async with self._places:
            yield


class StrictRequest(Request):
    """A body of JSON, which is decoded once, and aside where it is large."""

    memory: BodyMemory
    taken = 0

    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            counter, pieces = json_bodies.Counter(self.scope.get("askback.body_values", 200_000)), []
            counted = is_json(media_type(self))
            async for piece in self.stream():
                self.memory.take(len(piece))
                self.taken += len(piece)
                if counted:
                    _count(counter, piece)
                pieces.append(piece)
            self._pieces, self._names = pieces, counter.names
            self._body = _READ if self.taken > ASIDE_BYTES else b"".join(pieces)
        return self._body

    async def read_json(self, parsing: Pool, field: ModelField) -> None:
        """Decode the body; it is not kept beside what it says. A large one is also checked aside, as `field`."""
        pieces, self._pieces = self._pieces, []
        try:
            if self.taken > ASIDE_BYTES:
                self._strict = await parsing.run(_checked, pieces, self._names, field)
            else:
                self._strict = json_bodies.decode(self._body, self._names)
        except ValueError as error:
            raise HTTPException(HTTPStatus.BAD_REQUEST, f"the body is not JSON that is taken: {error}") from None

    async def json(self) -> Any:
        return self._strict


def _checked(pieces: list[bytes], names: int, field: ModelField) -> Any:
    """What the route's function is given: the framework takes it as it is. Empties `pieces`."""
    body = b"".join(pieces)
    pieces.clear()
    value, errors = field.validate(json_bodies.decode(body, names), {}, loc=("body",))
    if errors:
        raise RequestValidationError(errors)
    return value


def _count(counter: json_bodies.Counter, piece: bytes) -> None:
    try:
        counter.feed(piece)
    except json_bodies.TooManyValues:
        detail = "the body holds more values than are taken; send less, or upload a file"
        raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail) from None
    except json_bodies.NumberTooLong:
        detail = f"a number in the body has more than {json_bodies.LONGEST_NUMBER} characters; send it as a text"
        raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, detail) from None


@runtime_checkable
class Access(Protocol):
    """Who may make a call: a dependency of the route, which is asked before the body is read."""

    def check(self, request: Request) -> None:
        """Raises unless the caller may."""
        ...


class StrictRoute(APIRoute):
    """Decides who may call before it reads anything, and takes a body only as JSON, where it takes one.

    A route that takes something else reads its body itself.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        access = access_of(self)

        async def strict(request: Request) -> Response:
            for each in access:
                each.check(request)
            if self.body_field is None:
                return await handle(request)
            here = request.app.state.context
            strictly = StrictRequest(request.scope, request.receive)
            with here.body_memory.counting(strictly):
                body = await _read(strictly)
                async with here.body_memory.place(strictly.taken):
                    if body:
                        await strictly.read_json(here.pools.parsing, self.body_field)
                    return await handle(strictly)

        return strict


def access_of(route: APIRoute) -> list[Access]:
    """What the route's signature says of who may call it."""
    calls: list[object] = [each.call for each in route.dependant.dependencies]
    return [call for call in calls if isinstance(call, Access)]


async def _read(request: StrictRequest) -> bytes:
    """Here and not by the framework, which would make a malformed body of every fault on the way."""
    if is_json(media_type(request)):
        return await request.body()
    if await _body(request):
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send the body as application/json")
    return b""


async def _body(request: Request) -> bytes:
    try:
        return await request.body()
    except ClientDisconnect:
        return b""


def media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def is_json(kind: str) -> bool:
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


@asynccontextmanager
async def form_file(request: Request) -> AsyncIterator[UploadFile]:
    """The one file of a form, in the field `file`."""
    if media_type(request) != FORM:
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"send a form, {FORM}, with the field 'file'")
    async with request.form(max_files=1, max_fields=10, max_part_size=_SMALL_BYTES) as form:
        file = form.get("file")
        if not isinstance(file, UploadFile):
            raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, "the form has no file in the field 'file'")
        yield file


async def while_connected(request: Request, work: Awaitable[T]) -> T:
    """The result of the work, which is canceled when the client leaves. For calls whose body was read."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
