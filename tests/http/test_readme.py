"""The lines in the README work as they are printed, over HTTP and on a terminal, from creating a run to its result."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.data_folder import World
from support.program import DEADLINE_SEC, environment
from support.server import Server

ROOT = Path(__file__).resolve().parent.parent.parent
README = ROOT / "README.md"


def printed_lines(heading: str, word: str) -> str:
    """The one block of the section that holds the word."""
    section = README.read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    blocks: list[str] = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    (block,) = [block for block in blocks if word in block]
    return block


def typed(lines: str, world: World, **known: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-u", "-c", lines],
        capture_output=True,
        text=True,
        env=environment(world, **known),
        cwd=world.folder,
        timeout=DEADLINE_SEC,
        check=False,
    )


def test_the_lines_for_a_script_lead_to_a_result_and_to_a_question_that_is_answered_later(tmp_path: Path) -> None:
    lines, world = printed_lines("Run a skill", "--answer"), World(tmp_path)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    first, reply = lines.rpartition("askback reply ")[::2]
    asked = typed(first, world, PATH=path)
    assert asked.returncode == 4, asked.stderr
    assert json.loads((tmp_path / "plan.json").read_text())["pace"] == "balanced"
    run = json.loads(asked.stdout)
    assert run["state"] == "waiting_user"
    answered = typed("askback reply " + reply.replace("1m7gekfsksrgk77s", run["id"]), world, PATH=path)
    assert json.loads(answered.stdout)["pace"] == "relaxed, please"


def test_the_curl_lines_lead_from_a_run_to_its_result(tmp_path: Path) -> None:
    lines, world = printed_lines("Use it over HTTP", "curl"), World(tmp_path)
    (tmp_path / "src").symlink_to(ROOT / "src")
    with Server(world) as server:
        known = {"ASKBACK_URL": server.url, "ASKBACK_TOKEN": server.token, "PATH": os.environ["PATH"]}
        ran = typed(f"set -e\n{lines}", world, **known)
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
    assert '"prompt":"What pace would you like in Lisbon?"' in ran.stdout
    assert "event: interaction.closed\n" in ran.stdout
    assert '"status":"succeeded","data":{"title":"Lisbon, day by day","pace":"relaxed"' in ran.stdout
    assert ran.stdout.count("event: run.created\n") == 1
    assert "# Lisbon, day by day\n\nPace: relaxed\n" in ran.stdout


def test_the_first_python_lines_answer_a_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    block = README.read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    with Server(World(tmp_path)) as server:
        asked: list[str] = []
        monkeypatch.setattr("builtins.input", lambda prompt: asked.append(prompt) or "relaxed")
        exec(block.replace("http://127.0.0.1:8765", server.url), {"token": server.token})
    assert asked == ["What pace would you like in Lisbon? "]
    assert "'pace': 'relaxed'" in capsys.readouterr().out
