"""Shapes: documented in full, and readable by an older client."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from askback.core.interactions import Interaction as Question
from askback.http.app import openapi_document
from askback.wire.artifacts import Artifact
from askback.wire.base import encode
from askback.wire.questions import Interaction
from askback.wire.runs import Event, RunError

HIDDEN = {"type": "string", "format": "password"}
SCHEMAS: dict[str, Any] = openapi_document()["components"]["schemas"]


@pytest.mark.parametrize("name", [name for name, each in SCHEMAS.items() if "properties" in each])
def test_every_field_has_a_description_and_a_type(name: str) -> None:
    assert SCHEMAS[name]["description"]
    for field, schema in SCHEMAS[name]["properties"].items():
        assert schema.get("description"), field
        known = {"type", "$ref", "anyOf", "const"} & schema.keys()
        assert known or field in ("default", "context", "response", "data"), field


def test_a_field_that_may_be_left_out_is_not_nullable() -> None:
    error = SCHEMAS["RunError"]
    assert error["required"] == ["code", "message"]
    assert error["properties"]["cause"]["$ref"] == "#/components/schemas/ErrorCode"
    assert encode(RunError(code="X", message="m")) == b'{"code":"X","message":"m"}'


def test_a_field_that_is_null_is_always_sent() -> None:
    assert SCHEMAS["RunPage"]["required"] == ["items", "next_cursor"]
    assert SCHEMAS["Interaction"]["required"] == list(SCHEMAS["Interaction"]["properties"])


@pytest.mark.parametrize(
    ("kind", "schema", "secret"),
    [
        ("text", None, ()),
        ("form", {"properties": {"name": {}, "pin": {"$ref": "#/$defs/word"}}, "$defs": {"word": HIDDEN}}, ("pin",)),
        ("form", {"$ref": "https://schemas.example/login.json"}, None),
        ("secret", None, None),
    ],
)
def test_a_question_names_its_secret_fields(kind: str, schema: Any, secret: tuple[str, ...] | None) -> None:
    asked = Question(
        interaction_id="q", kind=kind, prompt="?", attempt_number=1, asked_at=datetime.now(UTC), response_schema=schema
    )
    assert Interaction.of(asked).secret_fields == secret
    # Of an older server, nothing is known.
    older = msgspec.to_builtins(Interaction.of(asked))
    del older["secret_fields"]
    assert msgspec.convert(older, Interaction).secret_fields is None


def test_an_older_client_reads_new_codes_and_fields() -> None:
    text = b'{"seq":1,"run_id":"r","type":"run.new","at":"2026-01-01T00:00:00Z","data":{},"more":1}'
    assert msgspec.json.decode(text, type=Event).type == "run.new"


def test_a_file_name_that_is_not_unicode_can_be_sent() -> None:
    assert encode(Artifact(path="a\udcff", size=1)) == b'{"path": "a?", "size": 1}'
