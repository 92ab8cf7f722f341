"""Schemas that are refused, and errors in values: all at once, each with its path, whatever the value is."""

from __future__ import annotations

import http.server
import json
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from askback.skills.json_schema import MAX_PROBLEMS, WHOLE_WEIGHT, SchemaInvalid, compile_schema


def problems(schema: Any, value: Any, root: str = "input") -> tuple[str, ...]:
    return compile_schema(schema, "schema").problems(value, root)


def of_property(schema: Any, value: Any) -> tuple[str, ...]:
    return problems({"type": "object", "properties": {"a": schema}}, {"a": value})


# Wording.


@pytest.mark.parametrize(
    ("schema", "value", "told"),
    [
        ({"type": "string"}, 12, 'input.a: 12 is not of type "string"'),
        ({"type": "integer"}, "x", 'input.a: "x" is not of type "integer"'),
        ({"type": "array"}, {}, 'input.a: {} is not of type "array"'),
        ({"type": "boolean"}, None, 'input.a: null is not of type "boolean"'),
        ({"type": ["string", "null"]}, 1, 'input.a: 1 is not of types "null", "string"'),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 1, 'input.a: 1 is not of types "string", "null"'),
        ({"enum": ["red", "blue"]}, "green", 'input.a: "green" is not one of "red", "blue"'),
        ({"const": "x"}, "y", 'input.a: "x" was expected'),
        ({"minimum": 1}, 0, "input.a: 0 is less than the minimum of 1"),
        ({"maximum": 1}, 2, "input.a: 2 is greater than the maximum of 1"),
        ({"exclusiveMinimum": 1}, 1, "input.a: 1 is less than or equal to the minimum of 1"),
        ({"exclusiveMaximum": 1}, 1, "input.a: 1 is greater than or equal to the maximum of 1"),
        ({"multipleOf": 3}, 4, "input.a: 4 is not a multiple of 3"),
        ({"minLength": 1}, "", 'input.a: "" is shorter than 1 character'),
        ({"minLength": 3}, "ab", 'input.a: "ab" is shorter than 3 characters'),
        ({"maxLength": 1}, "ab", 'input.a: "ab" is longer than 1 character'),
        ({"pattern": "^[0-9]+$"}, "x", 'input.a: "x" does not match "^[0-9]+$"'),
        ({"format": "date"}, "tomorrow", 'input.a: "tomorrow" is not a "date"'),
        ({"minItems": 1}, [], "input.a: [] has less than 1 item"),
        ({"maxItems": 1}, [1, 2], "input.a: [1, 2] has more than 1 item"),
        ({"uniqueItems": True}, [1, 1], "input.a: [1, 1] has non-unique elements"),
        ({"contains": {"type": "string"}}, [1], "input.a: has too few or too many items that match `contains`"),
        ({"minProperties": 1}, {}, "input.a: {} has less than 1 property"),
        ({"not": {"type": "string"}}, "x", 'input.a: {"type":"string"} is not allowed for "x"'),
        (False, 1, "input.a: is not allowed here"),
        ({"oneOf": [{"type": "string"}, {"minLength": 1}]}, "x", 'input.a: "x" is valid under more than one of the schemas listed in the \'oneOf\' keyword'),
        ({"propertyNames": {"pattern": "^x"}}, {"y": 1}, 'input.a: has a property name that is not allowed: "y"'),
        ({"items": {"properties": {"n": {}}, "required": ["n"]}}, [{"n": 1}, {}], "input.a[1].n: is required"),
        ({"additionalProperties": False, "properties": {"colour": {}}}, {"color": 1}, "input.a.color: is unknown; did you mean 'colour'?"),
        ({"additionalProperties": False}, {"x": 1}, "input.a.x: is not allowed here"),
        ({"properties": {"b c": {"type": "string"}}}, {"b c": 1}, 'input.a["b c"]: 1 is not of type "string"'),
        ({"dependentRequired": {"x": ["y"]}}, {"x": 1}, "input.a.y: is required"),
        ({"$ref": "#/properties/a/$defs/n", "$defs": {"n": {"type": "null"}}}, 1, 'input.a: 1 is not of type "null"'),
        ({"type": "string"}, {"x": ["y" * 100]}, 'input.a: {"x": ["' + "y" * 51 + '… is not of type "string"'),
    ],
)  # fmt: skip
def test_a_mistake_is_told_in_these_words(schema: Any, value: Any, told: str) -> None:
    assert of_property(schema, value) == (told,)


def test_of_several_forms_the_nearest_one_is_told() -> None:
    forms = [
        {"properties": {"kind": {"const": "mail"}, "to": {"type": "string"}}, "required": ["kind", "to"]},
        {"properties": {"kind": {"const": "call"}, "number": {"type": "string"}}, "required": ["kind", "number"]},
    ]
    assert of_property({"oneOf": forms}, {"kind": "call"}) == (
        "input.a.number: is required (other alternatives are allowed too)",
    )


def test_every_mistake_is_told_at_once_in_the_order_of_the_paths() -> None:
    schema = {
        "type": "object",
        "properties": {"pages": {"type": "string"}, "items": {"items": {"type": "integer"}}},
        "required": ["title"],
        "additionalProperties": False,
    }
    value = {"zz": 1, "pages": 12, "items": ["x", 1, *["y"] * 10]}
    told = problems(schema, value)
    assert [line.split(":")[0] for line in told] == [
        "input.items[0]",
        *(f"input.items[{index}]" for index in range(2, 12)),
        "input.pages",
        "input.title",
        "input.zz",
    ]
    assert told == problems(schema, dict(reversed(value.items())))


def test_many_mistakes_are_capped_with_how_many_more() -> None:
    told = problems({"items": {"type": "string"}}, list(range(80)))
    assert len(told) == MAX_PROBLEMS + 1
    assert told[-1] == "and 30 more"


def test_long_values_and_names_are_shortened() -> None:
    told = problems({"additionalProperties": {"type": "integer"}}, {"k" * 5000: "v" * 5000})
    assert len(told[0]) < 200


@pytest.mark.parametrize(
    "schema", [{"const": "x" * 100_000}, {"not": {"const": "v"}, "title": "x" * 100_000}, {"pattern": "x" * 5000}]
)
def test_long_parts_of_a_schema_are_cut_in_messages(schema: Any) -> None:
    (problem,) = problems(schema, "v")
    assert len(problem) < 400


def test_control_characters_of_a_schema_are_escaped_in_messages() -> None:
    (problem,) = problems({"pattern": "a\x1b\nb"}, "v")
    assert problem == 'input: "v" does not match "a\\x1b\\nb"'


def test_a_value_inside_alternatives_is_shortened_too() -> None:
    (problem,) = problems({"anyOf": [{"maxLength": 3}, {"pattern": "^x"}]}, "v" * 5000)
    assert '"' + "v" * 59 + '…"' in problem


# Schemas.


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "strin"},
        {"type": 12},
        {"properties": []},
        {"required": "a"},
        {"pattern": "("},
        {"pattern": "((a{1000}){1000}){1000}"},
        {"$ref": "#/$defs/nowhere"},
        {"$schema": "https://example.com/my-draft"},
        {"$schema": 12},
        {"minimum": "1"},
        {"minimum": float("nan")},
        [],
        "x",
        None,
        12,
    ],
)
def test_a_schema_that_is_no_schema_is_refused(schema: Any) -> None:
    with pytest.raises(SchemaInvalid) as caught:
        compile_schema(schema, "where.json")
    assert all(problem.startswith("where.json") for problem in caught.value.problems)


def test_all_mistakes_of_a_schema_are_told_at_once() -> None:
    with pytest.raises(SchemaInvalid) as caught:
        compile_schema({"type": 1, "properties": {"a": {"type": "sting"}, "b": {"minLength": -1}}}, "s")
    assert [problem.split(":")[0] for problem in caught.value.problems] == [
        "s.properties.a.type",
        "s.properties.b.minLength",
        "s.type",
    ]


@pytest.mark.parametrize(
    "draft",
    [
        "http://json-schema.org/draft-04/schema#",
        "http://json-schema.org/draft-06/schema#",
        "http://json-schema.org/draft-07/schema#",
        "http://json-schema.org/draft-07/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
    ],
)
def test_every_usual_draft_is_known(draft: str) -> None:
    assert problems({"$schema": draft, "type": "string"}, 1) == ('input: 1 is not of type "string"',)


class Listener(http.server.BaseHTTPRequestHandler):
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        Listener.asked.append(self.path)
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def server() -> Any:
    Listener.asked = []
    with http.server.HTTPServer(("127.0.0.1", 0), Listener) as listening:
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()
        thread.join()


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "URL/a"},
        {"properties": {"x": {"$ref": "URL/b#/c"}}},
        {"$id": "URL/base", "$ref": "other"},
        {"$schema": "URL/draft"},
        {"$dynamicRef": "URL/c"},
        {"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveRef": "URL/d"},
        {"properties": {"enum": {"$ref": "URL/e"}}},
        {"properties": {"default": {"$ref": "URL/f"}}},
        {"$defs": {"x": {"$id": "URL/sub", "$ref": "z"}}, "$ref": "#/$defs/x"},
    ],
)
def test_no_schema_ever_reaches_the_network(schema: Any, server: str) -> None:
    pointed = json.loads(json.dumps(schema).replace("URL", server))
    with pytest.raises(SchemaInvalid):
        compile_schema(pointed, "s")
    assert Listener.asked == []


def test_no_schema_ever_reads_a_file(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"type": "string"}')
    for target in (f"file://{tmp_path}/other.json", "other.json", f"{tmp_path}/other.json", "//host/other.json"):
        with pytest.raises(SchemaInvalid, match="outside this document"):
            compile_schema({"$ref": target}, "s")


def test_local_references_work_also_beside_an_id() -> None:
    schema = {"$id": "https://example.com/x", "$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}
    assert problems(schema, "x") == ('input: "x" is not of type "integer"',)
    assert problems({"$ref": "#"}, 1) == ()


# Hostile values.


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"a": float("nan")}, "input.a: is not a finite number"),
        ({"a": [float("inf")]}, "input.a[0]: is not a finite number"),
        ({"a": 10**5000}, "input.a: is a number of more than 64 bits"),
        (
            {"a": 2**64},
            "input.a: is a number of more than 64 bits; send a smaller one, or a string if the schema allows it",
        ),
        ({"a": "\ud800"}, "input.a: has a lone surrogate"),
        ({"\udfff": 1}, "input: has a property name that is not a valid string"),
        ({1: 1}, "input: has a property name that is not a valid string"),
        ({"a": {1, 2}}, "input.a: is of the type set"),
        ({"a": b"x"}, "input.a: is of the type bytes"),
        ({"a": object()}, "input.a: is of the type object"),
        (nested(101), "is nested deeper than 100 levels"),
        (nested(100_000), "is nested deeper than 100 levels"),
    ],
)
def test_what_is_no_json_is_told_and_not_raised(value: Any, says: str) -> None:
    told = problems({}, value)
    assert len(told) == 1
    assert says in told[0]


def test_numbers_at_the_edge_of_64_bits_pass() -> None:
    assert problems({}, [2**64 - 1, -(2**63), 1e308, nested(90)]) == ()


def test_a_cycle_ends() -> None:
    value: list[Any] = []
    value.append(value)
    assert "nested deeper" in problems({}, value)[0]


def test_a_large_value_is_checked_in_short_time_and_little_memory() -> None:
    schema = {"required": [f"key{number}" for number in range(500)], "properties": {"n": {"type": "string"}}}
    value = {"blob": "x" * 20_000_000, "n": 1}
    began = time.perf_counter()
    assert len(problems(schema, value)) == 1
    assert problems({"type": "object"}, value) == ()
    assert time.perf_counter() - began < 20


def test_up_to_a_size_every_mistake_is_named() -> None:
    value = {"blob": "x" * (WHOLE_WEIGHT // 2), "n": 1}
    assert len(problems({"required": ["a", "b"], "properties": {"n": {"type": "string"}}}, value)) == 3


def test_too_many_values_are_refused_before_they_are_checked() -> None:
    assert "too many values" in problems({}, [[0] * 1000] * 1100)[0]


def test_a_pattern_that_never_ends_is_told() -> None:
    began = time.perf_counter()
    assert problems({"pattern": "^(?=a)(a+)+(a+)+(a+)+\\1$"}, "a" * 40 + "b")
    assert time.perf_counter() - began < 20


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
keywords = {
    "type": st.sampled_from(["string", "number", "integer", "object", "array", "boolean", "null"]),
    "enum": st.lists(json_values, min_size=1, max_size=3),
    "const": json_values,
    "minimum": st.integers(-5, 5),
    "maxLength": st.integers(0, 3),
    "minItems": st.integers(0, 3),
    "required": st.lists(st.text(max_size=2), max_size=2, unique=True),
    "format": st.sampled_from(["date", "email", "uri", "nothing"]),
    "pattern": st.sampled_from(["^a", "b$", "[0-9]+"]),
    "uniqueItems": st.booleans(),
    "additionalProperties": st.booleans(),
    "multipleOf": st.integers(1, 4),
    "minProperties": st.integers(0, 2),
}
schemas = st.recursive(
    st.fixed_dictionaries({}, optional=keywords),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            **keywords,
            "properties": st.dictionaries(st.text(max_size=2), inner, max_size=3),
            "items": inner,
            "anyOf": st.lists(inner, min_size=1, max_size=3),
            "oneOf": st.lists(inner, min_size=1, max_size=3),
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "not": inner,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "contains": inner,
            "propertyNames": inner,
            "unevaluatedProperties": st.booleans(),
        },
    ),
    max_leaves=4,
)


@settings(max_examples=100, deadline=None)
@given(schemas, json_values)
def test_no_value_and_no_schema_make_the_checker_raise(schema: Any, value: Any) -> None:
    try:
        checker = compile_schema(schema, "s")
    except SchemaInvalid:
        return
    told = checker.problems(value, "input")
    assert told == checker.problems(value, "input")
    assert all(line.startswith(("input", "and ")) and "\n" not in line for line in told)


@settings(max_examples=100, deadline=None)
@given(json_values, json_values)
def test_no_document_makes_the_compiler_raise_anything_else(document: Any, value: Any) -> None:
    with suppress(SchemaInvalid):
        compile_schema(document, "s").problems(value)
