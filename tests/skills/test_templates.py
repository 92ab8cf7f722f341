"""Prompt templates: placeholders are filled in, nothing else is understood, and a value stays in its place."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askback.skills.templates import (
    MAX_PLACEHOLDERS,
    MAX_TEMPLATE_CHARS,
    MAX_VALUE_CHARS,
    TemplateUnsupported,
    parse_template,
)


def rendered(template: str, **values: Any) -> str:
    return parse_template(template).render(values)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        ("{{ input.city }}", "Lisbon"),
        ("{{input.city}}, {{ input.stay.nights }} nights", "Lisbon, 3 nights"),
        ("{{ input['city'] }}{{ input[\"city\"] }}", "LisbonLisbon"),
        ("{{ parameter.tags }}", '["a", "b"]'),
        ("{{ parameter.strict }} {{ parameter.none }}", "true null"),
        ("[{{ input.nothing }}{{ parameter.a.b }}{{ input.city.name }}]", "[]"),
        (
            "{{ skill.id }} {{ skill_id }} {{ skill_dir }}/scripts {{ run_dir }} {{ engine_id }}",
            "s s skill/scripts . codex",
        ),
        ('Print `{"mean": <value>}` }} and {x}', 'Print `{"mean": <value>}` }} and {x}'),
        ("${{ skill.id }}", "$s"),
    ],
)
@pytest.mark.contract("J-7")
def test_placeholders_are_filled_in(template: str, text: str) -> None:
    values = {
        "input": {"city": "Lisbon", "stay": {"nights": 3}},
        "parameter": {"tags": ["a", "b"], "strict": True, "none": None},
        "skill": {"id": "s"},
        "skill_id": "s",
        "skill_dir": "skill",
        "run_dir": ".",
        "engine_id": "codex",
    }
    assert rendered(template, **values) == text


@pytest.mark.parametrize(
    "template",
    [
        "{% for x in range(10**9) %}x{% endfor %}",
        "{{ 'a' * 10**9 }}",
        "{{ input.x | tojson }}",
        "{{ input.x.__class__() }}",
        "{{ input.items() }}",
        "{{ input[0] }}",
        "{{- input.x -}}",
        "{# comment #}",
        "{{ input.x",
        "{{{ input.x }}}",
        "{{ }}",
        "{{ config }}",
        "{{ engine_skills_dir }}/x",
        "{{ skill }}",
        "{{ skill.path }}",
        "{{ skill_dir.x }}",
        "a\0b",
        "a\ud800b",
        "{{ input.x }}" * (MAX_PLACEHOLDERS + 1),
        "x" * (MAX_TEMPLATE_CHARS + 1),
    ],
)
@pytest.mark.contract("J-7")
def test_anything_else_is_not_supported(template: str) -> None:
    with pytest.raises(TemplateUnsupported):
        parse_template(template)


@pytest.mark.contract("J-7")
def test_a_value_is_not_a_template() -> None:
    assert rendered("{{ input.a }}", input={"a": "{{ input.b }}", "b": "no"}) == "{{ input.b }}"


@pytest.mark.parametrize("value", ["a\nb", "</request>", "`x`", "a\u2028b", "\x1b[31m", "\u202egnp", "\U000e0001"])
@pytest.mark.contract("J-7")
def test_a_value_that_could_leave_its_place_is_written_as_json(value: str) -> None:
    text = rendered("{{ input.a }}", input={"a": value})
    assert json.loads(text) == value
    assert text.isprintable()
    assert not set("<>`") & set(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda part: st.lists(part) | st.dictionaries(st.text(), part),
        max_leaves=20,
    )
)
def test_no_value_ends_its_line_or_its_block(value: Any) -> None:
    text = rendered("<request>`{{ input.a }}`</request>", input={"a": value})
    found = re.fullmatch(r"<request>`([^`<>]*)`</request>", text)
    assert found is not None
    assert found[1].isprintable()


@pytest.mark.contract("J-7")
def test_a_long_value_is_named_and_not_repeated() -> None:
    long = "x" * (MAX_VALUE_CHARS + 1)
    assert rendered("Read {{ input.text }}", input={"text": long}) == "Read (the value of input.text above)"
    assert rendered("{{ input }}", input={"text": long}) == "(the value of input above)"
