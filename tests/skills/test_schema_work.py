"""Schemas that cause endless work are refused before they are compiled; legitimate ones are not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from askback.core.errors import Invalid, RefusalCode
from askback.core.runs import Mode
from askback.skills.json_schema import SchemaInvalid, compile_schema
from askback.skills.package import check_package, read_package
from askback.skills.prompts import mode_part
from askback.skills.schema_work import MAX_IN_PLACE

MEMORY = 1_500_000_000
A_MINUTE = 60

Wrap = Callable[[Any], Any]


def chain(length: int, wrap: Wrap) -> dict[str, Any]:
    """Definitions that each use the next."""
    defs: dict[str, Any] = {f"d{i}": wrap({"$ref": f"#/$defs/d{i + 1}"}) for i in range(length)}
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{length}": {"type": "object"}}}


TWICE: dict[str, Wrap] = {
    "allOf": lambda ref: {"allOf": [ref, ref]},
    "anyOf": lambda ref: {"anyOf": [ref, ref]},
    "oneOf": lambda ref: {"oneOf": [ref, ref]},
    "not": lambda ref: {"not": ref, "if": ref},
    "if": lambda ref: {"if": ref, "then": ref, "else": ref},
    "dependentSchemas": lambda ref: {"dependentSchemas": {"a": ref, "b": ref}},
    "unevaluated": lambda ref: {"allOf": [ref, ref], "unevaluatedProperties": False},
}


def in_child(schema: Any, value: str) -> tuple[str, ...]:
    """Compile a schema and validate a value with little memory. Returns the problems of the value or of the schema."""
    program = (
        "import json, resource, sys\n"
        f"resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))\n"
        "from askback.skills.json_schema import SchemaInvalid, compile_schema\n"
        "try: found = compile_schema(json.load(sys.stdin), 'schema').problems(eval(sys.argv[1]), 'output')\n"
        "except SchemaInvalid as invalid: found = invalid.problems\n"
        "print(json.dumps(found))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, value],
        input=json.dumps(schema),
        capture_output=True,
        text=True,
        timeout=A_MINUTE,
        check=True,
    )
    return tuple(json.loads(ended.stdout))


# Refused schemas.


@pytest.mark.parametrize("keyword", TWICE)
def test_references_that_double_are_refused_with_their_path(keyword: str) -> None:
    (problem,) = in_child(chain(40, TWICE[keyword]), "3")
    assert problem.startswith("schema.$defs.d")
    assert "expands to more than 10,000 schemas" in problem


@pytest.mark.parametrize(
    ("reference", "target"),
    [
        ({"$ref": "#{}"}, "$anchor"),
        ({"$dynamicRef": "#{}"}, "$dynamicAnchor"),
    ],
)
def test_anchors_that_double_are_refused(reference: dict[str, str], target: str) -> None:
    (word, form) = next(iter(reference.items()))
    defs = {f"d{i}": {target: f"d{i}", "allOf": [{word: form.format(f"d{i + 1}")}] * 2} for i in range(40)}
    schema = {word: form.format("d0"), "$defs": {**defs, "d40": {target: "d40", "type": "object"}}}
    (problem,) = in_child(schema, "3")
    assert "expands to more than" in problem


def test_a_pointer_below_a_nested_id_is_followed() -> None:
    inner = {**chain(40, TWICE["allOf"]), "$id": "https://example.com/inner"}
    (problem,) = in_child({"properties": {"a": inner}}, "{'a': 3}")
    assert "expands to more than" in problem


def test_a_schema_that_applies_itself_in_a_circle_is_refused() -> None:
    with pytest.raises(SchemaInvalid, match="applies itself"):
        compile_schema({"allOf": [{"$ref": "#"}]}, "schema")


# Values that would cost too much.


@pytest.mark.parametrize("word", ["allOf", "anyOf", "oneOf"])
@pytest.mark.parametrize("last", ["{}", "3"])
def test_recursion_through_values_that_doubles_is_not_followed_without_end(word: str, last: str) -> None:
    node = {"type": "object", "properties": {"a": {word: [{"$ref": "#/$defs/n"}, {"$ref": "#/$defs/n"}]}}}
    schema = {"$ref": "#/$defs/n", "$defs": {"n": node}}
    deep = f"__import__('functools').reduce(lambda inner, _: {{'a': inner}}, range(90), {last})"
    (problem,) = in_child(schema, deep)
    assert problem.startswith("output: cannot be validated")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"items": {"allOf": [{"minimum": i} for i in range(5000)]}}, "[9999] * 240_000"),
        ({"items": {"allOf": [True] * 9000}}, "[1] * 240_000"),
        ({"patternProperties": {f"^q{i}": True for i in range(4000)}}, "{f'p{i}': 1 for i in range(200_000)}"),
        ({"anyOf": [{"type": "string"}] * 9000}, "['x' * 9_000_000]"),
        ({"anyOf": [{"items": {"type": "string"}}, {"items": {"type": "null"}}]}, "[0] * 240_000"),
    ],
    ids=["many", "true", "patterns", "copies", "forms"],
)
def test_the_largest_output_is_answered_for_in_bounded_memory(schema: Any, value: str) -> None:
    (problem,) = in_child(schema, value)
    assert "cannot be validated" in problem or "too large to list" in problem


def test_a_long_enum_is_not_copied_into_a_thousand_mistakes() -> None:
    schema = {"items": {"enum": [{"a": i} for i in range(5000)]}}
    (problem,) = in_child(schema, "[{'a': -1}] * 1000")
    assert problem.startswith('output[0]: {"a": -1} is not one of')


# Legitimate schemas.


def test_a_recursive_tree_is_accepted_and_its_mistakes_are_named() -> None:
    tree = {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#"}}}}
    checker = compile_schema(tree, "schema")
    assert checker.problems({"kids": [{"kids": [{}]}] * 20_000}) == ()
    assert checker.problems({"kids": [{"kids": [3]}]}) == ('input.kids[0].kids[0]: 3 is not of type "object"',)


def test_400_definitions_in_a_row_are_accepted() -> None:
    assert compile_schema(chain(400, lambda ref: {"allOf": [ref]}), "schema").problems({}) == ()
    assert compile_schema(chain(400, lambda ref: {"properties": {"a": ref}}), "schema").problems({"a": {}}) == ()


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 2000), st.sampled_from(["properties", "allOf", "anyOf"]))
def test_many_definitions_used_once_each_are_accepted(count: int, word: str) -> None:
    refs = [{"$ref": f"#/$defs/d{i}"} for i in range(count)]
    used: Any = {f"p{i}": ref for i, ref in enumerate(refs)} if word == "properties" else refs
    schema = {word: used, "$defs": {f"d{i}": {"type": "object"} for i in range(count)}}
    assert compile_schema(schema, "schema").problems({}) == ()


@given(st.integers(1, 40))
def test_a_schema_is_accepted_exactly_while_it_expands_to_few(length: int) -> None:
    expanded = 4 * 2**length - 2
    accepted = True
    try:
        compile_schema(chain(length, TWICE["allOf"]), "schema")
    except SchemaInvalid:
        accepted = False
    assert accepted == (expanded <= MAX_IN_PLACE)


# Packages.


def hostile_skill(folder: Path, key: str) -> Path:
    folder.mkdir()
    (folder / "SKILL.md").write_text(f"---\nname: {folder.name}\ndescription: A skill\n---\nWork.\n")
    (folder / "assets").mkdir()
    schema = {"type": "object", **chain(40, TWICE["allOf"])}
    (folder / "assets" / f"{key}.schema.json").write_text(json.dumps(schema))
    return folder


@pytest.mark.parametrize("key", ["input", "parameter", "output"])
def test_a_package_with_such_a_schema_cannot_be_run(tmp_path: Path, key: str) -> None:
    folder = hostile_skill(tmp_path / "hostile", key)
    (problem,) = check_package(folder)
    assert problem.where.startswith(f"assets/{key}.schema.json: $defs.d")
    with pytest.raises(Invalid) as refused:
        read_package(folder)
    assert refused.value.code is RefusalCode.SKILL_INVALID


def test_a_prompt_for_a_schema_at_the_limit_is_made() -> None:
    schema = chain(11, TWICE["allOf"])
    assert "output" in mode_part(Mode.AUTO, schema, compile_schema(schema, "schema"))
