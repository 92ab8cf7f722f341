"""The command line of the MCP Inspector, which others have written, drives the server over HTTP and stdio, in both eras."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.mcp_client import LIMIT_SEC, Door, key
from support.peers import peer, peer_env
from support.program import ASKBACK
from support.server import Server


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspector:
    """The Inspector at one door. Every call is a process, which connects anew."""

    door: Door
    program: str
    home: Path

    def run(self, method: str, *options: str) -> subprocess.CompletedProcess[str]:
        era = "legacy" if self.door.mode == "legacy" else "modern"
        token = self.door.server.token
        words = ["--cli", "--protocol-era", era, "--format", "json", "--connect-timeout", str(LIMIT_SEC * 1000)]
        words += ["--method", method, *options]
        if self.door.transport == "http":
            words += ["--server-url", f"{self.door.server.url}/mcp", "--transport", "http"]
            words += ["--header", f"Authorization: Bearer {token}"]
        else:
            words += ["-e", f"ASKBACK_URL={self.door.server.url}", "-e", f"ASKBACK_TOKEN={token}"]
            words += ["--", *ASKBACK, "mcp"]
        env = peer_env() | {"HOME": str(self.home)}
        return subprocess.run(
            [self.program, *words],
            env=env,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_SEC,
        )

    def result(self, method: str, *options: str) -> Any:
        ran = self.run(method, *options)
        assert ran.returncode == 0, (ran.returncode, ran.stdout, ran.stderr)
        return json.loads(ran.stdout)["result"]

    def call(self, tool: str, **arguments: Any) -> Any:
        return self.result("tools/call", "--tool-name", tool, "--tool-args-json", json.dumps(arguments))


@pytest.fixture
def inspector(tmp_path: Path) -> Callable[[Door], Inspector]:
    program = peer("inspector")
    return lambda door: Inspector(door=door, program=program, home=tmp_path)


def test_the_inspector_runs_a_skill_that_asks(door: Door, inspector: Callable[[Door], Inspector]) -> None:
    by = inspector(door)
    started = by.call("run_skill", skill="asking", engine="scripted", idempotency_key=key(), wait_sec=40)
    asked = started["structuredContent"]
    assert (asked["state"], asked["question"]["prompt"]) == ("waiting_user", "Which colour?")
    about = {"run_id": asked["run_id"], "interaction_id": "colour"}
    done = by.call("answer_question", **about, answer="blue")
    assert done["structuredContent"]["state"] == "succeeded"
    assert done["structuredContent"]["data"] == {"colour": "blue"}
    (link,) = [each for each in done["content"] if each["type"] == "resource_link"]
    assert link["uri"] == f"askback://runs/{asked['run_id']}/artifacts/deep/a%20b.txt"


@pytest.mark.long
def test_the_inspector_reads_an_artifact(one_door: Door, inspector: Callable[[Door], Inspector]) -> None:
    with one_door.server.client() as api:
        made = api.create_run("asking", engine="scripted", mode="interactive")
        api.wait(made.id)
        api.reply(made.id, "colour", "blue")
        api.wait(made.id)
    uri = f"askback://runs/{made.id}/artifacts/deep/a%20b.txt"
    assert inspector(one_door).result("resources/read", "--uri", uri)["contents"][0]["text"] == "blue\n"


@pytest.mark.long
def test_the_inspector_finds_no_error_in_the_schemas(one_door: Door, inspector: Callable[[Door], Inspector]) -> None:
    ran = inspector(one_door).run("tools/list", "--strict")
    assert ran.returncode == 0, ran.stderr
    assert "run_skill" in [each["name"] for each in json.loads(ran.stdout)["result"]["tools"]]
    assert "0 errors" in ran.stderr


@pytest.mark.long
@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_the_inspector_verifies_every_skill(
    transport: str, server: Server, inspector: Callable[[Door], Inspector], rich_skill: str
) -> None:
    door = Door(server=server, transport=transport, mode="2026-07-28")
    ran = inspector(door).run("skills/list", "--verify", "--require-digests")
    assert ran.returncode == 0, (ran.stdout, ran.stderr)
    reports = {each["uri"]: each for each in map(json.loads, ran.stdout.splitlines())}
    assert {each["outcome"] for each in reports.values()} == {"verified"}
    assert {each["status"] for each in reports[rich_skill]["files"]} == {"verified"}
    assert len(reports[rich_skill]["files"]) == 7


@pytest.mark.long
def test_the_inspector_reads_the_same_values_in_front_matter(
    server: Server, inspector: Callable[[Door], Inspector], typed_skill: str
) -> None:
    door = Door(server=server, transport="http", mode="2026-07-28")
    ran = inspector(door).run("skills/get", "--uri", typed_skill, "--verify")
    report = json.loads(ran.stdout)
    assert (report["outcome"], report["frontmatter"]) == ("verified", []), ran.stderr
