"""How engines are kept in is told where people look: by `askback doctor` and by the server's health."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest

from askback.process.guardian.client import available
from support.data_folder import World
from support.program import DEADLINE_SEC, askback
from support.server import Server

pytestmark = pytest.mark.skipif(not available(), reason="no guardian on this system")

CASES = {
    "switched off": ({"ASKBACK_SANDBOX": "off"}, "guardian", "the setting 'sandbox' is 'off'"),
    "not installed": ({"ASKBACK_SANDBOX": "auto", "PATH": "/nowhere"}, "guardian", "bubblewrap is not installed"),
    "does not work": ({"ASKBACK_SANDBOX": "auto", "PATH": "$W"}, "guardian", "bubblewrap does not work here: no luck"),
}


@pytest.mark.contract("Q-3")
@pytest.mark.parametrize("case", CASES)
def test_less_than_a_sandbox_is_told_with_the_reason_and_what_to_do(tmp_path: Path, case: str) -> None:
    added, level, why = CASES[case]
    world = World(tmp_path)
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho no luck >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    env = {name: value.replace("$W", str(tmp_path)) for name, value in added.items()}
    (finding,) = _findings(world, env)
    assert finding["message"].startswith(f"{level}: ")
    assert why in finding["message"]
    assert "can read and change everything that you can, including the server's token" in finding["message"]
    assert "the sandbox of Codex is off as well" in finding["message"]
    assert (finding["ok"], finding["warning"], bool(finding["advice"])) == (None, True, True)
    with Server(world, env=env) as server:
        health = httpx.get(f"{server.url}/healthz", timeout=DEADLINE_SEC).json()
        (line,) = (line for line in server.stderr.splitlines() if "without a sandbox" in line)
    assert "the sandbox of Codex is off as well" in line
    assert why in line
    assert (health["sandbox"], health["isolation"]["files"]) == (level, "user")
    assert "including the server's token" in health["isolation"]["message"]


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_a_sandbox_that_works_is_told(tmp_path: Path) -> None:
    world = World(tmp_path)
    env = {"ASKBACK_SANDBOX": "auto"}
    (finding,) = _findings(world, env)
    if finding["message"].startswith("guardian"):
        pytest.skip(finding["message"])
    assert (finding["ok"], finding["advice"]) == (True, "")
    with Server(world, env=env) as server:
        health = httpx.get(f"{server.url}/healthz", timeout=DEADLINE_SEC).json()
        assert "sandbox" not in server.stderr
    expected = {"files": "run", "shares_folders": False, "network": "host", "message": ""}
    assert (health["sandbox"], health["isolation"]) == ("bubblewrap", expected)


@pytest.mark.contract("Q-1")
def test_by_what_limits_are_enforced_is_told(tmp_path: Path) -> None:
    world = World(tmp_path)
    told = askback(world, "doctor", "--json").json
    first, *rest = [each for each in told["findings"] if each["what"] == "limits"]
    assert first["ok"] is True
    for limit in ("memory", "processes", "cpu", "disk"):
        assert f"{limit} by " in first["message"]
    # A watchdog can be outrun, which is told as plainly, with the reason and what to do.
    assert [each["ok"] for each in rest] == ([] if "memory by cgroup v2" in first["message"] else [None])
    for each in rest:
        assert "briefly exceed" in each["message"]
        assert each["advice"]
    with Server(world) as server:
        limits = httpx.get(f"{server.url}/healthz", timeout=DEADLINE_SEC).json()["limits"]
    assert {name for name, means in limits.items() if means} == {"memory", "processes", "cpu", "disk", "oom"}
    assert "watchdog" in limits["memory"]


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_what_weakens_a_sandbox_is_told(tmp_path: Path) -> None:
    world = World(tmp_path)
    env = {"ASKBACK_SANDBOX": "auto", "ASKBACK_SANDBOX_SHARE": '["/tmp"]'}
    (finding,) = _findings(world, env)
    if finding["message"].startswith("guardian"):
        pytest.skip(finding["message"])
    assert "the settings share /tmp with all of them" in finding["message"]
    assert "sandbox_share" in finding["advice"]
    (network,) = _findings(world, env, "network")
    assert "loopback services and cloud metadata addresses" in network["message"]
    with Server(world, env=env) as server:
        assert httpx.get(f"{server.url}/healthz", timeout=DEADLINE_SEC).json()["isolation"]["shares_folders"] is True


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_a_home_on_the_search_path_is_told(tmp_path: Path) -> None:
    world = World(tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    env = {"ASKBACK_SANDBOX": "auto", "PATH": f"{home}:/usr/bin:/bin"}
    if _findings(world, env)[0]["message"].startswith("guardian"):
        pytest.skip("no sandbox here")
    messages = [each["message"] for each in _findings(world, env, "engine scripted")]
    assert any(f"its program is in {home}" in message for message in messages)


def _findings(world: World, env: dict[str, str], what: str = "sandbox") -> list[dict[str, Any]]:
    told = askback(world, "doctor", "--json", env=env).json
    return [each for each in told["findings"] if each["what"] == what]
