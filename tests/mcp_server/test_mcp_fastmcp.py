"""The client of FastMCP, which others have written, drives the server over HTTP and stdio."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from support.data_folder import World
from support.mcp_client import LIMIT_SEC
from support.peers import fastmcp_python
from support.program import ASKBACK
from support.server import Server

PROGRAM = Path(__file__).resolve().parent.parent / "peers" / "fastmcp_client.py"


@pytest.mark.long
def test_fastmcp_runs_a_skill_with_and_without_elicitation(
    server: Server, rich_skill: str, typed_skill: str, world: World
) -> None:
    env = {"ASKBACK_URL": server.url, "ASKBACK_TOKEN": server.token}
    doors = [
        {"mode": "auto", "url": f"{server.url}/mcp", "token": server.token},
        {"mode": "legacy", "command": [*ASKBACK, "mcp"], "env": env},
    ]
    given = json.dumps({"doors": doors, "skill": rich_skill})
    command = [fastmcp_python(), str(PROGRAM), given]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=2 * LIMIT_SEC, cwd=world.folder)
    assert ran.returncode == 0, ran.stderr
    results = json.loads(ran.stdout)
    assert [each["with"]["version"] for each in results] == ["2026-07-28", "2025-11-25"]
    for got in results:
        asked, direct = got["with"], got["without"]
        assert asked["asked"] == ["asking asks:\nWhich colour?"]
        assert (asked["done"]["state"], asked["done"]["data"]) == ("succeeded", {"colour": "red"})
        assert (direct["waiting"]["state"], direct["waiting"]["question"]["options"]) == (
            "waiting_user",
            ["red", "blue"],
        )
        assert (direct["done"]["state"], direct["done"]["data"]) == ("succeeded", {"colour": "red"})
        assert direct["artifact"] == "red\n"
    found = results[0]["skills"]
    assert {rich_skill, "skill://asking/SKILL.md"} <= set(found["listed"])
    assert found["skill"]["frontmatter"]["metadata"]["version"] == "1.10"
    assert found["text"].startswith("---\r\nname: rich\r\n")
