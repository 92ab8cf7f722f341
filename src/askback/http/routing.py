"""Operations: each is declared once, with who may call it. What it takes and returns is read from its handler's types.

Requests are checked against the declaration before the handler is called, and the OpenAPI document is made from it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from http import HTTPStatus
from typing import Any, NamedTuple, get_args, get_type_hints

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from askback.access.grants import Grant
from askback.core.access import AccessScope, Action
from askback.core.errors import Forbidden, NotFound, RefusalCode
from askback.http.context import Context, json_response
from askback.http.problems import BODY, RequestCode
from askback.wire.base import Shape
from askback.wire.reading import read_texts
from askback.wire.requests import PageQuery

ADMIN, ANSWER, READ, SUBMIT = AccessScope.ADMIN, AccessScope.ANSWER, AccessScope.READ, AccessScope.SUBMIT
Code = RefusalCode | RequestCode
Handler = Callable[..., Awaitable[Response | Shape | None]]
EVENT_STREAM = "text/event-stream"
_CONVERTOR = re.compile(r":\w+")


class Access(Enum):
    TOKEN = auto()
    LINK = auto()
    NOTHING = auto()


class PathParameter(NamedTuple):
    description: str
    example: str
    refusals: tuple[RefusalCode, ...] = ()
    """If nothing has this name."""


_LINK = (RefusalCode.INTERACTION_NOT_PENDING, RefusalCode.INTERACTION_NOT_FOUND, RefusalCode.RUN_NOT_FOUND)
PATH_PARAMETERS = {
    "run_id": PathParameter("The ID of the run.", "1m7gekfsksrgk77s", (RefusalCode.RUN_NOT_FOUND,)),
    "skill_id": PathParameter("The ID of the skill.", "trip-planner", (RefusalCode.SKILL_NOT_FOUND,)),
    "name": PathParameter("The name of the engine.", "codex", (RefusalCode.ENGINE_UNKNOWN,)),
    "path": PathParameter("The path of the file, with `/` between folders.", "itinerary.md"),
    "link": PathParameter("The last part of the link.", "WyIxbTdnZWtmc2tzcmdrNzdzIl0.c2ln", _LINK),
    "link_id": PathParameter("The ID of the link.", "9f2c01ab", (RefusalCode.LINK_NOT_FOUND,)),
    "token_name": PathParameter("The name of the token.", "anna", (RefusalCode.TOKEN_NOT_FOUND,)),
    "invitation_id": PathParameter("The ID of the invitation.", "9f2c01ab", (RefusalCode.INVITATION_NOT_FOUND,)),
    "session_id": PathParameter("The ID of the session.", "9f2c01ab", (RefusalCode.SESSION_NOT_FOUND,)),
    "subscription_id": PathParameter(
        "The ID of the subscription.", "0f3c2a7b9d1e4c5a", (RefusalCode.SUBSCRIPTION_NOT_FOUND,)
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path. The handler gets the request, the context, the path parameters by name, and `query`,
    `headers` and `body` if it has parameters with these names. It returns a shape, nothing, or a whole response.
    """

    handler: Handler
    tag: str
    method: str
    path: str
    summary: str
    description: str = ""
    """Of the successful response. Default: the first sentence about the shape that is returned."""
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
    """Further error codes: those of every operation, and those that its path, query and body imply, are added."""
    whole_server: bool = False
    """Whether it shows something of all runs together, so that a token that is restricted to labels may not call it."""

    @property
    def template(self) -> str:
        """The path as OpenAPI writes it."""
        return _CONVERTOR.sub("", self.path)

    @property
    def path_parameters(self) -> dict[str, PathParameter]:
        return {name: PATH_PARAMETERS[name] for name in re.findall(r"\{(\w+)\}", self.template)}

    @property
    def codes(self) -> Iterator[Code]:
        """The codes of the problems that this operation may return."""
        yield from self.refusals
        for each in self.path_parameters.values():
            yield from each.refusals
        if self.body is not None or self.raw_body is not None:
            yield from (*BODY, RequestCode.REQUEST_INVALID)
        if self.query is not None:
            yield RequestCode.REQUEST_INVALID
            if issubclass(self.query, PageQuery) or "label" in self.query.__struct_fields__:
                yield RefusalCode.INPUT_INVALID
        if EVENT_STREAM in self.content:
            yield RequestCode.TOO_MANY_STREAMS

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

    def add(self, call: str, summary: str, *scopes: AccessScope, **fields: Any) -> Callable[[Handler], Handler]:
        """Declare an operation for the decorated handler: method and path, a summary, the scopes, and other fields."""
        method, path = call.split()

        def remember(handler: Handler) -> Handler:
            declared = {
                "method": method,
                "path": path,
                "summary": summary,
                "scopes": scopes,
                **_typed(handler),
                **fields,
            }
            self.operations.append(Operation(handler=handler, tag=self.tag, **declared))
            return handler

        return remember


def _typed(handler: Handler) -> dict[str, Any]:
    """The fields of an operation that follow from the types of its handler."""
    hints = get_type_hints(handler)
    returned = get_args(hints["return"]) or (hints["return"],)
    found: dict[str, Any] = {name: hints[name] for name in ("query", "headers", "body") if name in hints}
    shape = next((each for each in returned if issubclass(each, Shape)), None)
    if shape is not None:
        found |= {"returns": shape, "description": (shape.__doc__ or "").partition(".")[0] + "."}
    elif type(None) in returned:
        found |= {"status": HTTPStatus.NO_CONTENT, "description": "Done. The response has no content."}
    return found


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
            result = await operation.handler(request, context, **given)
        else:
            async with context.body_memory.read(request, operation.body, context.pools.parsing) as body:
                result = await operation.handler(request, context, body=body, **given)
        await context.audit.record_request(request, operation.action)
        if isinstance(result, Response):
            return result
        return Response(status_code=operation.status) if result is None else json_response(result, operation.status)

    made = Route(operation.path, endpoint, methods=[operation.method])
    # Starlette adds HEAD to GET.
    made.methods = {operation.method}
    return made
