"""The OpenAPI document, as `/v1/openapi.json` has it."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from askback import __version__
from askback.core.errors import RefusalCode
from askback.http import docs
from askback.http.models import Problem
from askback.http.problems import MEDIA_TYPE, RequestCode

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
    schemas[docs.PROBLEM] = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    for name in _NOT_OURS:
        schemas.pop(name, None)
    found["components"]["securitySchemes"] = docs.SECURITY_SCHEMES
    found["security"] = docs.security(())
    return found


def _keep_truth(path: str, responses: dict[str, Any]) -> None:
    """The framework adds a refusal of its own in a form that never leaves here, and forgets one that does."""
    if MEDIA_TYPE not in responses.get("422", {}).get("content", {}):
        responses.pop("422", None)
    if "{" in path:
        # A parameter with a slash in it makes another address of the whole.
        told = responses.get("404", {}).get("content", {}).get(MEDIA_TYPE, {}).get("examples", {})
        codes = [RefusalCode(code) for code in told]
        responses["404"] = docs.problems([*codes, RequestCode.NOT_FOUND])[404]
