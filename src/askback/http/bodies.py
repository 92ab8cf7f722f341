"""What may come in: bodies are counted while they stream, and JSON and forms are taken strictly."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import Request
from fastapi.routing import APIRoute
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from askback.http.problems import problem

FORM = "multipart/form-data"
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
"""Nobody reads the body of another method."""


class BodyCap:
    """Refuses a body over its cap: by what it says of itself, and by what really comes."""

    def __init__(self, app: ASGIApp, *, body_bytes: int, upload_bytes: int, upload_paths: frozenset[str]) -> None:
        self._app = app
        self._body_bytes = body_bytes
        self._upload_bytes = upload_bytes
        self._upload_paths = upload_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in _WITH_BODY:
            await self._app(scope, receive, send)
            return
        most = self._upload_bytes if scope["path"] in self._upload_paths else self._body_bytes
        if _said(scope) > most:
            await problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _too_large(most))(scope, receive, send)
            return
        await self._app(scope, _counted(receive, most), send)


def _said(scope: Scope) -> int:
    said = dict(scope["headers"]).get(b"content-length", b"")
    return int(said[:20]) if said.isdigit() else 0


def _counted(receive: Receive, most: int) -> Receive:
    came = 0

    async def counted() -> Message:
        nonlocal came
        message = await receive()
        came += len(message.get("body", b""))
        if came > most:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _too_large(most))
        return message

    return counted


def _too_large(most: int) -> str:
    return f"the body is larger than {most} bytes"


class StrictRequest(Request):
    """JSON without NaN, lone surrogates, numbers out of range, endless nesting or a name given twice."""

    async def json(self) -> Any:
        if not hasattr(self, "_strict"):
            body = await self.body()
            try:
                self._strict = msgspec.json.decode(body)
                json.loads(body, object_pairs_hook=_refuse_doubles)
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                raise HTTPException(HTTPStatus.BAD_REQUEST, f"the body is not JSON that is taken: {error}") from None
        return self._strict


def _refuse_doubles(pairs: list[tuple[str, Any]]) -> None:
    """Of two values for one name every reader may take another."""
    if len(dict(pairs)) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"{name!r} is there twice")
            seen.add(name)


class StrictRoute(APIRoute):
    """Takes a body only as JSON, where it takes one. A route that takes something else reads its body itself."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            strictly = StrictRequest(request.scope, request.receive)
            if self.body_field is not None and not is_json(media_type(strictly)) and await _body(strictly):
                raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send the body as application/json")
            return await handle(strictly)

        return strict


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
    async with request.form(max_files=1, max_fields=10) as form:
        file = form.get("file")
        if not isinstance(file, UploadFile):
            raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, "the form has no file in the field 'file'")
        yield file
