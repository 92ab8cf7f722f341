"""Errors over HTTP: `application/problem+json`, with a status by kind and always with a `code`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from enum import StrEnum
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ExceptionHandler

from askback.core.actors import Actor
from askback.core.errors import (
    FULL_DISK,
    AlreadyClosed,
    AskbackError,
    Conflict,
    FieldProblem,
    Forbidden,
    Invalid,
    NotFound,
    RefusalCode,
    Unavailable,
    disk_full,
    is_temporary,
    shortage,
)
from askback.text.formatting import cut
from askback.wire.base import Actor as WireActor
from askback.wire.base import encode
from askback.wire.reading import Mismatch
from askback.wire.server import FieldError, Problem

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
_MAX_PROBLEMS = 50
_PROBLEM_CHARS = 1000
_DETAIL_CHARS = 4000
_PROBLEMS_CHARS = 16_384
"""Of all problems together."""


class RequestCode(StrEnum):
    """Why a request was refused before it was processed. The last code of a status is that status's default."""

    status: HTTPStatus
    meaning: str

    def __new__(cls, code: str, status: HTTPStatus, meaning: str) -> RequestCode:
        made = str.__new__(cls, code)
        made._value_, made.status, made.meaning = code, status, meaning
        return made

    REQUEST_MALFORMED = (
        "REQUEST_MALFORMED",
        HTTPStatus.BAD_REQUEST,
        "The request cannot be parsed as HTTP, as JSON or as a form, or its line and headers are longer than 16 "
        "KB or more than 100.",
    )
    UNAUTHORIZED = (
        "UNAUTHORIZED",
        HTTPStatus.UNAUTHORIZED,
        "No valid token or session was sent, or the link is forged, expired or revoked.",
    )
    FORBIDDEN = "FORBIDDEN", HTTPStatus.FORBIDDEN, "The request comes from another site, or is for another host name."
    NOT_FOUND = "NOT_FOUND", HTTPStatus.NOT_FOUND, "The path does not exist."
    METHOD_NOT_ALLOWED = "METHOD_NOT_ALLOWED", HTTPStatus.METHOD_NOT_ALLOWED, "The path does not support the method."
    BODY_TOO_SLOW = "BODY_TOO_SLOW", HTTPStatus.REQUEST_TIMEOUT, "The body was sent too slowly; see `limits.body_sec`."
    BODY_TOO_LARGE = (
        "BODY_TOO_LARGE",
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "The body is too large, or contains more values than `limits.body_values`. The maximum is `limits.body` "
        "for a run, `limits.upload` for files, 7 MB for a reply, 2 MB for a call at `/mcp`, and 256 KB for "
        "everything else.",
    )
    MEDIA_TYPE_UNSUPPORTED = (
        "MEDIA_TYPE_UNSUPPORTED",
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        "The media type of the body is not supported.",
    )
    REQUEST_INVALID = (
        "REQUEST_INVALID",
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "A field or parameter is missing, unknown or invalid; see `problems`.",
    )
    TOO_MANY_FAILED_SIGN_INS = (
        "TOO_MANY_FAILED_SIGN_INS",
        HTTPStatus.TOO_MANY_REQUESTS,
        "No valid token or session was sent, and there were too many failed sign-ins from the address; see "
        "`Retry-After`. A valid token is accepted at once.",
    )
    TOO_MANY_STREAMS = "TOO_MANY_STREAMS", HTTPStatus.TOO_MANY_REQUESTS, "Too many event streams are open."
    INTERNAL_ERROR = "INTERNAL_ERROR", HTTPStatus.INTERNAL_SERVER_ERROR, "An internal error; see the log of the server."


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
    RefusalCode.STORE_UNUSABLE: 5,
    RefusalCode.QUOTA_EXCEEDED: 10,
}
"""When to retry."""
_BY_STATUS = {code.status: code for code in RequestCode}

BODY = (
    RequestCode.REQUEST_MALFORMED,
    RequestCode.BODY_TOO_SLOW,
    RequestCode.BODY_TOO_LARGE,
    RequestCode.MEDIA_TYPE_UNSUPPORTED,
)
"""What can be wrong with any body."""
JSON_BODY = (*BODY, RequestCode.REQUEST_INVALID)


def status_of(code: RefusalCode | RequestCode) -> HTTPStatus:
    if isinstance(code, RequestCode):
        return code.status
    return _OWN_STATUS.get(code) or _KIND_STATUS[code.kind]


def default_code(status: HTTPStatus) -> str:
    return _BY_STATUS.get(status, RequestCode.REQUEST_MALFORMED)


def problem(
    status: HTTPStatus,
    detail: str,
    *,
    code: str | None = None,
    problems: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
    answered_with: Actor | None = None,
) -> Response:
    few = _few(problems)
    body = Problem(
        type="about:blank",
        title=status.phrase,
        status=status.value,
        code=code or default_code(status),
        detail=cut(detail, _DETAIL_CHARS),
        problems=tuple(map(str, few)) or None,
        errors=tuple(FieldError.of(each) for each in few) or None,
        answered_with=None if answered_with is None else WireActor.of(answered_with),
    )
    return Response(encode(body), status.value, headers, MEDIA_TYPE)


def _few(problems: Sequence[str]) -> tuple[FieldProblem, ...]:
    """The first problems, and how many more there are: the response must not grow with the request."""
    few: list[FieldProblem] = []
    room = _PROBLEMS_CHARS
    for each in problems[:_MAX_PROBLEMS]:
        room -= min(len(each), _PROBLEM_CHARS)
        if room < 0:
            break
        found = FieldProblem.of(each)
        path = [cut(step, _PROBLEM_CHARS) if isinstance(step, str) else step for step in found.path]
        few.append(FieldProblem(cut(found, _PROBLEM_CHARS), path, cut(found.message, _PROBLEM_CHARS), found.code))
    if len(few) < len(problems):
        few.append(FieldProblem(f"and {len(problems) - len(few)} more"))
    return tuple(few)


def retry_after(error: AskbackError) -> dict[str, str] | None:
    after = _RETRY_AFTER_SEC.get(error.code)
    return None if after is None else {"Retry-After": str(after)}


def refused(error: AskbackError) -> Response:
    return problem(
        status_of(error.code),
        error.message,
        code=error.code,
        problems=error.problems,
        headers=retry_after(error),
        answered_with=error.answered_with if isinstance(error, AlreadyClosed) else None,
    )


async def _answer(request: Request, error: Exception) -> Response:
    match error:
        case AskbackError():
            return refused(error)
        case Mismatch(problems=problems):
            status, code = HTTPStatus.UNPROCESSABLE_ENTITY, RequestCode.REQUEST_INVALID
            return problem(status, "the request is invalid", code=code, problems=problems)
        case HTTPException():
            return _http_error(error)
        case ClientDisconnect():
            return problem(HTTPStatus.BAD_REQUEST, "the client disconnected before it had sent the whole body")
        case MemoryError():
            message = "this machine is short of memory; try again"
            return refused(Unavailable(RefusalCode.RESOURCE_SHORTAGE, message))
        case OSError() if error.errno in FULL_DISK:
            return refused(disk_full())
        case OSError() | RuntimeError() if is_temporary(error):
            # A `RuntimeError` if a thread cannot be started.
            return refused(shortage(error))
    raise error


def _http_error(error: HTTPException) -> Response:
    """Errors of Starlette, which only have the phrase of their status, and our own, which have a message."""
    status, detail = HTTPStatus(error.status_code), str(error.detail)
    if detail == status.phrase:
        # The sentence of the reference, as a message.
        sentence = _BY_STATUS[status].meaning if status in _BY_STATUS else ""
        detail = sentence[:1].lower() + sentence[1:].removesuffix(".")
    return problem(status, detail, headers=error.headers)


async def _bug(request: Request, error: Exception) -> Response:
    log.error("request failed with an internal error", extra={"path": request.url.path})
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error; see the log of the server")


HANDLERS: dict[Any, ExceptionHandler] = {
    **dict.fromkeys(
        (AskbackError, Mismatch, HTTPException, OSError, RuntimeError, MemoryError, ClientDisconnect), _answer
    ),
    Exception: _bug,
}
"""Every error becomes a problem."""
