"""The OpenAPI document, made from the declared operations and the shapes of `wire`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from askback import __version__
from askback.core.access import AccessScope, Action
from askback.core.actors import Channel
from askback.core.changes import ChangeStatus, NoSummary
from askback.core.errors import ErrorCode, LimitKind, RefusalCode, Unavailable, WarningCode
from askback.core.events import EventType
from askback.core.interactions import AnsweredBy, InboxOrder, InteractionOutcome
from askback.core.runs import InheritedFiles, Mode, ProfileKind, RunState
from askback.core.webhooks import DeliveryReason, WebhookKind
from askback.http.problems import MEDIA_TYPE, RequestCode, status_of
from askback.http.routing import EVENT_STREAM, Access, Code, Operation
from askback.wire.base import Shape
from askback.wire.deliveries import Notification
from askback.wire.requests import Body
from askback.wire.server import Problem

Json = dict[str, Any]

TOKEN = "token"
COOKIE = "cookie"
_REF = "#/components/schemas/{name}"
_SECURITY_SCHEMES = {
    TOKEN: {
        "type": "http",
        "scheme": "bearer",
        "description": "The server's own token, which it prints when it starts, or one from `askback tokens create`. The "
        f"roles of an operation are scopes. A token needs one of them; `{AccessScope.ADMIN}` allows everything.",
    },
    COOKIE: {
        "type": "apiKey",
        "in": "cookie",
        "name": "askback_session_PORT",
        "description": "A browser session, created by `/enter?token=…`. The name contains the server's port. Behind TLS "
        "(`server.public_url`) it starts with `__Host-`. The value is not a token.",
    },
}
_DESCRIPTION = """Askback runs agent skills that can ask back: a run may stop to ask its user. It uses no resources while \
it waits, and resumes the same engine session when the answer arrives.

Every operation except `/healthz` and `/readyz` requires a token. Errors are `application/problem+json` with a stable `code`. Times are \
RFC 3339 in UTC. Lists are `{items, next_cursor}`; pass `next_cursor` as `cursor` to get the next page."""
_TAGS = [
    {"name": "runs", "description": "Create, read, follow and cancel runs."},
    {"name": "questions", "description": "Read and answer the questions of runs."},
    {"name": "files", "description": "Upload input files and download artifacts."},
    {"name": "notifications", "description": "Deliveries to webhooks."},
    {"name": "skills", "description": "List, install and delete skills."},
    {"name": "engines", "description": "The engines that execute runs."},
    {"name": "tokens", "description": "Tokens of people and programs, and invitations for their devices."},
    {"name": "sessions", "description": "Browsers that are signed in to the page."},
    {"name": "push", "description": "Devices that get a push when a question is asked."},
    {"name": "server", "description": "Health, metrics and statistics."},
]
_MACHINE = tuple(code for code in RefusalCode if code.kind is Unavailable and code is not RefusalCode.PORT_UNUSABLE)
_ALWAYS = (
    RequestCode.REQUEST_MALFORMED,
    RequestCode.UNAUTHORIZED,
    RequestCode.TOO_MANY_FAILED_SIGN_INS,
    RequestCode.FORBIDDEN,
    RefusalCode.QUOTA_EXCEEDED,
    *_MACHINE,
)
_ENUMS = (
    AccessScope,
    Action,
    AnsweredBy,
    ChangeStatus,
    DeliveryReason,
    ErrorCode,
    LimitKind,
    EventType,
    InboxOrder,
    InheritedFiles,
    InteractionOutcome,
    Mode,
    NoSummary,
    ProfileKind,
    RunState,
    Channel,
    WarningCode,
    WebhookKind,
)


def document(operations: Sequence[Operation]) -> Json:
    shapes = [shape for each in operations for shape in (each.returns, each.body) if shape is not None]
    paths: dict[str, Json] = {}
    for each in operations:
        paths.setdefault(each.template, {})[each.method.lower()] = _operation(each)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Askback",
            "summary": "Runs agent skills that can ask back.",
            "description": _DESCRIPTION,
            "version": __version__,
        },
        "paths": paths,
        "webhooks": {name: {"post": _notification(name)} for name in _NOTIFICATIONS},
        "components": {
            "schemas": _schemas([*shapes, Problem, Notification, *_ENUMS]),
            "securitySchemes": _SECURITY_SCHEMES,
        },
        "tags": _TAGS,
        "security": _security(()),
    }


_NOTIFICATIONS = {
    "run.state": "A run changed its state",
    "interaction.reminder": "A question is still open",
    "interaction.expiring": "The deadline of a question is near",
    "run.parked": "A run waits for a limit of the model provider to end",
    "run.resumed": "A parked run continues",
}


def _notification(name: str) -> Json:
    return {
        "summary": _NOTIFICATIONS[name],
        "description": "Sent to `standard` webhooks, signed as Standard Webhooks describes.",
        "operationId": name.replace(".", "_"),
        "tags": ["notifications"],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": _REF.format(name=Notification.__name__)}}},
        },
        "responses": {"2XX": {"description": "Received. Any other status is retried, except 410."}},
        "security": [],
    }


def _operation(operation: Operation) -> Json:
    described: Json = {
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": inspect.cleandoc(operation.handler.__doc__ or ""),
        "operationId": getattr(operation.handler, "__name__", ""),
    }
    if parameters := list(_parameters(operation)):
        described["parameters"] = parameters
    if operation.body is not None:
        required = any(each.required for each in msgspec.structs.fields(operation.body))
        described["requestBody"] = {"required": required, "content": _json(operation.body)}
    elif operation.raw_body is not None:
        described["requestBody"] = {"required": True, "content": dict(operation.raw_body)}
    described["responses"] = _responses(operation)
    described["security"] = _security(operation.scopes) if operation.access is Access.TOKEN else []
    return described


def _json(shape: type[Shape]) -> Json:
    return {"application/json": {"schema": {"$ref": _REF.format(name=shape.__name__)}}}


def _security(scopes: Iterable[AccessScope]) -> list[dict[str, list[str]]]:
    roles = [str(scope) for scope in scopes]
    return [{TOKEN: roles}, {COOKIE: roles}]


def _parameters(operation: Operation) -> Iterator[Json]:
    for name, (description, example, _) in operation.path_parameters.items():
        schema: Json = {"type": "string", "description": description, "examples": [example]}
        yield {"name": name, "in": "path", "required": True, "description": description, "schema": schema}
    for place, shape in (("query", operation.query), ("header", operation.headers)):
        if shape is None:
            continue
        described = msgspec.json.schema_components([shape], ref_template=_REF)[1][shape.__name__]
        for name, schema in described["properties"].items():
            schema = _without_null(schema)
            shown = name if place == "query" else name.replace("_", "-")
            yield {
                "name": shown,
                "in": place,
                "required": name in described.get("required", ()),
                "description": schema["description"],
                "schema": schema,
            }


def _responses(operation: Operation) -> Json:
    or_stream = " Or a stream." if EVENT_STREAM in operation.content else ""
    good: Json = {"description": operation.description + or_stream}
    content = {**(_json(operation.returns) if operation.returns else {}), **operation.content}
    if content:
        good["content"] = content
    if operation.response_headers:
        good["headers"] = {
            name: {"description": text, "schema": {"type": "string"}}
            for name, text in operation.response_headers.items()
        }
    others = {str(int(status)): {**good, "description": text} for status, text in operation.other_statuses.items()}
    empty = {str(int(status)): {"description": text} for status, text in operation.empty_statuses.items()}
    return {str(int(operation.status)): good, **others, **empty, **_problems(operation)}


def _problems(operation: Operation) -> Json:
    """The error responses by status, each with its codes."""
    always = (RequestCode.REQUEST_MALFORMED,) if operation.access is Access.NOTHING else _ALWAYS
    codes: list[Code] = [*operation.codes, *always]
    if operation.access is Access.TOKEN:
        codes.append(RefusalCode.SCOPE_MISSING)
    if "{" in operation.path:
        # With a slash in a parameter, it is another path.
        codes.append(RequestCode.NOT_FOUND)
    by_status: dict[HTTPStatus, list[Code]] = {}
    for code in dict.fromkeys(codes):
        by_status.setdefault(status_of(code), []).append(code)
    return {str(int(status)): _problem(status, by_status[status]) for status in sorted(by_status)}


def _problem(status: HTTPStatus, codes: list[Code]) -> Json:
    properties = {"code": {"enum": [str(code) for code in codes]}, "status": {"const": int(status)}}
    schema = {"allOf": [{"$ref": _REF.format(name=Problem.__name__)}, {"type": "object", "properties": properties}]}
    examples = {}
    for code in codes:
        shown = Problem(type="about:blank", title=status.phrase, status=int(status), code=code, detail=meaning(code))
        examples[str(code)] = {"summary": meaning(code), "value": msgspec.to_builtins(shown)}
    description = " ".join(f"`{code}`: {meaning(code)}" for code in codes)
    return {"description": description, "content": {MEDIA_TYPE: {"schema": schema, "examples": examples}}}


def meaning(code: Code) -> str:
    return code.meaning


def _schemas(types: Iterable[type]) -> dict[str, Json]:
    """The schemas of these types and of all types inside them."""
    _, found = msgspec.json.schema_components(list(dict.fromkeys(types)), ref_template=_REF)
    for enum in _ENUMS:
        found[enum.__name__] |= {"type": "string", "enum": [str(each) for each in enum]}
    for shape in _subclasses(Shape):
        if shape.__name__ in found and not issubclass(shape, Body):
            _describe_response(shape, found[shape.__name__])
    # The public name of this schema, which clients have as a type.
    found["Via"] = {**found.pop(Channel.__name__), "title": "Via"}
    return dict(sorted(found.items()))


def _describe_response(shape: type[Shape], schema: Json) -> None:
    """In a response, a field with a default is either left out or always present."""
    properties: dict[str, Json] = schema["properties"]
    if shape.__struct_config__.omit_defaults:
        schema["properties"] = {name: _without_null(each) for name, each in properties.items()}
    else:
        for each in properties.values():
            each.pop("default", None)
        schema["required"] = list(properties)


def _without_null(schema: Json) -> Json:
    """The schema of an optional field that is present."""
    if "default" not in schema or schema["default"] is not None:
        return schema
    (only,) = [each for each in schema.pop("anyOf") if each != {"type": "null"}]
    del schema["default"]
    return {**only, **schema}


def _subclasses(shape: type[Shape]) -> Iterator[type[Shape]]:
    for each in shape.__subclasses__():
        yield each
        yield from _subclasses(each)
