"""Requests: a valid one becomes its shape; for any other, every mistake is reported with its path."""

from __future__ import annotations

from typing import Any

import pytest

from askback.core.runs import RunState
from askback.core.webhooks import WebhookKind
from askback.wire.reading import Mismatch, read_body, read_texts
from askback.wire.requests import LinkCreate, RunCreate, RunQuery


def problems(document: Any, shape: Any = RunCreate) -> tuple[str, ...]:
    with pytest.raises(Mismatch) as raised:
        read_body(document, shape)
    return raised.value.problems


def test_a_body_becomes_its_shape_with_defaults() -> None:
    body = read_body({"skill": "x", "webhooks": [{"url": "u", "states": ["failed"]}]}, RunCreate)
    assert (body.skill, body.input, body.engine) == ("x", {}, None)
    assert (body.webhooks[0].kind, body.webhooks[0].states) == (WebhookKind.STANDARD, (RunState.FAILED,))


def test_every_mistake_is_reported_with_its_path() -> None:
    webhooks = [{"url": 1, "kin": 2}, 5, {"url": "x", "states": ["q"]}]
    assert problems({"mode": "maybe", "engine": 3, "input": [1], "webhooks": webhooks}) == (
        "skill: required",
        "engine: expected a string or null, got an integer",
        "mode: 'maybe' is not one of auto, interactive",
        "input: expected an object, got an array",
        "webhooks[0].kin: unknown field; did you mean 'kind'?",
        "webhooks[0].url: expected a string, got an integer",
        "webhooks[1]: expected an object",
        "webhooks[2].states[0]: 'q' is not one of queued, running, waiting_user, succeeded, failed, canceled",
    )


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ([], "body: expected an object"),
        ({"skil": "x", "skill": "x"}, "skil: unknown field; did you mean 'skill'?"),
        ({"skill": "x", "zzz": 1}, "zzz: unknown field; known: skill, engine, mode, input, "),
        ({"skill": ""}, "skill: expected a string of length >= 1"),
        ({"skill": 1}, "skill: expected a string or an object, got an integer"),
        ({"skill": "x", "env": {"A": "a", "B": 1}}, "env.B: expected a string, got an integer"),
        ({"skill": "x", "webhooks": [{}] * 9}, "webhooks: expected an array of length <= 8"),
    ],
    ids=["no object", "typing error", "unknown name", "too short", "two types", "in a mapping", "too many"],
)
def test_a_mistake_says_what_is_expected(document: Any, problem: str) -> None:
    (found,) = problems(document)
    assert found.startswith(problem)


def test_many_unknown_fields_are_one_problem() -> None:
    found = problems({"skill": "x", **{f"a{number}": 1 for number in range(1000)}})
    assert found == (f"body: 1000 unknown fields; known: {', '.join(RunCreate.__struct_fields__)}",)


@pytest.mark.parametrize("seconds", [0, 31_536_001, True, "60", 1.5, None])
def test_a_number_is_not_guessed(seconds: Any) -> None:
    (found,) = problems({"expires_in_sec": seconds}, LinkCreate)
    assert found.startswith("expires_in_sec: expected an integer")


def test_parameters_are_parsed_and_unknown_ones_ignored() -> None:
    query = read_texts({"limit": "7", "skill": "null", "state": "failed", "other": "x"}, RunQuery)
    assert (query.limit, query.skill, query.state) == (7, "null", RunState.FAILED)


@pytest.mark.parametrize("text", ["null", "NULL", "x", ""])
def test_a_parameter_that_is_not_one_of_its_values_is_refused(text: str) -> None:
    with pytest.raises(Mismatch, match=f"state: '{text}' is not one of queued, "):
        read_texts({"state": text}, RunQuery)


def test_a_mistake_has_its_path_and_its_code() -> None:
    with pytest.raises(Mismatch) as raised:
        read_body({"webhooks": [{"url": "https://a.example", "states": [1]}], "colour": "red"}, RunCreate)
    found = {(problem.path, problem.code) for problem in raised.value.problems}
    assert found == {
        (("colour",), "unknown"),
        (("skill",), "required"),
        (("webhooks", 0, "states", 0), "invalid"),
    }
