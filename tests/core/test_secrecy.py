"""What is secret in an answer, wherever its schema says so."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askback.core.interactions import MAX_PROMPT_BYTES, MAX_QUESTION_BYTES, Interaction, Question, bounded
from askback.core.outcomes import AskUser
from askback.core.secrecy import Secrecy
from askback.engines.protocols.elicitation import read_form
from askback.notifications.channels.telegram.messages import in_chat
from askback.questions.finding import QuestionBlock, read_question
from askback.skills.templates import masked, secret_inputs
from askback.skills.validation import reply_problems
from askback.text.redaction import answer_secrets
from support.secret_schemas import IN_PLACE, made
from support.specimens import decision, ended, running_run

SECRET = "hush-9f3c71ad"
PASSWORD = {"type": "string", "format": "password"}
DEFINED = {"$defs": {"pin": PASSWORD, "name": {"type": "string"}, "round": {"$ref": "#/$defs/round"}}}


def asked(question: Question, response: Any = None) -> Interaction:
    run = running_run()
    interaction = decision(run, ended(run, AskUser(question=question))).asked
    assert interaction is not None
    return replace(interaction, response=response)


def read(**fields: Any) -> Question:
    block = QuestionBlock(start=0, end=0, fields={"interaction_id": "q", "prompt": "Which?", **fields})
    return read_question(block, "")[0]


def assert_hidden(interaction: Interaction) -> None:
    assert interaction.asks_secrets
    assert SECRET not in json.dumps(interaction.shown_response)
    assert SECRET in answer_secrets([interaction.secret_response])
    assert not in_chat(interaction)


@given(st.randoms(use_true_random=False))
def test_a_declared_secret_is_hidden_wherever_it_is(random: Random) -> None:
    schema, answer = made(random, SECRET)
    assert SECRET not in json.dumps(Secrecy.by(schema).shown(answer))
    assert SECRET in json.dumps(Secrecy.by(schema).hidden(answer))
    assert_hidden(asked(Question(prompt="?", response_schema=schema), answer))


@given(st.randoms(use_true_random=False))
def test_it_stays_hidden_when_an_engine_asks(random: Random) -> None:
    schema, answer = made(random, SECRET)
    options = ["a", "b"] if random.random() < 0.3 else []
    assert_hidden(asked(read(response_schema=schema, options=options), answer))
    form = asked(read(questions=[{"prompt": "A?", "response_schema": schema}, {"prompt": "B?"}]))
    assert form.secrecy.fields == {"question-1"}
    elicited = read_form({"message": "?", "requestedSchema": {"type": "object", "properties": {"a": schema}}})
    if elicited is not None:
        assert_hidden(asked(elicited.question, {"a": answer}))


@given(st.randoms(use_true_random=False))
def test_the_input_of_a_run_follows_the_same_rule(random: Random) -> None:
    schema, value = made(random, SECRET)
    whole = {"type": "object", "properties": {"a": schema, "b": {"type": "string"}}, **definitions(schema)}
    given = {"a": value, "b": "shown"}
    shown = masked(given, secret_inputs(given, whole))
    assert SECRET not in json.dumps(shown)
    assert shown["b"] == "shown"


def definitions(schema: dict[str, Any]) -> dict[str, Any]:
    return {"$defs": schema["$defs"]} if "$defs" in schema else {}


@pytest.mark.parametrize(
    ("schema", "fields"),
    [
        ({"properties": {"pin": PASSWORD, "user": {}}}, {"pin"}),
        ({"properties": {"login": {"properties": {"pin": PASSWORD}}, "user": {}}}, {"login"}),
        ({"properties": {"pin": {"$ref": "#/$defs/pin"}, "user": {"$ref": "#/$defs/name"}}}, {"pin"}),
        ({"allOf": [{"properties": {"pin": PASSWORD, "user": {}}}]}, {"pin"}),
        ({"$ref": "#/$defs/login", "$defs": {"login": {"properties": {"pin": PASSWORD}}}}, {"pin"}),
        ({"properties": {"pin": PASSWORD, "next": {"$ref": "#"}}}, {"pin", "next"}),
        ({"properties": {"user": {"$ref": "#/$defs/round"}}}, set()),
        ({"properties": {"format": {"const": "password"}, "writeOnly": {"type": "boolean"}}}, set()),
        ({"type": "string", "$ref": "#/$defs/name"}, set()),
        ({"type": "string", "writeOnly": False}, set()),
        (None, set()),
        (True, set()),
    ],
)
def test_what_is_not_secret_stays_visible(schema: Any, fields: set[str]) -> None:
    whole = {**DEFINED, **schema} if isinstance(schema, dict) else schema
    assert Secrecy.by(whole) == Secrecy(fields=frozenset(fields))


@pytest.mark.parametrize("way", sorted(IN_PLACE.keys() - {"property", "all"}))
def test_a_mark_of_no_known_property_makes_the_whole_answer_secret(way: str) -> None:
    schema, _ = IN_PLACE[way](PASSWORD, SECRET)
    assert Secrecy.by(schema).whole == (way != "property")


@pytest.mark.parametrize("reference", ["#nowhere", "#/$defs/missing", "https://example.org/x", "", "x#/$defs/name"])
@pytest.mark.parametrize("word", ["$ref", "$dynamicRef", "$recursiveRef"])
def test_a_reference_that_cannot_be_followed_is_secret(word: str, reference: str) -> None:
    assert Secrecy.by({**DEFINED, word: reference}).whole
    assert Secrecy.by({**DEFINED, "properties": {"a": {word: reference}}}).fields == {"a"}


def test_below_another_id_a_reference_starts_elsewhere() -> None:
    inner = {"$id": "https://example.org/x", "$ref": "#/$defs/name", "$defs": {"name": PASSWORD}}
    assert Secrecy.by({**DEFINED, "properties": {"a": inner}}).fields == {"a"}


def test_an_answer_that_is_no_object_may_be_the_secret_field_itself() -> None:
    interaction = asked(Question(prompt="?", response_schema={"properties": {"pin": PASSWORD}}), SECRET)
    assert_hidden(interaction)


def test_hostile_schemas_are_cheap() -> None:
    """Each of these takes minutes or raises if a part is visited more than once or by recursion."""
    deep: dict[str, Any] = PASSWORD
    for _ in range(100_000):
        deep = {"items": deep}
    assert Secrecy.by({"properties": {"a": deep, "b": {}}}).fields == {"a"}
    names = [f"p{number}" for number in range(20_000)]
    around = {"properties": {name: {"$ref": "#"} for name in names}}
    assert not Secrecy.by(around).any
    around["properties"]["pin"] = PASSWORD
    assert Secrecy.by(around).fields == {*names, "pin"}
    chain = {f"d{number}": {"allOf": [{"$ref": f"#/$defs/d{number + 1}"}] * 2} for number in range(10_000)}
    assert not Secrecy.by({"$ref": "#/$defs/d0", "$defs": {**chain, "d10000": {"$ref": "#/$defs/d0"}}}).any
    looped: dict[str, Any] = {}
    looped["items"] = looped
    assert not Secrecy.by(looped).any
    while deep:
        deep = deep.pop("items", None) or {}


def test_a_question_that_loses_its_schema_is_secret_as_a_whole() -> None:
    schema = {"type": "string", "format": "password", "description": "x" * MAX_QUESTION_BYTES}
    long = Question(prompt="?" * MAX_PROMPT_BYTES * 2, response_schema=schema)
    assert (bounded(long).response_schema, bounded(long).kind) == (None, "secret")
    assert read(response_schema=schema).kind == "secret"
    assert read(response_schema={"type": "array", "items": {"type": "string"}}).kind == "text"


@pytest.mark.parametrize(
    ("schema", "answer"),
    [
        ({"type": "object", "properties": {"pin": {**PASSWORD, "minLength": 50}}}, {"pin": SECRET}),
        ({"type": "object", "properties": {"a pin: x": {**PASSWORD, "minLength": 50}}}, {"a pin: x": SECRET}),
        ({"type": "object", "properties": {"pin": PASSWORD}, "maxProperties": 0}, {"pin": SECRET}),
        ({"type": "object", "properties": {"pin": PASSWORD}}, SECRET),
        ({"anyOf": [PASSWORD, {"type": "null"}]}, {"a": [SECRET]}),
        ({"type": "array", "items": PASSWORD}, [[SECRET]]),
        ({"type": "object", "additionalProperties": PASSWORD}, {"a": [SECRET]}),
    ],
)
def test_a_refusal_does_not_quote_a_secret(schema: dict[str, Any], answer: Any) -> None:
    problems = reply_problems(asked(Question(prompt="?", response_schema=schema)), answer)
    assert problems
    assert SECRET not in json.dumps(problems)
