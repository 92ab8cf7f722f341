"""The rules for labels."""

from __future__ import annotations

import pytest

from askback.core.errors import Forbidden, Invalid
from askback.core.labels import MAX_LABELS, has_labels, label_problems, read_labels, restricted


@pytest.mark.contract("N-5")
@pytest.mark.parametrize("value", ["4711", "Größe: 4 = vier", "客户 🙂", "</script><b>", "' OR 1=1 --", "x" * 200])
def test_ordinary_and_hostile_values_are_labels(value: str) -> None:
    assert not list(label_problems({"customer": value, "a.b_c-D": value}))


@pytest.mark.contract("N-5")
@pytest.mark.parametrize("name", ["", "-a", ".a", "a b", "a:b", "a=b", "ä", "a" * 64, "a\n", "__proto__", "a/b"])
def test_other_names_are_refused(name: str) -> None:
    [problem] = label_problems({name: "value"})
    assert "is not a name" in problem


@pytest.mark.contract("N-5")
@pytest.mark.parametrize(
    "value", ["", "x" * 201, "a\nb", "a\x00", "\x1b[31m", "a\u2028b", "\ud800", "a\u202eb", "\x85"]
)
def test_other_values_are_refused(value: str) -> None:
    [problem] = label_problems({"customer": value})
    assert problem.startswith("labels.customer: a value ")


@pytest.mark.contract("N-5")
def test_there_are_at_most_sixteen() -> None:
    assert not list(label_problems({f"n{number}": "x" for number in range(MAX_LABELS)}))
    [problem] = label_problems({f"n{number}": "x" for number in range(MAX_LABELS + 1)})
    assert problem == "labels: there are 17 labels; at most 16 are allowed"


def test_the_first_separator_ends_the_name() -> None:
    assert read_labels(["a:b:c", "d:=", "a:b:c"], ":", "label") == {"a": "b:c", "d": "="}


@pytest.mark.parametrize("texts", [["customer"], ["a:1", "a:2"], [":1"], ["a:"]])
def test_other_texts_are_refused(texts: list[str]) -> None:
    with pytest.raises(Invalid):
        read_labels(texts, ":", "label")


def test_all_wanted_labels_must_be_there() -> None:
    assert has_labels({"a": "1", "b": "2"}, {"a": "1"})
    assert has_labels({"a": "1"}, {})
    assert not has_labels({"a": "1"}, {"a": "1", "b": "2"})
    assert not has_labels({"a": "1"}, {"a": "2"})


def test_a_restriction_adds_its_labels_and_is_not_contradicted() -> None:
    assert restricted({"plan": "x"}, {"customer": "1"}) == {"plan": "x", "customer": "1"}
    with pytest.raises(Forbidden, match="restricted to customer=1"):
        restricted({"customer": "2"}, {"customer": "1"})
