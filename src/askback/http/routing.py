"""Operations: each is declared once, with who may call it, what it takes and what it returns.

Requests are checked against the declaration before the handler is called, and the OpenAPI document is made from it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from askback.access.grants import Grant
from askback.core.access import AccessScope, Action
from askback.core.errors import Forbidden, NotFound, RefusalCode
from askback.http.context import Context
from askback.http.problems import RequestCode
from askback.wire.base import Shape
from askback.wire.reading import read_texts

Code = RefusalCode | RequestCode
Handler = Callable[..., Awaitable[Response]]
_CONVERTOR = re.compile(r":\w+")


class Access(Enum):
    """What a caller needs."""

    TOKEN = auto()
    LINK = auto()
    NOTHING = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path. The handler gets the request, the context, the path parameters by name, and `query`,
    `headers` and `body` where they are declared.
    """

    handler: Handler
    tag: str
    method: str
    path: str
    summary: str
    description: str
    """Of the successful response."""
    access: Access = Access.TOKEN
    scopes: tuple[AccessScope, ...] = ()
    """The token needs one of these."""
    query: type[Shape] | None = None
    headers: type[Shape] | None = None
    body: type[Shape] | None = None
    raw_body: Mapping[str, Any] | None = None
    """The media types of a body that the handler reads itself."""
    returns: type[Shape] | None = None
    status: HTTPStatus = HTTPStatus.OK
    other_statuses: Mapping[HTTPStatus, str] = field(default_factory=dict)
    """Further statuses with the same body, described."""
    empty_statuses: Mapping[HTTPStatus, str] = field(default_factory=dict)
    """Further statuses without a body, described."""
    content: Mapping[str, Any] = field(default_factory=dict)
    """Further media types of the response."""
    response_headers: Mapping[str, str] = field(default_factory=dict)
    action: Action | None = None
    """What it writes. Its entry in the audit log is added after the handler, or with the change of a run."""
    refusals: tuple[Code, ...] = ()
    """Beside those that every operation may return."""
    whole_server: bool = False
    """Whether it shows something of all runs together, so that a token that is restricted to labels may not call it."""

    @property
    def template(self) -> str:
        """The path as OpenAPI writes it."""
        return _CONVERTOR.sub("", self.path)

    def check_access(self, request: Request) -> None:
        if self.access is Access.NOTHING:
            return
        grant: Grant = request.scope["grant"]
        if self.access is Access.LINK and grant.link is None:
            raise NotFound(RefusalCode.INTERACTION_NOT_FOUND, "use a link without a token")
        if self.access is Access.TOKEN and not grant.allows(*self.scopes):
            needed = " or ".join(f"'{scope}'" for scope in self.scopes)
            raise Forbidden(RefusalCode.SCOPE_MISSING, f"this token does not have the scope {needed}")
        if self.whole_server and grant.labels:
            message = "this token is restricted to labels, and this is about all runs"
            raise Forbidden(RefusalCode.SCOPE_MISSING, message)


class Router:
    """The operations of one resource, under one tag of the OpenAPI document."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.operations: list[Operation] = []

    def add(self, call: str, summary: str, **fields: Any) -> Callable[[Handler], Handler]:
        """Declare an operation for the decorated handler: method and path, a summary, and the fields of `Operation`."""
        method, path = call.split()

        def remember(handler: Handler) -> Handler:
            operation = Operation(handler=handler, tag=self.tag, method=method, path=path, summary=summary, **fields)
            self.operations.append(operation)
            return handler

        return remember


def route(operation: Operation) -> Route:
    async def endpoint(request: Request) -> Response:
        # Before any of the body is read.
        operation.check_access(request)
        context: Context = request.app.state.context
        if operation.access is Access.TOKEN:
            context = context.seen_by(request.scope["grant"])
        given = dict(request.path_params)
        if operation.query is not None:
            given["query"] = read_texts(request.query_params, operation.query)
        if operation.headers is not None:
            headers = {name.replace("-", "_"): text for name, text in request.headers.items()}
            given["headers"] = read_texts(headers, operation.headers)
        if operation.body is None:
            response = await operation.handler(request, context, **given)
        else:
            async with context.body_memory.read(request, operation.body, context.pools.parsing) as body:
                response = await operation.handler(request, context, body=body, **given)
        await context.audit.note_request(request, operation.action)
        return response

    made = Route(operation.path, endpoint, methods=[operation.method])
    # Starlette adds HEAD to GET.
    made.methods = {operation.method}
    return made
