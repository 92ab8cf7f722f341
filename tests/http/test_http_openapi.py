"""Requests made from the OpenAPI document itself: whatever is sent, the answer is one that the document allows."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from askback.http.app import routes
from served import Server

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


@schemathesis.serializer("application/zip", "application/x-zip-compressed")
def as_bytes(context: schemathesis.SerializationContext, value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


document = schemathesis.openapi.from_dict(routes().openapi())


@document.parametrize()
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_every_answer_is_one_that_the_document_allows(case: schemathesis.Case, server: Server) -> None:
    headers = {"Authorization": f"Bearer {server.token}", "Host": server.url.removeprefix("http://")}
    case.call_and_validate(base_url=server.url, headers=headers, checks=CHECKS, timeout=20)


@pytest.mark.parametrize("path", sorted(routes().openapi()["paths"]))
def test_every_call_says_what_it_is_for_and_how_it_may_fail(path: str) -> None:
    for operation in routes().openapi()["paths"][path].values():
        assert operation["summary"]
        assert all(answer["description"] for answer in operation["responses"].values())
        if path != "/healthz":
            assert "401" in operation["responses"]
