"""The files that an output names, found by its schema."""

from __future__ import annotations

from typing import Any

import pytest

from askback.skills.schema_files import FileSearch, TooLarge, marks_files, with_names

FILE = {"type": "string", "x-type": "artifact"}
DONE = {"properties": {"kind": {"const": "done"}, "page": FILE, "log": FILE}, "required": ["kind", "page"]}
FAILED = {"properties": {"kind": {"const": "failed"}, "page": {"type": "string"}}, "required": ["kind"]}


def found(schema: Any, output: Any) -> dict[Any, Any]:
    named = FileSearch(schema).named_in(output)
    return {each.path: (each.name, each.required, each.is_manifest) for each in named}


@pytest.mark.parametrize(
    ("schema", "output", "files"),
    [
        ({"properties": {"a": FILE}, "required": ["a"]}, {"a": "x.md"}, {("a",): ("x.md", True, False)}),
        ({"properties": {"a": FILE}}, {"a": ""}, {("a",): ("", False, False)}),
        ({"properties": {"a": FILE}}, {"a": None, "b": "x"}, {}),
        ({"properties": {"a": FILE}}, {}, {}),
        ({"properties": {"a": {"type": "string", "x-type": "video"}}}, {"a": "x"}, {}),
        ({"properties": {"a": {"x-type": "file"}}}, {"a": "x"}, {("a",): ("x", False, False)}),
        ({"properties": {"a": {"x-type": "artifact-manifest"}}}, {"a": "x"}, {("a",): ("x", False, True)}),
        ({"properties": {"a": {**FILE, "x-role": "artifact-manifest"}}}, {"a": "x"}, {("a",): ("x", False, True)}),
        (FILE, "x.md", {(): ("x.md", True, False)}),
        (
            {"properties": {"all": {"items": {"properties": {"f": FILE}, "required": ["f"]}}}},
            {"all": [{"f": "1"}, {"f": "2"}]},
            {("all", 0, "f"): ("1", True, False), ("all", 1, "f"): ("2", True, False)},
        ),
        (
            {"properties": {"all": {"type": "array", "x-type": "artifact"}}},
            {"all": ["1", 2]},
            {("all", 0): ("1", False, False)},
        ),
        ({"additionalProperties": FILE}, {"z": "1"}, {("z",): ("1", False, False)}),
        (
            {"$defs": {"file": FILE}, "properties": {"a": {"$ref": "#/$defs/file"}}},
            {"a": "1"},
            {("a",): ("1", False, False)},
        ),
        ({"oneOf": [DONE, FAILED]}, {"kind": "done", "page": "p"}, {("page",): ("p", True, False)}),
        ({"oneOf": [DONE, FAILED]}, {"kind": "failed", "page": "p"}, {}),
        ({"anyOf": [{"$ref": "#/$defs/d"}, FAILED], "$defs": {"d": DONE}}, {"kind": "failed", "page": "p"}, {}),
        ({"allOf": [DONE]}, {"kind": "done", "log": "l"}, {("log",): ("l", False, False)}),
        ({"properties": {"a": True}, "items": [FILE]}, {"a": "x"}, {}),
        (None, {"a": "x"}, {}),
    ],
)
@pytest.mark.contract("J-7")
def test_files_are_found_by_the_schema(schema: Any, output: Any, files: Any) -> None:
    assert found(schema, output) == files


def test_a_schema_without_files_marks_none() -> None:
    assert not marks_files({"properties": {"a": {"type": "string", "x-type": "video"}}})
    assert marks_files({"oneOf": [FAILED, DONE]})
    assert not marks_files(None)


def test_a_schema_that_refers_to_itself_ends() -> None:
    with pytest.raises(TooLarge):
        FileSearch({"$ref": "#"}).named_in({"a": 1})


def test_all_outputs_of_a_turn_together_may_be_too_large() -> None:
    search = FileSearch({"items": FILE})
    assert len(search.named_in(["x"] * 150_000)) == 150_000
    with pytest.raises(TooLarge):
        search.named_in(["x"] * 150_000)


def test_names_are_replaced_where_they_were_found() -> None:
    output = {"a": "1", "b": [{"c": "2"}, "3"], "d": {"e": 4}}
    names = {("a",): "x", ("b", 0, "c"): "y"}
    assert with_names(output, names) == {"a": "x", "b": [{"c": "y"}, "3"], "d": {"e": 4}}
    assert with_names("1", {(): "x"}) == "x"
