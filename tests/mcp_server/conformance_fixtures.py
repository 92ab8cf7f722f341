"""Skills in the place of the tools that the official conformance suite expects from its fixture server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from support.data_folder import World

_ANY = {"type": "object"}
_WAITS = {"wait_sec": 40}
CALLS: Mapping[str, Mapping[str, Any]] = {
    "greet": _WAITS,
    "test_simple_text": _WAITS,
    "slow_compute": {},
    "failing_job": {},
    "confirm_delete": {},
    "test_tool_with_task": _WAITS,
    "test_error_handling": _WAITS,
    "test_elicitation": _WAITS,
    "test_elicitation_sep1034_defaults": _WAITS,
    "test_input_required_result_elicitation": _WAITS,
    "test_input_required_result_request_state": _WAITS,
    "test_input_required_result_multi_round": _WAITS,
    "test_input_required_result_tampered_state": _WAITS,
}
"""For each skill that is a tool of the suite, the arguments of its call beside the input."""
_DEFAULTS = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}


def install(world: World) -> None:
    done = {"finish": {"said": "{{reply}}"}}
    ok, name = {"ok": {"type": "boolean"}}, {"name": {"type": "string"}}
    _skill(world, "greet", [{"finish": {"text": "Hello, {{input.name}}!"}}])
    _skill(world, "test_simple_text", [{"finish": {"text": "This is a simple text response for testing."}}])
    # Nothing sleeps: a run of a few seconds finds its file at once, and one of a minute never does.
    files = [{"touch": name} for name in ("0", "1", "2")]
    _skill(world, "slow_compute", [*files, {"wait_for": "{{input.seconds}}"}, {"finish": {"label": "{{input.label}}"}}])
    _skill(world, "failing_job", [{"misbehave": "auth"}])
    _skill(world, "test_error_handling", [{"misbehave": "auth"}])
    _skill(world, "confirm_delete", [_asks("confirm", {"confirm": {"type": "boolean"}})], [done])
    _skill(world, "test_tool_with_task", [_asks("user_name", name)], [done])
    user = {"username": {"type": "string"}, "email": {"type": "string"}}
    _skill(world, "test_elicitation", [_asks("user", user)], [done])
    _skill(world, "test_elicitation_sep1034_defaults", [_asks("user", _DEFAULTS)], [done])
    _skill(world, "test_input_required_result_elicitation", [_asks("user_name", name)], [done])
    _skill(world, "test_input_required_result_request_state", [_asks("confirm", ok)], [done])
    _skill(world, "test_input_required_result_tampered_state", [_asks("confirm", ok)], [done])
    rounds = [[_asks("step1", name)], [_asks("step2", {"color": {"type": "string"}})], [done]]
    _skill(world, "test_input_required_result_multi_round", *rounds)


def _skill(world: World, name: str, *turns: list[dict[str, Any]]) -> None:
    world.skill(*turns, name=name.replace("_", "-"), output=None, schemas={"input": _ANY})


def _asks(interaction_id: str, fields: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    return {"ask": {"interaction_id": interaction_id, "kind": "form", "prompt": "Please.", "response_schema": schema}}
