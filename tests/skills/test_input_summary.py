"""The input of a run as one line, and which of its parts are secret."""

from __future__ import annotations

from typing import Any

import pytest

from askback.skills.templates import MAX_SUMMARY, masked, secret_inputs, summarize

TRIP = {
    "type": "object",
    "properties": {
        "destination": {"type": "string"},
        "days": {"type": "integer"},
        "pin": {"type": "string", "format": "password"},
        "login": {"type": "object", "properties": {"code": {"$ref": "#/$defs/hidden"}}},
        "notes": {"type": "array", "items": {"type": "string"}},
    },
    "$defs": {"hidden": {"type": "string", "writeOnly": True}},
}


def summary(values: dict[str, Any], template: str | None = None, schema: dict[str, Any] | None = TRIP) -> str | None:
    return summarize(values, template=template, schema=schema, secrets=secret_inputs(values, schema))


def test_the_first_values_in_the_order_of_the_schema() -> None:
    assert summary({"extra": 1, "notes": ["a"], "days": 3, "destination": "Lisbon"}) == "Lisbon · 3 · 1"
    assert summary({"b": "two", "a": 1.5, "flag": True}, schema=None) == "two · 1.5"
    assert summary({}) is None


def test_a_skill_names_its_summary() -> None:
    given = {"destination": "Lisbon", "days": 3, "stay": {"nights": 2}}
    assert summary(given, "{{input.destination}}, {{ input.days }} days") == "Lisbon, 3 days"
    assert summary(given, "{{input.stay.nights}} nights{{input.nothing}}") == "2 nights"
    assert summary({"destination": "{{input.pin}}", "pin": "hunter22"}, "{{input.destination}}") == "{{input.pin}}"


def test_no_secret_is_in_a_summary_or_shown() -> None:
    given = {"pin": "hunter22", "login": {"code": "s3cret"}, "destination": "Lisbon", "api_key": "k"}
    assert secret_inputs(given, TRIP) == ("pin", "login")
    assert summary(given) == "Lisbon"
    assert summary(given, "{{input.pin}} {{input.login.code}} {{input.destination}}") == "[redacted] Lisbon"
    shown = masked(given, secret_inputs(given, TRIP))
    assert shown == {"pin": "[redacted]", "login": "[redacted]", "destination": "Lisbon", "api_key": "k"}


@pytest.mark.parametrize("text", ["a\nb\x1b[31mc", "x\u202ey", "long " * 100_000, "é" * 500])
def test_a_summary_is_one_short_printable_line(text: str) -> None:
    for made in (summary({"destination": text}), summary({"destination": text}, "{{input.destination}} " * 9)):
        assert made is not None
        assert made.isprintable()
        assert len(made) <= MAX_SUMMARY
