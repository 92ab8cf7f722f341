"""What the OpenAPI document says of a call: who may make it, the good answer, and every code that may come instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from askback import __version__
from askback.core.errors import REFUSAL_KINDS, REFUSAL_MEANINGS, RefusalCode, Unavailable
from askback.http.auth import AccessScope
from askback.http.models import Problem
from askback.http.problems import MEDIA_TYPE, REQUEST_CODES, RequestCode, status_of

Code = RefusalCode | RequestCode

PROBLEM = "Problem"
"""The name of the schema that every error has."""
TOKEN = "token"
BY_COOKIE = "cookie"
SECURITY_SCHEMES = {
    TOKEN: {
        "type": "http",
        "scheme": "bearer",
        "description": "The server's own token, which it prints at its start, or one made by `askback tokens create`. "
        f"The roles of a call are the scopes of which a token needs one; `{AccessScope.ADMIN}` is always enough.",
    },
    BY_COOKIE: {
        "type": "apiKey",
        "in": "cookie",
        "name": "askback_session_PORT",
        "description": "A browser session, set by `/enter?token=…` for the page. The name holds the server's port; behind "
        "TLS (`server.public_url`) it begins with `__Host-`. Its value is not a token, and a token is not a session.",
    },
}

BODY = (
    RequestCode.REQUEST_MALFORMED,
    RequestCode.BODY_TOO_SLOW,
    RequestCode.BODY_TOO_LARGE,
    RequestCode.MEDIA_TYPE_UNSUPPORTED,
)
"""What may be wrong with every body."""
JSON_BODY = (*BODY, RequestCode.REQUEST_INVALID)
MACHINE = tuple(
    code for code, kind in REFUSAL_KINDS.items() if kind is Unavailable and code is not RefusalCode.PORT_UNUSABLE
)
"""What may be wrong with the machine, whatever is asked."""


def call(
    *scopes: AccessScope,
    answer: type[BaseModel] | None = None,
    status: HTTPStatus = HTTPStatus.OK,
    refusals: Iterable[Code] = (),
    by_link: bool = False,
    content: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    says: str | None = None,
    body: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The arguments of a route's decorator. `content`: further media types; `body`: one that the route reads itself."""
    good: dict[str, Any] = {"model": answer} if answer is not None else {}
    if content is not None:
        good["content"] = dict(content)
    if headers is not None:
        good["headers"] = {name: {"description": text, "schema": {"type": "string"}} for name, text in headers.items()}
    if says is not None:
        good["description"] = says
    always: tuple[Code, ...] = (
        RequestCode.UNAUTHORIZED,
        RequestCode.TOO_MANY_FAILED_SIGN_INS,
        RequestCode.FORBIDDEN,
        RefusalCode.QUOTA_EXCEEDED,
        *MACHINE,
    )
    codes = (*refusals, *always, *((RefusalCode.SCOPE_MISSING,) if scopes else ()))
    extra: dict[str, Any] = {"security": [] if by_link else security(scopes)}
    if body is not None:
        extra["requestBody"] = {"required": True, "content": dict(body)}
    return {
        "status_code": status,
        "response_model": None,
        "responses": {int(status): good, **problems(codes)},
        "openapi_extra": extra,
    }


def security(scopes: Iterable[AccessScope]) -> list[dict[str, list[str]]]:
    roles = [str(scope) for scope in scopes]
    return [{TOKEN: roles}, {BY_COOKIE: roles}]


def problems(codes: Iterable[Code]) -> dict[int | str, dict[str, Any]]:
    """The error answers, by status; each names the codes that it may have."""
    by_status: dict[HTTPStatus, list[Code]] = {}
    for code in dict.fromkeys(codes):
        by_status.setdefault(status_of(code), []).append(code)
    return {int(status): _problem(status, by_status[status]) for status in sorted(by_status)}


def meaning(code: Code) -> str:
    return REQUEST_CODES[code][1] if isinstance(code, RequestCode) else REFUSAL_MEANINGS[code]


def _problem(status: HTTPStatus, codes: list[Code]) -> dict[str, Any]:
    properties = {"code": {"enum": [str(code) for code in codes]}, "status": {"const": int(status)}}
    schema = {"allOf": [{"$ref": f"#/components/schemas/{PROBLEM}"}, {"type": "object", "properties": properties}]}
    examples = {str(code): {"summary": meaning(code), "value": _example(status, code)} for code in codes}
    told = " ".join(f"`{code}`: {meaning(code)}" for code in codes)
    return {"description": told, "content": {MEDIA_TYPE: {"schema": schema, "examples": examples}}}


def _example(status: HTTPStatus, code: Code) -> dict[str, Any]:
    return {
        "type": "about:blank",
        "title": status.phrase,
        "status": int(status),
        "code": str(code),
        "detail": meaning(code),
    }


_ABOUT = """Askback runs agent skills that can ask back: a run may stop to ask its user, cost nothing while it waits, \
and go on in the same engine session when the answer comes.

Every call but `/healthz` needs a token. Errors are `application/problem+json` with a stable `code`. Times are RFC 3339 \
in UTC. Lists are `{items, next_cursor}`; the next page is asked for with `cursor`."""
_TAGS = [
    {"name": "runs", "description": "Create, look at, follow and end runs."},
    {"name": "questions", "description": "What runs ask, and answering it."},
    {"name": "files", "description": "What a run takes in and leaves behind."},
    {"name": "notifications", "description": "What webhooks were told."},
    {"name": "skills", "description": "The skills that can be run."},
    {"name": "engines", "description": "The engines that carry runs out."},
    {"name": "sessions", "description": "Browsers that are signed in to the page."},
    {"name": "server", "description": "How the server is."},
]
_NOT_OURS = ("HTTPValidationError", "ValidationError")


def document(app: FastAPI) -> dict[str, Any]:
    """What the framework knows of the routes, without what it only supposes."""
    found = get_openapi(
        title="Askback",
        version=__version__,
        summary="Runs agent skills that can ask back.",
        description=_ABOUT,
        routes=app.routes,
        tags=_TAGS,
    )
    for path, operations in found["paths"].items():
        for operation in operations.values():
            _keep_truth(path, operation["responses"])
    schemas = found.setdefault("components", {}).setdefault("schemas", {})
    schemas[PROBLEM] = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    for name in _NOT_OURS:
        schemas.pop(name, None)
    found["components"]["securitySchemes"] = SECURITY_SCHEMES
    found["security"] = security(())
    return found


def _keep_truth(path: str, responses: dict[str, Any]) -> None:
    """The framework adds a refusal of its own in a form that never leaves here, and forgets one that does."""
    if MEDIA_TYPE not in responses.get("422", {}).get("content", {}):
        responses.pop("422", None)
    if "{" in path:
        # A parameter with a slash in it makes another address of the whole.
        told = responses.get("404", {}).get("content", {}).get(MEDIA_TYPE, {}).get("examples", {})
        codes = [RefusalCode(code) for code in told]
        responses["404"] = problems([*codes, RequestCode.NOT_FOUND])[404]
