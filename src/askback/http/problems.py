"""How errors are told over HTTP: `application/problem+json`, by kind, always with a `code`."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from enum import StrEnum
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from askback.core.errors import (
    FULL_DISK,
    REFUSAL_KINDS,
    TEMPORARY,
    AskbackError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    RefusalCode,
    Unavailable,
)

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
MOST_PROBLEMS = 50
"""How many mistakes one answer names."""
_PROBLEM_CHARS = 1000
_DETAIL_CHARS = 4000
_PROBLEMS_CHARS = 16_384
"""Of all problems together: a character may take four bytes."""


class RequestCode(StrEnum):
    """Why a request was refused before anybody looked at what it asks for."""

    REQUEST_MALFORMED = "REQUEST_MALFORMED"
    UNAUTHORIZED = "UNAUTHORIZED"
    FORBIDDEN = "FORBIDDEN"
    NOT_FOUND = "NOT_FOUND"
    METHOD_NOT_ALLOWED = "METHOD_NOT_ALLOWED"
    BODY_TOO_SLOW = "BODY_TOO_SLOW"
    BODY_TOO_LARGE = "BODY_TOO_LARGE"
    MEDIA_TYPE_UNSUPPORTED = "MEDIA_TYPE_UNSUPPORTED"
    REQUEST_INVALID = "REQUEST_INVALID"
    TOO_MANY_FAILED_SIGN_INS = "TOO_MANY_FAILED_SIGN_INS"
    TOO_MANY_STREAMS = "TOO_MANY_STREAMS"
    INTERNAL_ERROR = "INTERNAL_ERROR"


REQUEST_CODES: dict[RequestCode, tuple[HTTPStatus, str]] = {
    RequestCode.REQUEST_MALFORMED: (HTTPStatus.BAD_REQUEST, "The request cannot be read: no HTTP, no JSON, no form."),
    RequestCode.UNAUTHORIZED: (
        HTTPStatus.UNAUTHORIZED,
        "There is no valid token or session, or the link is forged, expired or revoked.",
    ),
    RequestCode.FORBIDDEN: (HTTPStatus.FORBIDDEN, "The request comes from another site, or is for another host."),
    RequestCode.NOT_FOUND: (HTTPStatus.NOT_FOUND, "There is no such address."),
    RequestCode.METHOD_NOT_ALLOWED: (HTTPStatus.METHOD_NOT_ALLOWED, "That address does not take that method."),
    RequestCode.BODY_TOO_SLOW: (HTTPStatus.REQUEST_TIMEOUT, "The body came too slowly; see `limits.body_sec`."),
    RequestCode.BODY_TOO_LARGE: (
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "The body is larger than the call takes, or holds more values than `limits.body_values`. At most `limits.body` "
        "for a run, `limits.upload` for files, 2 MB for a reply and 256 KB for anything else.",
    ),
    RequestCode.MEDIA_TYPE_UNSUPPORTED: (
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        "The body is not of the media type that is taken here.",
    ),
    RequestCode.REQUEST_INVALID: (
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "A field or parameter is missing, unknown or of the wrong type; `problems` names each.",
    ),
    RequestCode.TOO_MANY_FAILED_SIGN_INS: (
        HTTPStatus.TOO_MANY_REQUESTS,
        "There is no valid token or session, and the address has had too many failed sign-ins; see `Retry-After`. "
        "A valid token is let in at once.",
    ),
    # The last code of a status is the one for refusals of the framework and of streams.
    RequestCode.TOO_MANY_STREAMS: (HTTPStatus.TOO_MANY_REQUESTS, "Too many event streams are open."),
    RequestCode.INTERNAL_ERROR: (HTTPStatus.INTERNAL_SERVER_ERROR, "A fault of Askback's own; the log says more."),
}

_KIND_STATUS: dict[type[AskbackError], HTTPStatus] = {
    Invalid: HTTPStatus.UNPROCESSABLE_ENTITY,
    NotFound: HTTPStatus.NOT_FOUND,
    Conflict: HTTPStatus.CONFLICT,
    Forbidden: HTTPStatus.FORBIDDEN,
    Unavailable: HTTPStatus.SERVICE_UNAVAILABLE,
}
_OWN_STATUS = {
    RefusalCode.DISK_FULL: HTTPStatus.INSUFFICIENT_STORAGE,
    RefusalCode.QUOTA_EXCEEDED: HTTPStatus.TOO_MANY_REQUESTS,
}
_RETRY_AFTER_SEC = {
    RefusalCode.SERVER_BUSY: 1,
    RefusalCode.RESOURCE_SHORTAGE: 2,
    RefusalCode.QUOTA_EXCEEDED: 10,
}
"""After how long a call may succeed, where nothing better is known."""
_BY_STATUS = {status: code for code, (status, _) in REQUEST_CODES.items()}


def status_of(code: RefusalCode | RequestCode) -> HTTPStatus:
    """The status of a code: that of its kind, but for the few that HTTP has a status for."""
    if isinstance(code, RequestCode):
        return REQUEST_CODES[code][0]
    return _OWN_STATUS.get(code) or _KIND_STATUS[REFUSAL_KINDS[code]]


def as_json(document: Any) -> bytes:
    """The document for the wire; what no text can hold, such as a part of a file's name, is shown as `?`."""
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError:
        return json.dumps(document, ensure_ascii=False).encode(errors="replace")


def problem(
    status: HTTPStatus,
    detail: str,
    *,
    code: str | None = None,
    problems: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": status.phrase,
        "status": status.value,
        "code": code or _BY_STATUS.get(status, RequestCode.REQUEST_MALFORMED),
        "detail": _cut(detail, _DETAIL_CHARS),
    }
    if problems:
        body["problems"] = _few(problems)
    return Response(as_json(body), status.value, headers, MEDIA_TYPE)


def _few(problems: Sequence[str]) -> list[str]:
    """The first problems, and how many more there are: a request of many mistakes gets no answer of its own size."""
    few, room = [], _PROBLEMS_CHARS
    for each in problems[:MOST_PROBLEMS]:
        text = _cut(each, _PROBLEM_CHARS)
        room -= len(text)
        if room < 0:
            break
        few.append(text)
    return few if len(few) == len(problems) else [*few, f"and {len(problems) - len(few)} more"]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def refused(error: AskbackError) -> Response:
    after = _RETRY_AFTER_SEC.get(error.code)
    headers = None if after is None else {"Retry-After": str(after)}
    return problem(status_of(error.code), error.message, code=error.code, problems=error.problems, headers=headers)


def install(app: FastAPI) -> None:
    """Every error leaves as a problem, also those of the framework and our own faults."""

    @app.exception_handler(AskbackError)
    async def told(request: Request, error: AskbackError) -> Response:
        return refused(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        # That a parameter may also be left out is no advice to one who gave it.
        told = [each for each in error.errors() if each["type"] != "none_required"]
        problems = [f"{_path(each['loc'])}: {each['msg']}" for each in told]
        return problem(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "the request is wrong",
            code=RequestCode.REQUEST_INVALID,
            problems=problems,
        )

    @app.exception_handler(HTTPException)
    async def of_the_framework(request: Request, error: HTTPException) -> Response:
        return problem(HTTPStatus(error.status_code), _sentence(error), headers=error.headers)

    @app.exception_handler(OSError)
    async def of_the_machine(request: Request, error: OSError) -> Response:
        if error.errno in TEMPORARY:
            detail = f"this machine is short of resources at the moment ({error.strerror}); try again"
            return refused(Unavailable(RefusalCode.RESOURCE_SHORTAGE, detail))
        if error.errno not in FULL_DISK:
            raise error
        return refused(Unavailable(RefusalCode.DISK_FULL, "the disk is full; make room and try again"))

    @app.exception_handler(MemoryError)
    async def of_memory(request: Request, error: MemoryError) -> Response:
        return refused(Unavailable(RefusalCode.RESOURCE_SHORTAGE, "this machine is short of memory; try again"))

    @app.exception_handler(ClientDisconnect)
    async def of_the_client(request: Request, error: ClientDisconnect) -> Response:
        return problem(HTTPStatus.BAD_REQUEST, "the client left before it had sent the whole body")

    @app.exception_handler(Exception)
    async def fault(request: Request, error: Exception) -> Response:
        log.error("a request ended by a fault of our own", extra={"path": request.url.path})
        return problem(HTTPStatus.INTERNAL_SERVER_ERROR, "a fault of Askback's own; the log says more")


def _sentence(error: HTTPException) -> str:
    """The framework says only 'Not Found'; what it is about is known."""
    if error.detail == HTTPStatus(error.status_code).phrase:
        return REQUEST_CODES[_BY_STATUS[HTTPStatus(error.status_code)]][1] if error.status_code in _BY_STATUS else ""
    return str(error.detail)


def _path(place: Sequence[int | str]) -> str:
    """`("body", "input", "a", 3)` → `input.a[3]`. Behind a parameter's name come only the types that were tried."""
    if place[:1] and place[0] in ("query", "path", "header"):
        place = place[:2]
    text = ""
    for part in place[1:] if place and place[0] in ("body", "query", "path", "header") else place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text or "body"
