"""The client sends what it was given: zero, false and empty values are not taken for missing ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from askback.client import Refused, calls
from support.data_folder import World
from support.server import Server

GIVEN: dict[str, Any] = {
    "engine": "",
    "mode": "",
    "input": {},
    "parameter": {},
    "env": {},
    "options": {},
    "from_run": {},
    "workdir": "",
    "labels": {},
    "webhooks": (),
}


def test_a_token_that_expires_at_once_is_not_one_that_never_expires(tmp_path: Path) -> None:
    with Server(World(tmp_path)) as server, server.client() as client:
        with pytest.raises(Refused) as refused:
            client.create_token("brief", ["read"], expires_in_sec=0)
        assert "expires_in_sec" in str(refused.value.problems)
        assert [each.name for each in client.tokens()] == ["main"]


def test_arguments_that_are_given_are_sent() -> None:
    call = calls.create_run("asking", **GIVEN, idempotency_key="")
    assert call.body is not None
    assert json.loads(call.body) == {"skill": "asking", **GIVEN, "webhooks": []}
    assert call.headers["Idempotency-Key"] == ""
    missing = dict.fromkeys(GIVEN) | {
        name: GIVEN[name] for name in ("input", "parameter", "env", "options", "webhooks")
    }
    sent = json.loads(calls.create_run("asking", **missing, idempotency_key=None).body or b"")
    assert sent.keys().isdisjoint({"engine", "mode", "from_run", "workdir", "labels"})
