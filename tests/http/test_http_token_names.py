"""The names of tokens: one rule by every way, told whole, and no token that could be taken for Askback itself."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from support.data_folder import World
from support.program import askback
from support.server import Server

RULE = (
    "the name of a token starts with a letter or digit, and has at most 100 characters: letters, digits, '.', '_' and '-'; "
    "'main' and 'askback' are reserved"
)
WRONG = ["", ".ci", "_ci", "ci bot", "ci\n", "计划", "x" * 101, "main", "Main", "askback", "ASKBACK"]


@pytest.mark.parametrize("name", WRONG)
def test_the_api_and_the_command_refuse_a_name_with_the_whole_rule(
    client: httpx.Client, tmp_path: Path, name: str
) -> None:
    told = client.post("/v1/tokens", json={"name": name, "scopes": ["read"]})
    assert (told.status_code, told.json()["code"], told.json()["detail"]) == (422, "INPUT_INVALID", RULE)
    ran = askback(World(tmp_path), "tokens", "create", name, "--scope", "read", "--json")
    assert (ran.code, ran.json["error"]["code"], ran.json["error"]["message"]) == (2, "INPUT_INVALID", RULE)
    assert not (tmp_path / "data").exists()


@pytest.mark.sqlite
def test_an_earlier_token_with_the_name_of_askback_stays_valid(tmp_path: Path) -> None:
    world = World(tmp_path)
    made = askback(world, "tokens", "create", "before", "--scope", "read", "--json").json
    file = world.data_dir / "tokens.json"
    file.write_text(file.read_text().replace('"before"', '"askback"'))
    assert "askback" in json.dumps(json.loads(file.read_text()))
    with Server(world) as server:
        held = {"authorization": f"Bearer {made['token']}"}
        assert httpx.get(f"{server.url}/v1/runs", headers=held, timeout=120).status_code == 200
        assert askback(world, "tokens", "revoke", "askback").code == 0
        assert httpx.get(f"{server.url}/v1/runs", headers=held, timeout=120).status_code == 401
