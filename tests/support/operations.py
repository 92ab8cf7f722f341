"""The operations of the OpenAPI document in the repository, and those that the clients leave out."""

from __future__ import annotations

import json
import re
from pathlib import Path

_DOCUMENT = Path(__file__).resolve().parents[2] / "docs/reference/openapi.json"
_METHODS = ("get", "post", "put", "patch", "delete")

LEFT_OUT = {
    "GET /v1/answers/{link}": "a link is opened by its user in a browser, without a client",
    "POST /v1/answers/{link}": "the page of the link sends the answer",
    "POST /v1/answers/{link}/file": "as above",
    "GET /v1/sessions": "browser sessions are administered on the page and by `askback sessions`",
    "DELETE /v1/sessions": "as above",
    "DELETE /v1/sessions/{session_id}": "as above",
    "GET /v1/push": "a browser subscribes itself, on the page",
    "POST /v1/push/subscriptions": "as above",
    "DELETE /v1/push/subscriptions/{subscription_id}": "as above",
    "POST /v1/push/subscriptions/{subscription_id}/test": "as above",
    "GET /metrics": "Prometheus reads it",
    "GET /readyz": "load balancers read it",
}


def operations() -> set[str]:
    """Every operation as `METHOD /path/{parameter}`."""
    paths = json.loads(_DOCUMENT.read_text())["paths"]
    return {f"{method.upper()} {path}" for path, item in paths.items() for method in item if method in _METHODS}


def template_of(method: str, path: str) -> str | None:
    """The operation that a request calls. Of several, the one with the fewest parameters."""
    fitting = [each for each in operations() if _fits(each, f"{method} {path}")]
    return min(fitting, key=lambda each: each.count("{"), default=None)


def _fits(operation: str, request: str) -> bool:
    return re.fullmatch(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(operation)), request) is not None
