"""Local references of schemas: all that read them find the same target."""

from __future__ import annotations

from typing import Any

import pytest

from askback.core.secrecy import Secrecy
from askback.core.values import at_pointer, referenced
from askback.skills.json_schema import resolve

SECRET = {"type": "string", "format": "password"}
PLAIN = {"type": "string"}
DOCUMENT: dict[str, Any] = {
    "$defs": {"a b": SECRET, "x/y": SECRET, "m~n": SECRET, "list": [PLAIN, SECRET], "plain": PLAIN},
    "properties": {"p": {"$anchor": "pin", **SECRET}},
}


def is_secret(reference: str) -> bool:
    return Secrecy.by({"properties": {"x": {"$ref": reference}}, "$defs": DOCUMENT["$defs"]}).any


@pytest.mark.parametrize(
    "reference", ["#/$defs/a%20b", "#/$defs/x~1y", "#/$defs/m~0n", "#/$defs/list/1", "#/%24defs/list/1"]
)
def test_a_reference_leads_to_one_target(reference: str) -> None:
    assert referenced(DOCUMENT, reference) == SECRET
    assert resolve(DOCUMENT, {"$ref": reference}) == SECRET
    assert is_secret(reference)


@pytest.mark.parametrize(
    "reference",
    ["#/$defs/none", "#/$defs/list/2", "#/$defs/list/01", f"#/$defs/list/{'9' * 5000}", "#pin", "other#/a", ""],
)
def test_what_cannot_be_found_is_taken_for_a_secret(reference: str) -> None:
    assert referenced(DOCUMENT, reference) is None
    assert is_secret(reference)


def test_a_plain_target_is_shown_and_the_whole_document_can_be_one() -> None:
    assert not is_secret("#/$defs/plain")
    assert referenced(DOCUMENT, "#") is DOCUMENT
    assert at_pointer(DOCUMENT, "") is DOCUMENT
